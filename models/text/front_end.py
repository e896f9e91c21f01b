"""The text front end of one model: written text to utterances of phonemes, and phonemes to ids."""

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from types import MappingProxyType
from typing import Final

from models.config import ModelConfig, ReaderName
from models.text.characters import check_text, described, left_out
from models.text.errors import TextError
from models.text.growth import Readings
from models.text.incremental.text import pieces
from models.text.markup import MAX_PAUSE_S, parse_markup
from models.text.pronunciations import Entries, check_entries, pronounced
from models.text.published.languages import plain_reader, reference_reader
from models.text.published.tags import name_of
from models.text.published.vallex import parity_reader, vallex_reader
from models.text.reader import Reader, builtin_reader
from models.text.source import Rewritten, TooMuchWrittenError
from models.text.split import Growing, Utterance, split
from models.text.ssml import refuse
from models.text.tokenizer import Tokenizer
from models.text.words import WordSpan, word_spans

MOST_WRITTEN: Final = 6
"""Limit of the normalised length, as a multiple of ``max_chars``: prices grow fivefold."""

MOST_LISTED: Final = 50
"""Of what is left out of a text, how much is told."""

_READERS: Final[dict[ReaderName, Callable[[str], Reader]]] = {
    "builtin": builtin_reader,
    "espeak": reference_reader,
    "lifeiteng": plain_reader,
    "vall_e_x": vallex_reader,
    "vall_e_x_reference": parity_reader,
}

_ENDS: Final = ",.!?;:—…\"')"


@dataclass(frozen=True, slots=True)
class Prepared:
    """A text as utterances, and what of it none of them speaks."""

    utterances: list[Utterance]
    left_out: tuple[str, ...] = ()  # as it was written, each but once


