"""Text to what a model reads: words, phonemes, ids, utterances.

Knows nothing of audio, of weights or of requests.
"""

from models.text.errors import TextError
from models.text.phonemes import ENGLISH_SYMBOLS, encode_phonemes, phonemize, phonemize_many

__all__ = ["ENGLISH_SYMBOLS", "TextError", "encode_phonemes", "phonemize", "phonemize_many"]
