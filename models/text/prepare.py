"""The way in: a text as somebody wrote it to utterances a model can read."""

from collections.abc import Collection
from dataclasses import replace

from models.text.characters import check
from models.text.errors import TextError
from models.text.incremental.text import pieces
from models.text.markup import MAX_PAUSE_S, parse
from models.text.phonemes import ENGLISH_SYMBOLS
from models.text.reader import Reader, builtin_reader
from models.text.split import Utterance, split

MOST_WRITTEN = 6
"""How many times as long as the longest text its words may be: prices become five times as long."""

ENDS = ",.!?;:—…\"')"


def prepare(
    text: str,
    *,
    language: str = "en",
    max_chars: int = 4096,
    max_phonemes: int = 250,
    symbols: Collection[str] = ENGLISH_SYMBOLS,
    reader: Reader | None = None,
) -> list[Utterance]:
    """Return the utterances of a text, in order: those of its pieces, one after the other.

    Args:
        text: As its author wrote it; may hold `[[phonemes]]` and `[pause:0.5s]`.
        language: The language of the text.
        max_chars: The longest text accepted.
        max_phonemes: The longest utterance made.
        symbols: What the model reads; inline phonemes may be made of these.
        reader: How the model reads the language; None is the built-in voice's way.

    Raises:
        TextError: the text is empty, blank, too long, without anything to speak, in a script or
            language that no voice reads, or holds control characters, surrogates or malformed
            markup.
    """
    reader = reader or builtin_reader(language)
    check(text, max_chars)
    utterances: list[Utterance] = []
    written = 0
    for piece in pieces(text):
        stretches, inline = parse(piece, symbols, max_phonemes)
        for stretch in stretches:
            words = reader.clean(stretch.text)
            written += len(words)
            if written > MOST_WRITTEN * max_chars:
                raise TextError(
                    f"the text has over {written} characters once numbers and signs are written"
                    f" out; at most {MOST_WRITTEN * max_chars} are spoken"
                )
            utterances += split(words, inline, speak=reader.phonemize, max_phonemes=max_phonemes)
            if stretch.pause_after_s is not None:
                _pause(utterances, stretch.pause_after_s)
    if not any(utterance.phonemes for utterance in utterances):
        raise TextError("the text has nothing to speak: only punctuation, symbols or pauses")
    return [
        replace(utterance, phonemes=_closed(utterance.phonemes, max_phonemes))
        if reader.closes and "." in symbols
        else utterance
        for utterance in utterances
    ]


def _pause(utterances: list[Utterance], pause_s: float) -> None:
    """Let a pause follow the last utterance.

    Raises:
        TextError: It is too long, with the pauses before it.
    """
    if not utterances:
        utterances.append(Utterance("", ""))
    pause_s += utterances[-1].pause_after_s or 0.0
    if pause_s > MAX_PAUSE_S:
        raise TextError(f"pauses in a row add up to more than {MAX_PAUSE_S:g} s")
    utterances[-1] = replace(utterances[-1], pause_after_s=pause_s)


def _closed(phonemes: str, max_phonemes: int) -> str:
    """Return phonemes with a full stop where no mark ends them.

    Whoever types "Hello" means a sentence. Models were trained on sentences: without an end they
    babble on.
    """
    open_ended = phonemes and phonemes[-1] not in ENDS and len(phonemes) < max_phonemes
    return f"{phonemes}." if open_ended else phonemes