class FrontEnd:
    """Converts texts to utterances, and phonemes to ids, as one model was trained."""

    def __init__(self, config: ModelConfig) -> None:
        self._max_phonemes = config.max_phonemes
        self._last_marks = config.last_marks
        self._config = config
        self._tokenizer = Tokenizer(
            config.phoneme_ids, marked=config.text_marks, longest=config.reader == "lifeiteng"
        )
        usual: ReaderName = "espeak" if config.phoneme_vocabulary else "builtin"
        self._reader = _READERS[config.reader or usual]
        self._readings: dict[str, Readings] = {}  # by language, of texts that grow

    def prepared(
        self,
        text: str,
        *,
        language: str,
        max_chars: int,
        pronunciations: Entries = MappingProxyType({}),
        strict: bool = False,
        more: bool = False,
        thoughts: bool = False,
        lookahead: int = 0,
        is_open: bool = False,
    ) -> Generator[Prepared | None]:
        """Prepare a text: yield None after each piece, and at last the utterances, in order.

        It may contain `[[phonemes]]`, `[pause:0.5s]`, `[voice:name]`, `[rate:0.8]` and the SSML of
        `models.text.ssml`. A piece is some milliseconds of work. ``pronunciations`` are what is
        spoken for words: see `models.text.pronunciations`. A text without a word is refused unless
        it is a part of one with ``more``: then it is one utterance without phonemes. What no voice
        reads is left out, or refused if ``strict``; ``thoughts`` has `<think>` parts read. With
        a ``lookahead``, a number of words, utterances have `versions`; of a text that ``is_open``
        the last may lack its end, and there may be none.
        """
        reader = self._reader(language)
        symbols = self._tokenizer.symbols
        check_text(text, max_chars)
        utterances: list[Utterance] = []
        unread: dict[str, None] = {}
        most_chars = MOST_WRITTEN * max_chars
        # A piece of a growing text comes alone and is cut once more: so is each of a whole text.
        cut = partial(pieces, thoughts=thoughts)
        growing = None
        if lookahead:
            readings = self._readings.setdefault(language, Readings())
            growing = Growing(lookahead, is_open, readings)
        for piece in chain.from_iterable(map(cut, cut(text))):
            refuse(piece)
            stretches, inline = parse_markup(piece, symbols, self._max_phonemes)
            for stretch in stretches:
                asked = Rewritten.of(stretch.text, most_chars)
                try:
                    words = reader.clean(pronounced(asked, pronunciations, inline))
                except TooMuchWrittenError:
                    raise TextError(
                        "the text has too many characters once numbers and signs are written out:"
                        f" at most {MOST_WRITTEN * max_chars} are spoken"
                    ) from None
                unread |= dict.fromkeys(left_out(words))
                if unread and strict:
                    raise TextError(_refusal(list(unread), language))
                most_chars -= len(words.text)
                spoken: list[Utterance] = []
                for one in split(
                    words,
                    inline,
                    speak=reader.phonemize,
                    max_phonemes=self._max_phonemes,
                    joint="," if reader.closes and "," in symbols else "",
                    growing=growing,
                ):
                    spoken.append(replace(one, voice=stretch.voice, rate=stretch.rate))
                    yield None
                if spoken and stretch.goes_on and words.text.rstrip()[-1:] not in {*_ENDS}:
                    spoken[-1] = replace(spoken[-1], pause_after_s=0.0)  # in mid-sentence
                utterances += spoken
                if stretch.pause_after_s is not None:
                    _add_pause(utterances, stretch.pause_after_s)
            yield None
        listed = tuple(unread)[:MOST_LISTED]
        if not more and not any(utterance.phonemes for utterance in utterances):
            raise TextError(_nothing_to_speak(listed, language))
        if reader.closes and "." in symbols:
            utterances = [self._closed(one) if one.whole else one for one in utterances]
        if is_open:
            yield Prepared(utterances, listed)
            return
        yield Prepared(utterances or [Utterance("", "", pause_after_s=0.0)], listed)

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

    def encode(self, phonemes: str, language: str | None = None) -> list[int]:
        """Return the ids of an utterance's phonemes, including BOS and EOS if the model has them.

        ``language`` is that of the text, the first by default: some models have ids of each.
        """
        ids = self._tokenizer.encode(phonemes)
        if language is None or not self._config.phonemes_by_language:
            return ids
        first = self._config.phoneme_rows * self._config.languages.index(language)
        return [first + one for one in ids]

    def _closed(self, utterance: Utterance) -> Utterance:
        """Return an utterance with one of the last marks that the model knows, or a full stop."""
        phonemes = utterance.phonemes
        spoken = phonemes.rstrip(f" {_ENDS}")
        marks = phonemes[len(spoken) :]
        if not spoken or (marks and not self._last_marks) or len(spoken) >= self._max_phonemes:
            return utterance
        last = next((mark for mark in marks if mark in self._last_marks), ".")
        closed = f"{spoken}{last}"
        *versions, whole = utterance.versions or (None,)
        if whole is not None:
            versions.append(whole._replace(phonemes=closed))
        return replace(utterance, phonemes=closed, versions=tuple(versions))


def _nothing_to_speak(unread: Sequence[str], language: str) -> str:
    """Return why a text has no utterance."""
    if any(part[0].isalpha() for part in unread):
        return _refusal(unread, language)
    return "the text has nothing to speak: only punctuation, symbols or pauses"


def _refusal(unread: Sequence[str], language: str) -> str:
    """Return why a text is refused with what no voice reads."""
    letters = [part for part in unread if part[0].isalpha()]
    if not letters:
        return f"there are no words for {described(unread)}: leave it out, or write what to speak"
    return (
        f"this voice reads {name_of(language)} only, not {described(letters)}: write it in the"
        " letters of that language, or load a model of the text's (docs/public-checkpoints.md)"
    )


def _add_pause(utterances: list[Utterance], pause_s: float) -> None:
    """Add a pause after the last utterance."""
    if not utterances:
        utterances.append(Utterance("", ""))
    pause_s += utterances[-1].pause_after_s or 0.0
    if pause_s > MAX_PAUSE_S:
        raise TextError(f"pauses in a row add up to more than {MAX_PAUSE_S:g} s")
    utterances[-1] = replace(utterances[-1], pause_after_s=pause_s)
