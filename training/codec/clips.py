"""Random clips of speech, as the codec is trained on."""

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from training.cache import cache_folder
from training.codec.pitch import contour, cycles, cycles_at, pitch_at, pitched_shards
from training.speech.corpus import Corpus

MEAN_SPEECH = 0.008  # mean amplitude above which a clip counts as speech
SILENCE_SHARE = 0.1  # the codec must know silence, not spend itself on it
LOUDNESS = (0.6, 1.3)


class Clips:
    """Clips of one length from several corpora, of training's shards or of those kept out."""

    def __init__(
        self, corpora: Sequence[tuple[Corpus, float]], length: int, *, held_out: bool = False
    ) -> None:
        self._shards: list[tuple[Corpus, int]] = []
        shares: list[NDArray[np.float64]] = []
        for corpus, share in corpora:
            chosen = [
                (corpus, number)
                for number in pitched_shards(corpus)
                if (number in corpus.held_out_shards) == held_out
                and number not in corpus.restored_shards
            ]
            sizes = np.array([len(one.shard_samples(number)) for one, number in chosen], float)
            self._shards += chosen
            shares.append(share * sizes / max(1.0, sizes.sum()))
        together = np.concatenate(shares)
        self._shares = together / together.sum()
        self._length = length
        self._voices: dict[int, tuple[NDArray[np.float32], NDArray[np.float32]]] = {}

    def draw(self, count: int, random: np.random.Generator) -> Tensor:
        """Return ``[count, N]`` of random loudness, before the codec's gain."""
        return self.draw_pitched(count, random, np.zeros(0, np.int64))[0]

    def draw_pitched(
        self, count: int, random: np.random.Generator, places: NDArray[np.int64]
    ) -> tuple[Tensor, Tensor]:
        """Return ``[count, N]`` as `draw`, and the voice at these samples of each.

        That is ``[2, count, P]``: its pitch in Hz, as `pitch_at` gives it, and where in its cycle
        it is, as `cycles_at` does.
        """
        clips: list[NDArray[np.float32]] = []
        voices: list[NDArray[np.float32]] = []
        while len(clips) < count:
            shard = int(random.choice(len(self._shards), p=self._shares))
            corpus, number = self._shards[shard]
            samples = corpus.shard_samples(number)
            start = int(random.integers(0, len(samples) - self._length))
            clip = np.divide(samples[start : start + self._length], 32768, dtype=np.float32)
            if np.abs(clip[::7]).mean() > MEAN_SPEECH or random.random() < SILENCE_SHARE:
                clips.append(clip * np.float32(random.uniform(*LOUDNESS)))
                if len(places):
                    contour_hz, cycle = self._voice(shard)
                    pitch_hz = pitch_at(contour_hz, start + places)
                    turned = cycles_at(cycle, contour_hz, start + places)
                    voices.append(np.stack([pitch_hz, turned]))
        voice = np.stack(voices, 1) if voices else np.zeros((2, count, 0), np.float32)
        return torch.from_numpy(np.stack(clips).astype(np.float32)), torch.from_numpy(voice)

    def _voice(self, shard: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        if shard not in self._voices:
            corpus, number = self._shards[shard]
            self._voices[shard] = contour(corpus, number), cycles(corpus, number)
        return self._voices[shard]


def clips_of(shares: Mapping[str, float], length: int, *, held_out: bool = False) -> Clips:
    """Return clips of those corpora in the cache that have a share, by name."""
    cache = cache_folder()
    corpora = [
        (Corpus(cache, name), share) for name, share in shares.items() if (cache / name).is_dir()
    ]
    return Clips(corpora, length, held_out=held_out)
