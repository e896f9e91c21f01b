"""Text to what a model reads: words, phonemes, ids, utterances.

`prepare` is the way in. Knows nothing of audio, of weights or of requests.
"""

from models.text.errors import TextError
from models.text.front_end import FrontEnd
from models.text.normalise import normalise
from models.text.phonemes import ENGLISH_SYMBOLS, encode_phonemes, phonemize, phonemize_many
from models.text.prepare import prepare
from models.text.split import Utterance, split

__all__ = [
    "ENGLISH_SYMBOLS",
    "FrontEnd",
    "TextError",
    "Utterance",
    "encode_phonemes",
    "normalise",
    "phonemize",
    "phonemize_many",
    "prepare",
    "split",
]
