"""The text front end: written text to utterances of phonemes (`FrontEnd`), and phonemes to ids."""

from models.text.errors import TextError
from models.text.front_end import FrontEnd
from models.text.normalise import normalise
from models.text.phonemes import ENGLISH_SYMBOLS, encode_phonemes, phonemize, phonemize_many
from models.text.prepare import TextOptions
from models.text.split import Utterance, split

__all__ = [
    "ENGLISH_SYMBOLS",
    "FrontEnd",
    "TextError",
    "TextOptions",
    "Utterance",
    "encode_phonemes",
    "normalise",
    "phonemize",
    "phonemize_many",
    "split",
]
