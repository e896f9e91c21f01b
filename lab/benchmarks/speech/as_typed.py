"""Whether a text that is typed becomes what the whole text does, for each look-ahead.

    python -m lab.benchmarks.speech.as_typed --texts 1000
    python -m lab.benchmarks.speech.as_typed --texts 1000 --codes 20

Each text is read as a whole, as a request has it, and letter by letter, as a socket has it: each
beginning that is spoken early must be continued by all later ones, and the last must be the whole.
Level 0 is a function of these. With ``--codes`` so many texts are spoken, too: whole, typed by
letters and by tokens, and in one message, and the codes of level 0 are compared.
"""

import asyncio
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

from app.engine.core import SpeechJob, SpeechResult
from app.engine.engine import SpeechEngine
from app.engine.growing import GrowingSpeech
from app.main import create_engine
from app.settings import Settings
from lab.benchmarks.harness.report import argument_parser, conclude, machine, target
from lab.benchmarks.harness.texts import sentences
from lab.benchmarks.service.tokens import tokens
from models.checkpoints.builtin import read_config
from models.config import ModelConfig
from models.text import FrontEnd, TextError, Utterance
from models.text.incremental.text import GrowingText
from samplers.knobs.params import SamplingParams

LOOKAHEADS: Final = (0, 1, 2)
_ROOT: Final = Path(__file__).resolve().parents[3]
_MOST_CHARS: Final = 100_000
_AT_ONCE: Final = 6

Read = list[Utterance] | str
"""The utterances of a text, or why it is refused."""


def all_texts() -> Iterator[str]:
    """Yield texts as people and models send them, then two sentences at a time."""
    folder = _ROOT / "lab" / "training" / "judging"
    parts = ("agents", "hard", "ordinary", "prose", "phrases", "long", "paragraphs")
    lines = [
        line for part in parts for line in (folder / f"{part}.txt").read_text("utf-8").splitlines()
    ]
    yield from lines
    yield from (folder / "chat.txt").read_text("utf-8").split("\n%\n")
    yield from sentences()
    for step in range(1, len(lines)):
        for first, second in zip(lines, lines[step:], strict=False):
            yield f"{first} {second}"


def read(front_end: FrontEnd, text: str, lookahead: int, *, is_open: bool, more: bool) -> Read:
    """Read a text, or a piece of one."""
    pieces = front_end.prepared(
        text,
        language="en",
        max_chars=_MOST_CHARS,
        lookahead=lookahead,
        is_open=is_open,
        more=more,
    )
    try:
        return next(found.utterances for found in pieces if found is not None)
    except TextError as error:
        return str(error)


def fault_of(front_end: FrontEnd, text: str, lookahead: int) -> str:
    """Return what of a typed text differs from the whole; empty if nothing does."""
    whole = read(front_end, text, lookahead, is_open=False, more=False)
    if isinstance(whole, str):
        return ""
    growing = GrowingText()
    typed: list[Utterance] = []
    begun: list[tuple[str, list[Utterance]]] = []
    known = ""

    def end(pieces: Iterable[str]) -> str:
        for piece in pieces:
            found = read(front_end, piece, lookahead, is_open=False, more=True)
            if isinstance(found, str):
                return f"refused: {found}"
            for part, earlier in begun:
                if not all(map(_is_begun, earlier, found)) or len(earlier) > len(found):
                    return f"{part!r} is no beginning of {piece!r}"
            begun.clear()
            typed.extend(one for one in found if one.phonemes or one.pause_after_s)
        return ""

    for letter in text:
        if fault := end(growing.append(letter)):
            return fault
        part = growing.open_part
        if lookahead and part and part != known and len(part.split()) > lookahead:
            known = part
            found = read(front_end, part, lookahead, is_open=True, more=True)
            if not isinstance(found, str):
                begun.append((part, found))
    if fault := end(growing.end()):
        return fault
    same = [(one.phonemes, one.versions) for one in typed] == [
        (one.phonemes, one.versions) for one in whole if one.phonemes or one.pause_after_s
    ]
    return "" if same else "other utterances"


def _is_begun(early: Utterance, late: Utterance) -> bool:
    """Return whether what was known of an utterance is the beginning of what it became."""
    return early.versions == late.versions[: len(early.versions)]


async def codes_of(engine: SpeechEngine, text: str, lookahead: int) -> list[str]:
    """Return the hashes of a text's codes of level 0: whole, by letters, by tokens, at once."""
    params = SamplingParams(seed=1, text_lookahead_words=lookahead, nar_levels=0)

    def job(number: int) -> SpeechJob:
        return SpeechJob(f"{hash(text)}-{lookahead}-{number}", text, params, played=False)

    async def typed(number: int, packets: Sequence[str]) -> SpeechResult:
        speech = GrowingSpeech(engine, job(number), max_text_chars=_MOST_CHARS, busy_timeout_s=600)

        async def write() -> None:
            for packet in packets:
                await speech.append(packet)
                await asyncio.sleep(0.002)
            speech.end()

        writing = asyncio.create_task(write())
        async for _ in speech:
            pass
        await writing
        assert speech.result is not None
        return speech.result

    whole = [chunk async for chunk in engine.submit(job(0))][-1].result
    assert whole is not None
    ways = [[*text], tokens(text), [text]]
    results = [whole, *[await typed(number, way) for number, way in enumerate(ways, 1)]]
    return [one.codes_sha256 for one in results]


async def spoken(texts: Sequence[str]) -> dict[int, int]:
    """Return how many texts have the same codes in every way, by look-ahead."""
    engine = create_engine(Settings(max_queue=200, max_wait_s=10_000, log_level="warning"))
    turns = asyncio.Semaphore(_AT_ONCE)
    async with engine:
        await engine.lifecycle.wait_ready()

        async def same(text: str, lookahead: int) -> bool:
            async with turns:
                return len(set(await codes_of(engine, text, lookahead))) == 1

        return {
            lookahead: sum(await asyncio.gather(*(same(text, lookahead) for text in texts)))
            for lookahead in LOOKAHEADS
        }


def main() -> int:
    """Compare, print the table, write the report."""
    parser = argument_parser(__doc__)
    parser.add_argument("--texts", type=int, default=1000, help="texts that are read")
    parser.add_argument("--codes", type=int, default=0, help="texts that are spoken, too")
    given = parser.parse_args()
    started = machine()
    texts = [text for text, _ in zip(dict.fromkeys(all_texts()), range(given.texts), strict=False)]
    front_end = FrontEnd(read_config(_ROOT / "weights" / "lm.json", ModelConfig))
    rows = []
    faults = []
    for lookahead in LOOKAHEADS:
        found = [(text, fault_of(front_end, text, lookahead)) for text in texts]
        faults += [(lookahead, text, fault) for text, fault in found if fault]
        rows.append({
            "look-ahead": lookahead,
            "texts": len(texts),
            "read the same": sum(not fault for _, fault in found),
        })
    for lookahead, text, fault in faults[:20]:
        print(f"look-ahead {lookahead}: {text!r}: {fault}", file=sys.stderr)
    if given.codes:
        every = max(1, len(texts) // given.codes)
        same = asyncio.run(spoken(texts[::every][: given.codes]))
        rows = [
            one | {"spoken": given.codes, "same codes": same[one["look-ahead"]]} for one in rows
        ]
    targets = [target("texts that differ", len(faults), "==", 0)]
    return conclude(rows, targets, given.out, started, {"faults": faults})


if __name__ == "__main__":
    sys.exit(main())
