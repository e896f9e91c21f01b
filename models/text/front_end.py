"""The text front end of one model: written text to utterances of phonemes, and phonemes to ids."""

from collections.abc import Generator
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from models.config import ModelConfig
from models.text.characters import check
from models.text.errors import TextError
from models.text.incremental.text import pieces
from models.text.markup import MAX_PAUSE_S, parse
from models.text.pronunciations import Entries, check_entries, pronounced
from models.text.published.languages import reference_reader
from models.text.reader import builtin_reader
from models.text.source import Rewritten
from models.text.split import Utterance, split
from models.text.ssml import refuse
from models.text.tokenizer import Tokenizer
from models.text.words import WordSpan, word_spans

MOST_WRITTEN: Final = 6
"""Limit of the normalised length, as a multiple of ``max_chars``: prices grow fivefold."""

_ENDS: Final = ",.!?;:—…\"')"


class FrontEnd:
    """Converts texts to utterances, and phonemes to ids, as one model was trained."""

    def __init__(self, config: ModelConfig) -> None:
        self._max_phonemes = config.max_phonemes
        self._tokenizer = Tokenizer(config.phoneme_ids)
        self._reader = reference_reader if config.phoneme_vocabulary else builtin_reader

    def prepared(
        self,
        text: str,
        *,
        language: str,
        max_chars: int,
        pronunciations: Entries = MappingProxyType({}),
    ) -> Generator[list[Utterance] | None]:
        """Prepare a text: yield None after each piece, and at last the utterances, in order.

        It may contain `[[phonemes]]`, `[pause:0.5s]`, `[voice:name]`, `[rate:0.8]` and the SSML of
        `models.text.ssml`. A piece is some milliseconds of work. ``pronunciations`` are what is
        spoken for words: see `models.text.pronunciations`.
        """
        reader, symbols = self._reader(language), self._tokenizer.symbols
        check(text, max_chars)
        utterances: list[Utterance] = []
        written = 0
        for piece in pieces(text):
            refuse(piece)
            stretches, inline = parse(piece, symbols, self._max_phonemes)
            for stretch in stretches:
                words = reader.clean(pronounced(Rewritten.of(stretch.text), pronunciations, inline))
                written += len(words.text)
                if written > MOST_WRITTEN * max_chars:
                    raise TextError(
                        f"the text has over {written} characters once numbers and signs are written"
                        f" out; at most {MOST_WRITTEN * max_chars} are spoken"
                    )
                spoken: list[Utterance] = []
                for one in split(
                    words,
                    inline,
                    speak=reader.phonemize,
                    max_phonemes=self._max_phonemes,
                    joint="," if reader.closes and "," in symbols else "",
                ):
                    spoken.append(replace(one, voice=stretch.voice, rate=stretch.rate))
                    yield None
                if spoken and stretch.goes_on and words.text.rstrip()[-1:] not in {*_ENDS}:
                    spoken[-1] = replace(spoken[-1], pause_after_s=0.0)  # in mid-sentence
                utterances += spoken
                if stretch.pause_after_s is not None:
                    _add_pause(utterances, stretch.pause_after_s)
            yield None
        if not any(utterance.phonemes for utterance in utterances):
            raise TextError("the text has nothing to speak: only punctuation, symbols or pauses")
        if reader.closes and "." in symbols:
            utterances = [self._closed(one) for one in utterances]
        yield utterances

    def check_entries(self, entries: Entries) -> None:
        """Do nothing if all entries of a pronunciation dictionary can be spoken."""
        check_entries(entries, self._tokenizer.symbols, self._max_phonemes)

    def words(self, utterance: Utterance, *, language: str) -> tuple[WordSpan, ...]:
        """Return the words of an utterance with their phonemes."""
        speak = self._reader(language).phonemize
        return tuple(word_spans(utterance.words, utterance.phonemes, speak))

    def lengths(self, phonemes: str) -> list[int]:
        """Return how many symbols each id of `encode` stands for; BOS and EOS stand for none."""
        return self._tokenizer.lengths(phonemes)

    def encode(self, phonemes: str) -> list[int]:
        """Return the ids of an utterance's phonemes, including BOS and EOS."""
        return self._tokenizer.encode(phonemes)

    def _closed(self, utterance: Utterance) -> Utterance:
        """Return an utterance with a full stop if its phonemes do not end in punctuation."""
        phonemes = utterance.phonemes
        if not phonemes or phonemes[-1] in _ENDS or len(phonemes) >= self._max_phonemes:
            return utterance
        return replace(utterance, phonemes=f"{phonemes}.")


def _add_pause(utterances: list[Utterance], pause_s: float) -> None:
    """Add a pause after the last utterance."""
    if not utterances:
        utterances.append(Utterance("", ""))
    pause_s += utterances[-1].pause_after_s or 0.0
    if pause_s > MAX_PAUSE_S:
        raise TextError(f"pauses in a row add up to more than {MAX_PAUSE_S:g} s")
    utterances[-1] = replace(utterances[-1], pause_after_s=pause_s)
