"""Random clips of speech, as the codec is trained on.

A clip of a corpus of teachers begins anywhere in a shard. Of people (`BY_SPEAKER`) every one is
heard as often as another, however long they spoke, and a clip lies within one recording and begins
where a frame does, so that its codes are those of the whole recording
(`lab.training.codec.encoded`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lab.training.cache import cache_folder
from lab.training.codec.encoded import encoded
from lab.training.codec.pitch import (
    BY_SPEAKER,
    contour,
    cycles,
    cycles_at,
    pitch_at,
    pitched_shards,
)
from lab.training.speech.corpus import SAMPLE_RATE_HZ, Corpus, CorpusEntry

MEAN_SPEECH = 0.008  # mean amplitude above which a clip counts as speech
SILENCE_SHARE = 0.1  # the codec must know silence, not spend itself on it
LOUDNESS = (0.6, 1.3)
CLEAN_DB: Final = 30.0  # of speech over pauses: a decoder is not to learn the noise of rooms
UNTOLD_CODE: Final = -1

Floats = NDArray[np.float32]


@dataclass(frozen=True)
class DrawnClips:
    """Clips and what is known of each frame, or -1 where it is not known."""

    samples: Tensor
    """``[B, N]`` before the codec's gain, of random loudness where codes are not known."""
    pitch_hz: Tensor
    """``[B, T]``, as `pitch_at` gives it."""
    cycles: Tensor
    """``[B, T]``, as `cycles_at` gives them."""
    codes: Tensor
    """``[B, T, K]`` int64, of recordings alone; where all are unknown, ``[B, T, 0]``."""
    bands_hz: Tensor
    """``[B]``: above it a recording has nothing, whatever was said."""

    def to(self, device: torch.device) -> "DrawnClips":
        """Return the same on a device."""
        return DrawnClips(*(getattr(self, name).to(device) for name in self.__annotations__))


@dataclass(frozen=True)
class _Place:
    """Where a clip lies."""

    shard: int
    start: int
    entry: CorpusEntry | None = None


