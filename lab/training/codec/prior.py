"""Learn what clean speech looks like to the codec, so that it can restore what recordings lack.

    python -m lab.training.codec.prior

A Gaussian over single frames of log-mel spectra (`models.codecs.speech_prior`), of some utterances
of every corpus in the cache, at levels as uploads have them. It takes seconds, and lies beside the
codec in `next` of the cache.
"""

import argparse
import math

import numpy as np
import torch
from torch import Tensor

from lab.training.cache import NEXT_MODEL, cache_folder, present_model
from lab.training.lm.codes import SOURCES
from lab.training.speech.corpus import Corpus
from models.checkpoints.builtin import load_codec, save_prior
from models.codecs.spectral import MAGNITUDE_FLOOR, SpectralCodec
from models.codecs.speech_prior import SpeechPrior

UTTERANCES = {"speech": 60, "kokoro": 200, "crowd": 500, "bent": 300}
FRAMES_EACH = 60
LEVEL_DB = 1.0  # standard deviation: recordings of one loudness differ by so much in speech


def fitted(frames: Tensor) -> SpeechPrior:
    """Return the prior of frames ``[N, B]`` of logarithms of mel magnitudes."""
    frames = frames.double()
    return SpeechPrior(frames.mean(0), torch.cov(frames.T), math.log(MAGNITUDE_FLOOR))


def clean_frames(codec: SpectralCodec, corpus: Corpus, count: int, seed: int = 0) -> Tensor:
    """Return some frames ``[N, B]`` of at most ``count`` utterances of a corpus."""
    random = np.random.default_rng(seed)
    chosen = random.permutation(len(corpus.utterances))[:count]
    found = []
    for place in chosen:
        gain = np.float32(10 ** (random.normal(0, LEVEL_DB) / 20))
        samples = torch.from_numpy(corpus.samples(corpus.utterances[place]) * gain)
        spectra = codec.log_mel(samples[None])[0]
        found.append(spectra[random.permutation(len(spectra))[:FRAMES_EACH]])
    return torch.cat(found)


def main() -> None:
    """Fit the prior of the present codec and write it."""
    argparse.ArgumentParser(description=main.__doc__).parse_args()
    codec, cache = load_codec(present_model()), cache_folder()
    assert isinstance(codec, SpectralCodec)
    frames = [
        clean_frames(codec, Corpus(cache, source), UTTERANCES[source])
        for source in SOURCES
        if source in UTTERANCES and any((cache / source).glob("*.jsonl"))
    ]
    NEXT_MODEL.mkdir(parents=True, exist_ok=True)
    save_prior(NEXT_MODEL, fitted(torch.cat(frames)))
    print(f"{sum(map(len, frames))} frames")


if __name__ == "__main__":
    main()
