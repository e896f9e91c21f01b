"""The entry point of the text front end: a written text to utterances of phonemes."""

from collections.abc import Collection, Iterator
from dataclasses import replace
from types import MappingProxyType
from typing import Final, NamedTuple

from models.text.characters import check
from models.text.errors import TextError
from models.text.incremental.text import pieces
from models.text.markup import MAX_PAUSE_S, parse
from models.text.phonemes import ENGLISH_SYMBOLS
from models.text.pronunciations import Entries, pronounced
from models.text.reader import Reader, builtin_reader
from models.text.source import Rewritten
from models.text.split import Utterance, split
from models.text.ssml import refuse

MOST_WRITTEN = 6
"""Limit of the normalised length, as a multiple of `max_chars`: prices grow fivefold."""

ENDS = ",.!?;:—…\"')"


class TextOptions(NamedTuple):
    """How a text is read."""

    language: str = "en"
    max_chars: int = 4096
    max_phonemes: int = 250
    # phonemes that the model knows, allowed in inline phonemes
    symbols: Collection[str] = ENGLISH_SYMBOLS
    reader: Reader | None = None  # converts words to phonemes; None is that of the built-in voice
    # what is spoken for words; see `models.text.pronunciations`
    pronunciations: Entries = MappingProxyType({})


AS_BUILT_IN: Final = TextOptions()


def prepared(text: str, options: TextOptions = AS_BUILT_IN) -> Iterator[list[Utterance] | None]:
    """Prepare a text: yield None after each piece, and at last the utterances, in order.

    It may contain `[[phonemes]]`, `[pause:0.5s]`, `[voice:name]`, `[rate:0.8]` and the SSML of
    `models.text.ssml`. A piece is some milliseconds of work.
    """
    symbols, max_chars, max_phonemes = options.symbols, options.max_chars, options.max_phonemes
    reader = options.reader or builtin_reader(options.language)
    check(text, max_chars)
    utterances: list[Utterance] = []
    written = 0
    for piece in pieces(text):
        refuse(piece)
        stretches, inline = parse(piece, symbols, max_phonemes)
        for stretch in stretches:
            words = reader.clean(
                pronounced(Rewritten.of(stretch.text), options.pronunciations, inline)
            )
            written += len(words.text)
            if written > MOST_WRITTEN * max_chars:
                raise TextError(
                    f"the text has over {written} characters once numbers and signs are written"
                    f" out; at most {MOST_WRITTEN * max_chars} are spoken"
                )
            spoken = [
                replace(one, voice=stretch.voice, rate=stretch.rate)
                for one in split(
                    words,
                    inline,
                    speak=reader.phonemize,
                    max_phonemes=max_phonemes,
                    joint="," if reader.closes and "," in symbols else "",
                )
            ]
            if spoken and stretch.goes_on and words.text.rstrip()[-1:] not in {*ENDS, ")"}:
                spoken[-1] = replace(spoken[-1], pause_after_s=0.0)  # in the middle of a sentence
            utterances += spoken
            if stretch.pause_after_s is not None:
                _add_pause(utterances, stretch.pause_after_s)
        yield None
    if not any(utterance.phonemes for utterance in utterances):
        raise TextError("the text has nothing to speak: only punctuation, symbols or pauses")
    yield [
        replace(utterance, phonemes=_add_full_stop(utterance.phonemes, max_phonemes))
        if reader.closes and "." in symbols
        else utterance
        for utterance in utterances
    ]


def _add_pause(utterances: list[Utterance], pause_s: float) -> None:
    """Add a pause after the last utterance."""
    if not utterances:
        utterances.append(Utterance("", ""))
    pause_s += utterances[-1].pause_after_s or 0.0
    if pause_s > MAX_PAUSE_S:
        raise TextError(f"pauses in a row add up to more than {MAX_PAUSE_S:g} s")
    utterances[-1] = replace(utterances[-1], pause_after_s=pause_s)


def _add_full_stop(phonemes: str, max_phonemes: int) -> str:
    """Append a full stop to phonemes that do not end in punctuation."""
    open_ended = phonemes and phonemes[-1] not in ENDS and len(phonemes) < max_phonemes
    return f"{phonemes}." if open_ended else phonemes
