"""The text front end of one model: its splitting, phonemes and ids."""

from collections.abc import Generator
from types import MappingProxyType

from models.config import ModelConfig
from models.text.phonemes import encode_phonemes
from models.text.prepare import TextOptions, prepared
from models.text.pronunciations import Entries, check_entries
from models.text.published.languages import reference_reader
from models.text.published.tokenizer import Tokenizer
from models.text.reader import Reader, builtin_reader
from models.text.split import Utterance
from models.text.words import WordSpan, word_spans


class FrontEnd:
    """Converts texts to utterances, and phonemes to ids, as one model was trained."""

    def __init__(self, config: ModelConfig) -> None:
        self._config = config
        names = config.phoneme_vocabulary
        self._tokenizer = Tokenizer(names) if names else None
        self._symbols = self._tokenizer.symbols if self._tokenizer else config.phonemes

    def prepared(
        self,
        text: str,
        *,
        language: str,
        max_chars: int,
        pronunciations: Entries = MappingProxyType({}),
    ) -> Generator[list[Utterance] | None]:
        """Prepare a text, a piece at each step; see `models.text.prepare.prepared`."""
        most, reader = self._config.max_phonemes, self._reader(language)
        yield from prepared(
            text, TextOptions(language, max_chars, most, self._symbols, reader, pronunciations)
        )

    def check_entries(self, entries: Entries) -> None:
        """Do nothing if all entries of a pronunciation dictionary can be spoken."""
        check_entries(entries, self._symbols, self._config.max_phonemes)

    def _reader(self, language: str) -> Reader:
        return reference_reader(language) if self._tokenizer else builtin_reader(language)

    def words(self, utterance: Utterance, *, language: str) -> tuple[WordSpan, ...]:
        """Return the words of an utterance with their phonemes."""
        speak = self._reader(language).phonemize
        return tuple(word_spans(utterance.words, utterance.phonemes, speak))

    def lengths(self, phonemes: str) -> list[int]:
        """Return how many symbols each id of `encode` stands for; BOS and EOS stand for none."""
        if self._tokenizer:
            return self._tokenizer.lengths(phonemes)
        return [0, *([1] * len(phonemes)), 0]

    def encode(self, phonemes: str) -> list[int]:
        """Return the ids of an utterance's phonemes, including BOS and EOS."""
        if self._tokenizer:
            return self._tokenizer.encode(phonemes)
        return encode_phonemes(phonemes, self._config.phoneme_ids)
