"""Random clips of speech, as the codec is trained on."""

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from training.cache import cache_folder
from training.speech.corpus import Corpus

MEAN_SPEECH = 0.008  # mean amplitude above which a clip counts as speech
SILENCE_SHARE = 0.1  # the codec must know silence, not spend itself on it
LOUDNESS = (0.6, 1.3)


class Clips:
    """Clips of one length from several corpora, of training's shards or of those kept out."""

    def __init__(
        self, corpora: Sequence[tuple[Corpus, float]], length: int, *, held_out: bool = False
    ) -> None:
        """Take corpora with the share of clips that each gives, and the length in samples."""
        self._samples: list[NDArray[np.int16]] = []
        shares: list[NDArray[np.float64]] = []
        for corpus, share in corpora:
            shards = [
                number for number in corpus.shards if (number in corpus.held_out_shards) == held_out
            ]
            samples = [corpus.shard_samples(number) for number in shards]
            sizes = np.array([len(shard) for shard in samples], dtype=np.float64)
            self._samples += samples
            shares.append(share * sizes / sizes.sum())
        self._shares = np.concatenate(shares) / sum(share for _, share in corpora)
        self._length = length

    def draw(self, count: int, random: np.random.Generator) -> Tensor:
        """Return ``[count, N]`` of random loudness, before the codec's gain."""
        clips: list[NDArray[np.float32]] = []
        while len(clips) < count:
            samples = self._samples[random.choice(len(self._samples), p=self._shares)]
            start = int(random.integers(0, len(samples) - self._length))
            clip = np.divide(samples[start : start + self._length], 32768, dtype=np.float32)
            if np.abs(clip[::7]).mean() > MEAN_SPEECH or random.random() < SILENCE_SHARE:
                clips.append(clip * np.float32(random.uniform(*LOUDNESS)))
        return torch.from_numpy(np.stack(clips).astype(np.float32))


def clips_of(shares: Mapping[str, float], length: int, *, held_out: bool = False) -> Clips:
    """Return clips of those corpora in the cache that have a share, by name."""
    cache = cache_folder()
    corpora = [
        (Corpus(cache, name), share) for name, share in shares.items() if (cache / name).is_dir()
    ]
    return Clips(corpora, length, held_out=held_out)
