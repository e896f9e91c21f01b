"""The text front end: written text to utterances of phonemes, and phonemes to ids (`FrontEnd`)."""

from models.text.errors import TextError
from models.text.front_end import FrontEnd, Prepared
from models.text.normalise import normalise
from models.text.phonemes import ENGLISH_SYMBOLS, phonemize
from models.text.split import Utterance, split

__all__ = [
    "ENGLISH_SYMBOLS",
    "FrontEnd",
    "Prepared",
    "TextError",
    "Utterance",
    "normalise",
    "phonemize",
    "split",
]
