"""Judge the voice on texts as people and language models send them.

    python -m lab.training.judging.texts prose chat --voices heart emma
    python -m lab.training.judging.texts ordinary --voices heart emma george --seeds 3
    python -m lab.training.judging.texts marks long --seeds 2 --json texts.json

Whisper often hides what is said twice, and an alignment may stretch a word over it, so both judge:
words that are added, sound that goes on behind the last word, and speech that goes back in its
text. Whisper takes most of the time; with `--by-alignment` it hears nothing. Short takes are heard
together, with silence between. One of which words are lost or added is heard again by itself, which
counts. A row a part and voice goes to stdout, every take to a JSON file.
"""

import argparse
import json
import multiprocessing
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray

from app.engine.core import SpeechJob
from app.settings import Settings
from lab.training.judging.judges import (
    HEARING_RATE_HZ,
    Whisper,
    edits_of,
    in_words,
    resample,
    whisper_folder,
)
from lab.training.judging.takes import spoken_together
from samplers.knobs.params import SamplingParams

FOLDER: Final = Path(__file__).parent
MARKS: Final = (
    ".", "!", "?", ",", ";", ":", "…", "...", " —", " -", ")", '"', "'", '."', ',"', "?!", "!!",
    ".)",
)  # fmt: skip
"""Marks that can stand last, of the part `marks`."""
LONGEST_AFTER_S: Final = 0.4
"""Sound behind the last word from which a take goes on for too long."""
_LONGEST_CLIP_S, _BETWEEN_S = 28.0, 0.6
_TEXTS: Final = 60
"""Texts of a task: the more, the longer all rows of its batch are used."""


@dataclass(frozen=True)
class JudgedTake:
    """One take of a text: how it ended, and what was heard."""

    part: str
    text: str
    voice: str | None
    seed: int
    seconds: float
    finish_reasons: tuple[str, ...]
    backtracks: tuple[str, ...]
    after_s: float
    """The most of sound behind the last word of a piece; 0 where no alignment was followed."""
    returns: bool
    """Whether speech goes back in its text, by the alignment."""
    words: int | None = None
    """None if it was not heard."""
    wrong: int = 0
    lost: int = 0
    added: int = 0


def texts_of(part: str) -> list[str]:
    """Return the texts of a part: `prose`, `chat`, `ordinary`, `long`, `agents`, `marks`."""
    if part == "chat":
        return [one.strip() for one in (FOLDER / "chat.txt").read_text("utf-8").split("\n%\n")]
    name = "phrases" if part == "marks" else part
    lines = (FOLDER / f"{name}.txt").read_text("utf-8").splitlines()
    if part != "marks":
        return lines
    return [f"{line}{mark}" for line in lines for mark in MARKS]


def joined(lengths: Sequence[int]) -> Iterator[slice]:
    """Yield which of some takes of ``lengths`` samples are heard together."""
    first, total = 0, 0
    for number, length in enumerate(lengths):
        if total and total + length > _LONGEST_CLIP_S * HEARING_RATE_HZ:
            yield slice(first, number)
            first, total = number, 0
        total += length + round(_BETWEEN_S * HEARING_RATE_HZ)
    if first < len(lengths):
        yield slice(first, len(lengths))


@cache
def _speaker(weights: str) -> Any:
    from app.engine.backend.synthesizer import Synthesizer

    return Synthesizer.load(Settings(model=weights, threads=1) if weights else Settings(threads=1))


@cache
def _ears() -> Whisper:
    return Whisper(whisper_folder("tiny.en"), 1)


@dataclass(frozen=True)
class Task:
    """Some texts of a part, spoken with one voice and seed."""

    part: str
    texts: Sequence[str]
    voice: str | None
    seed: int
    weights: str
    """A folder; empty: the built-in model."""
    knobs: dict[str, Any]
    hears: bool
    """Whether Whisper hears the takes."""


def judge(task: Task) -> list[JudgedTake]:
    """Speak some texts of a part, and hear them."""
    torch.set_num_threads(1)
    speaker = _speaker(task.weights)
    params = SamplingParams.model_validate({"seed": task.seed, **task.knobs})
    plans = [
        speaker.planner.plan(SpeechJob(f"judge-{number}", text, params, task.voice))
        for number, text in enumerate(task.texts)
    ]
    takes: dict[int, JudgedTake] = {}
    sounds: dict[int, NDArray[np.float32]] = {}
    for number, take in spoken_together(speaker, plans):
        pieces = [one for one in take.result.utterances if len(one.codes)]
        sounds[number] = resample(take.samples, take.sample_rate_hz, HEARING_RATE_HZ)
        takes[number] = JudgedTake(
            task.part,
            task.texts[number],
            task.voice,
            task.seed,
            round(take.result.audio_s, 3),
            tuple(one.finish_reason for one in pieces),
            tuple(back.cause for one in pieces for back in one.backtracks),
            max((one.sound_after_s or 0.0 for one in pieces), default=0.0),
            take.returns,
        )
    numbers = range(len(plans))
    judged = [takes[number] for number in numbers]
    return _heard(judged, [sounds[number] for number in numbers]) if task.hears else judged


