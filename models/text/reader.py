"""How the texts of one language become phonemes: what `prepare` asks of whoever reads."""

from collections.abc import Callable
from dataclasses import dataclass

from models.text.characters import clean
from models.text.normalise import normalise
from models.text.phonemes import phonemize, require_language


@dataclass(frozen=True)
class Reader:
    """One language as one family of models reads it.

    Attributes:
        clean: A text as its author wrote it to words, punctuation and nothing else; raises
            TextError for characters that cannot be read.
        phonemize: What `clean` gave to phonemes, with the punctuation that the model knows. A
            character of the Private Use Area passes.
        closes: Whether the model expects a mark at the end of every utterance.
    """

    clean: Callable[[str], str]
    phonemize: Callable[[str], str]
    closes: bool = True


def builtin_reader(language: str) -> Reader:
    """Return how the built-in voice reads a language.

    Raises:
        TextError: It does not.
    """
    require_language(language)
    return Reader(lambda text: normalise(clean(text)), lambda text: phonemize(text, language))
