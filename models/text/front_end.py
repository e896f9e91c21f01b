"""The text front end of one model: its splitting, phonemes and ids."""

from collections.abc import Callable, Collection, Iterator
from typing import TypedDict

from models.config import ModelConfig
from models.text.phonemes import encode_phonemes
from models.text.prepare import prepare, prepared
from models.text.published.languages import reference_reader
from models.text.published.tokenizer import Tokenizer
from models.text.reader import Reader, builtin_reader
from models.text.split import Utterance
from models.text.words import WordSpan, word_spans


class _How(TypedDict):
    language: str
    max_chars: int
    max_phonemes: int
    symbols: Collection[str]
    reader: Reader | None


class FrontEnd:
    """Converts texts to utterances, and phonemes to ids, as one model was trained."""

    def __init__(self, config: ModelConfig) -> None:
        """Create the front end of a model.

        Args:
            config: The model's configuration.

        Raises:
            ValueError: Its vocabulary is invalid.
        """
        self._config = config
        names = config.phoneme_vocabulary
        self._tokenizer = Tokenizer(names) if names else None

    def prepare(
        self,
        text: str,
        *,
        language: str,
        max_chars: int,
        on_piece: Callable[[], None] = lambda: None,
    ) -> list[Utterance]:
        """Return the utterances of a text, in order; see `models.text.prepare.prepare`.

        Raises:
            TextError: The text cannot be spoken.
        """
        return prepare(text, on_piece=on_piece, **self._how(language, max_chars))

    def prepared(
        self, text: str, *, language: str, max_chars: int
    ) -> Iterator[list[Utterance] | None]:
        """Prepare a text, a piece at each step; see `models.text.prepare.prepared`.

        Raises:
            TextError: The text cannot be spoken.
        """
        yield from prepared(text, **self._how(language, max_chars))

    def _how(self, language: str, max_chars: int) -> "_How":
        """Return the arguments of `prepare` for this model."""
        return {
            "language": language,
            "max_chars": max_chars,
            "max_phonemes": self._config.max_phonemes,
            "symbols": self._tokenizer.symbols if self._tokenizer else self._config.phonemes,
            "reader": reference_reader(language) if self._tokenizer else None,
        }

    def words(self, utterance: Utterance, *, language: str) -> tuple[WordSpan, ...]:
        """Return the words of an utterance with their phonemes.

        Raises:
            TextError: The language is not supported.
        """
        reader = reference_reader(language) if self._tokenizer else builtin_reader(language)
        return tuple(word_spans(utterance.text, utterance.phonemes, reader.phonemize))

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
