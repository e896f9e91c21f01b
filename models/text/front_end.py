"""Texts to what one model reads: how it was taught to read them, and its ids."""

from models.config import ModelConfig
from models.text.languages import reference_reader
from models.text.phonemes import encode_phonemes
from models.text.prepare import prepare
from models.text.split import Utterance
from models.text.tokenizer import Tokenizer


class FrontEnd:
    """The text side of a loaded model."""

    def __init__(self, config: ModelConfig) -> None:
        """Take what a checkpoint says.

        Raises:
            ValueError: Its vocabulary is of no known kind.
        """
        self._config = config
        names = config.phoneme_vocabulary
        self._tokenizer = Tokenizer(names) if names else None

    def prepare(self, text: str, *, language: str, max_chars: int) -> list[Utterance]:
        """Return the utterances of a text, in order.

        Raises:
            TextError: It cannot be spoken; see `models.text.prepare`.
        """
        return prepare(
            text,
            language=language,
            max_chars=max_chars,
            max_phonemes=self._config.max_phonemes,
            symbols=self._tokenizer.symbols if self._tokenizer else self._config.phonemes,
            reader=reference_reader(language) if self._tokenizer else None,
        )

    def encode(self, phonemes: str) -> list[int]:
        """Return the ids of an utterance's phonemes, with the begin and end marks."""
        if self._tokenizer:
            return self._tokenizer.encode(phonemes)
        return encode_phonemes(phonemes, self._config.phoneme_ids)
