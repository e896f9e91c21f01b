"""What the codec's encoder makes of recordings, as the service encodes them: kept beside a shard.

A recording lacks bands, and has noise; the service restores both before it encodes, by what it
knows of the whole recording (`models.codecs.speech_prior`). A clip is too short to tell them, so
the codes of whole recordings are kept, and clips begin where frames do.
"""

from functools import cache
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from lab.training.cache import present_model
from lab.training.speech.corpus import Corpus
from models.checkpoints.builtin import load_codec
from models.codecs.interface import Codec


@cache
def _codec(folder: Path) -> Codec:
    """Load the codec whose codes are final, once a process."""
    return load_codec(folder)


def encoded_path(folder: Path, number: int) -> Path:
    """Return where the codes of a shard lie."""
    return folder / f"{number:04d}.encoded.npy"


def encoded(corpus: Corpus, number: int) -> list[NDArray[np.int16]]:
    """Return the codes ``[T, K]`` of each recording of a shard; frame 0 begins with it."""
    path, codec = encoded_path(corpus.folder, number), _codec(present_model())
    entries = [one for one in corpus.utterances if one.shard == number]
    if not path.exists():
        found = [codec.encode(torch.from_numpy(corpus.samples(one))).numpy() for one in entries]
        partial = path.with_suffix(".partial.npy")
        np.save(partial, np.concatenate(found).astype(np.int16))
        partial.rename(path)
    frames = [-(-(one.end - one.start) // codec.config.hop) for one in entries]
    return np.split(np.load(path), np.cumsum(frames)[:-1])