def _heard(takes: Sequence[JudgedTake], sounds: Sequence[NDArray[np.float32]]) -> list[JudgedTake]:
    """Return takes with what Whisper hears of their sounds."""
    silence = np.zeros(round(_BETWEEN_S * HEARING_RATE_HZ), np.float32)
    judged: list[JudgedTake] = []
    for clip in joined([len(sound) for sound in sounds]):
        sound = np.concatenate([part for one in sounds[clip] for part in (one, silence)])
        said = [in_words(take.text) for take in takes[clip]]
        found = edits_of(said, in_words(_ears().hear(sound)))
        for take, one, alone in zip(takes[clip], found, sounds[clip], strict=True):
            heard = one
            if one.lost or one.added:  # together with others Whisper leaves out, and makes up
                words = in_words(_ears().hear(np.concatenate([silence, alone, silence])))
                (heard,) = edits_of([in_words(take.text)], words)
            judged.append(replace(take, **heard._asdict()))
    return judged


def summary(takes: Sequence[JudgedTake]) -> str:
    """Return a row of the table: takes of one part and voice."""
    heard = [take for take in takes if take.words is not None]
    words = max(1, sum(take.words or 0 for take in heard))
    errors = sum(take.wrong + take.lost + take.added for take in heard)
    by_ear = (
        f"{100 * errors / words:.1f} %",
        sum(take.wrong for take in heard),
        sum(take.lost for take in heard),
        sum(take.added for take in heard),
        sum(take.added > 0 for take in heard),
    )
    figures = (
        takes[0].part,
        takes[0].voice,
        len(takes),
        *(by_ear if heard else "-" * len(by_ear)),
        sum(take.after_s > LONGEST_AFTER_S for take in takes),
        sum(take.returns for take in takes),
        sum("aligned" in take.finish_reasons for take in takes),
        sum("repeat" in take.backtracks for take in takes),
        f"{sum(take.seconds for take in takes):.0f}",
    )
    return "| " + " | ".join(map(str, figures)) + " |"


HEAD: Final = (
    "| part | voice | takes | WER | words wrong | lost | added | takes with words added"
    " | sound after > 0.4 s | goes back | ended by alignment | taken back | seconds |\n"
    "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |"
)


def main() -> None:
    """Speak, hear and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parts = ("prose", "chat", "ordinary", "marks", "long", "agents")
    parser.add_argument("parts", nargs="*", choices=parts)
    parser.add_argument("--lines", type=Path, help="a file of texts, one a line, as one more part")
    parser.add_argument("--voices", nargs="+", default=["heart"])
    parser.add_argument("--seeds", type=int, default=1, help="so many, from 1 on")
    parser.add_argument("--every", type=int, default=1, help="take every so many texts alone")
    parser.add_argument("--weights", default="", help="a folder; empty: the built-in voice")
    parser.add_argument("--knobs", type=json.loads, default={}, help="of the request, as JSON")
    parser.add_argument("--by-alignment", action="store_true", help="without Whisper")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    tasks = []
    if args.lines is not None:
        given = args.lines.read_text("utf-8").splitlines()
    for part in [*args.parts, *(["lines"] if args.lines else [])]:
        texts = (given if part == "lines" else texts_of(part))[:: args.every]
        some = [texts[start : start + _TEXTS] for start in range(0, len(texts), _TEXTS)]
        tasks += [
            Task(part, few, voice, seed, args.weights, args.knobs, not args.by_alignment)
            for voice in args.voices
            for seed in range(1, args.seeds + 1)
            for few in some
        ]
    with multiprocessing.get_context("spawn").Pool(args.workers) as pool:
        takes = [take for found in pool.imap_unordered(judge, tasks) for take in found]
    print(HEAD)
    for part in dict.fromkeys(take.part for take in takes):
        for voice in args.voices:
            print(summary([one for one in takes if (one.part, one.voice) == (part, voice)]))
    if args.json:
        args.json.write_text(json.dumps([asdict(take) for take in takes], indent=1))


if __name__ == "__main__":
    main()
