"""The language-specific part of the front end: cleaning and phonemisation."""

from collections.abc import Callable
from dataclasses import dataclass

from models.text.characters import cleaned
from models.text.errors import TextError
from models.text.normalise import normalised
from models.text.phonemes import phonemize
from models.text.source import Rewritten


@dataclass(frozen=True)
class Reader:
    """Converts text of one language to phonemes for one family of models."""

    # written text to words and punctuation only; characters that cannot be pronounced become spaces
    clean: Callable[[Rewritten], Rewritten]
    # the result of `clean` to phonemes with punctuation. Characters of the Private Use Area are
    # kept
    phonemize: Callable[[str], str]
    closes: bool = True  # whether the model expects punctuation at the end of every utterance


def clean_english(text: Rewritten) -> Rewritten:
    """Return a text as English words and punctuation."""
    return normalised(cleaned(text))


def builtin_reader(language: str) -> Reader:
    """Return the reader of a language for the built-in voice; raises TextError if it has none."""
    if language != "en":
        raise TextError(f"language {language!r} is not supported; choose from ['en']")
    return Reader(clean_english, phonemize)