class Clips:
    """Clips of ``frames`` from several corpora, of training's shards or of those kept out.

    A frame covers ``window`` samples and begins ``hop`` behind the one before it.
    """

    def __init__(
        self,
        corpora: Sequence[tuple[Corpus, float]],
        frames: int,
        hop: int,
        window: int,
        *,
        held_out: bool = False,
    ) -> None:
        self._shards: list[tuple[Corpus, int]] = []
        self._frames, self._hop, self._window = frames, hop, window
        self._length = (frames - 1) * hop + window
        shares: list[NDArray[np.float64]] = []
        self._entries: dict[int, tuple[list[CorpusEntry], NDArray[np.float64]]] = {}
        for corpus, share in corpora:
            chosen = [
                (corpus, number)
                for number in pitched_shards(corpus)
                if (number in corpus.held_out_shards) == held_out
                and number not in corpus.restored_shards
            ]
            sizes = np.array([len(one.shard_samples(number)) for one, number in chosen], float)
            if corpus.folder.name in BY_SPEAKER:
                sizes = self._choose_entries(chosen)
            self._shards += chosen
            shares.append(share * sizes / max(1.0, sizes.sum()))
        together = np.concatenate(shares)
        self._shares = together / together.sum()
        self._voices: dict[int, tuple[Floats, Floats]] = {}
        self._codes: dict[int, list[NDArray[np.int16]]] = {}

    def _choose_entries(self, shards: Sequence[tuple[Corpus, int]]) -> NDArray[np.float64]:
        """Note the clean recordings of shards about to be added; tell how many people each has."""
        weights = []
        for place, (corpus, number) in enumerate(shards, len(self._shards)):
            entries = [
                one
                for one in corpus.utterances
                if one.shard == number
                and one.snr_db >= CLEAN_DB
                and one.end - one.start >= self._length + self._hop
            ]
            totals: dict[str, int] = {}
            for one in entries:
                totals[one.speaker] = totals.get(one.speaker, 0) + one.end - one.start
            own = np.array([(one.end - one.start) / totals[one.speaker] for one in entries])
            self._entries[place] = entries, own / max(1e-9, own.sum())
            weights.append(float(len(totals)))
        return np.array(weights)

    def draw(self, count: int, random: np.random.Generator) -> DrawnClips:
        """Return ``count`` clips."""
        places: list[_Place] = []
        samples: list[Floats] = []
        while len(samples) < count:
            place, clip = self._sampled(random)
            if np.abs(clip[::7]).mean() > MEAN_SPEECH or random.random() < SILENCE_SHARE:
                places.append(place)
                loudness = 1.0 if place.entry else random.uniform(*LOUDNESS)  # codes tell it
                samples.append(clip * np.float32(loudness))
        middles = np.arange(self._frames) * self._hop + self._window // 2
        pitch, turned = [], []
        for place in places:
            contour_hz, cycle = self._voice(place.shard)
            pitch.append(pitch_at(contour_hz, place.start + middles))
            turned.append(cycles_at(cycle, contour_hz, place.start + middles))
        return DrawnClips(
            torch.from_numpy(np.stack(samples).astype(np.float32)),
            torch.from_numpy(np.stack(pitch)),
            torch.from_numpy(np.stack(turned)),
            self._coded(places),
            torch.tensor([
                one.entry.band_hz if one.entry else SAMPLE_RATE_HZ / 2 for one in places
            ]),
        )

    def _sampled(self, random: np.random.Generator) -> tuple[_Place, Floats]:
        """Return a place and the samples ``[N]`` that lie there."""
        shard = int(random.choice(len(self._shards), p=self._shares))
        corpus, number = self._shards[shard]
        samples, entry = corpus.shard_samples(number), None
        if shard in self._entries:
            entries, weights = self._entries[shard]
            entry = entries[int(random.choice(len(entries), p=weights))]
            frames = (entry.end - entry.start - self._length) // self._hop
            start = entry.start + self._hop * int(random.integers(0, frames + 1))
        else:
            start = int(random.integers(0, len(samples) - self._length))
        clip = np.divide(samples[start : start + self._length], 32768, dtype=np.float32)
        return _Place(shard, start, entry), clip

    def _coded(self, places: Sequence[_Place]) -> Tensor:
        """Return the codes ``[B, T, K]`` of clips of recordings, `UNTOLD_CODE` of all others."""
        known = {
            number: self._codes_of(place)
            for number, place in enumerate(places)
            if place.entry is not None
        }
        levels = max((codes.shape[1] for codes in known.values()), default=0)
        found = np.full((len(places), self._frames, levels), UNTOLD_CODE, np.int64)
        for number, codes in known.items():
            found[number] = codes
        return torch.from_numpy(found)

    def _codes_of(self, place: _Place) -> NDArray[np.int16]:
        assert place.entry is not None
        corpus, number = self._shards[place.shard]
        if place.shard not in self._codes:
            self._codes[place.shard] = encoded(corpus, number)
        of_shard = [one for one in corpus.utterances if one.shard == number]
        first = (place.start - place.entry.start) // self._hop
        codes = self._codes[place.shard][of_shard.index(place.entry)]
        return codes[first : first + self._frames]

    def _voice(self, shard: int) -> tuple[Floats, Floats]:
        """Return the pitch and the cycles of a shard."""
        if shard not in self._voices:
            corpus, number = self._shards[shard]
            self._voices[shard] = contour(corpus, number), cycles(corpus, number)
        return self._voices[shard]


def clips_of(
    shares: Mapping[str, float], frames: int, hop: int, window: int, *, held_out: bool = False
) -> Clips:
    """Return clips of those corpora in the cache that have a share, by name."""
    cache = cache_folder()
    corpora = [
        (Corpus(cache, name), share)
        for name, share in shares.items()
        if any((cache / name).glob("*.jsonl"))
    ]
    return Clips(corpora, frames, hop, window, held_out=held_out)
