"""Which attention head of level 0 follows the text, measured on speech of the model itself.

A head looks at a phoneme some frames before that is heard. How many is told by the sound: where it
goes from a consonant to a vowel it becomes louder (docs/results/studio.md).
"""

# ruff: noqa: RUF001 - IPA is full of letters that look like Latin ones

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from app.engine.results import UtteranceResult
from models.alignment.path import MonotonicPath
from models.checkpoints.sources import SpeechModel
from models.prefix import Prefix
from models.stack.taps import Taps
from models.text import FrontEnd

MOST_LEAD_FRAMES: Final = 20
"""The longest lead that is looked for: a quarter of a second, longer than most phonemes."""

_VOWELS: Final = frozenset("aeiouyæœøɐɑɒɔəɘɚɛɜɝɞɤɨɪɯɵʉʊʌʏᵻ")
_LONG: Final = "ː"
_BETWEEN: Final = frozenset("ˈˌ ")  # stress marks and the space between words have no sound
_BESIDE_FRAMES: Final = 2  # on both sides of a rise


@dataclass(frozen=True)
class HeadScore:
    """How well a query head follows the text, and how many frames it is ahead of the sound.

    `sureness` is the share of its attention to the text that is on the path or beside it, times the
    share of the phonemes that the path visits.
    """

    layer: int
    head: int
    sureness: float
    lead_frames: int

    def __str__(self) -> str:
        return f"{self.layer}.{self.head}+{self.lead_frames}"


@torch.inference_mode()
def rate_heads(
    speech: SpeechModel,
    prompt: Tensor | None,
    utterances: Iterable[UtteranceResult],
) -> list[HeadScore]:
    """Return all heads, the surest first, by what a voice of codes ``[Tp, K]`` spoke."""
    model, front_end = speech.model, FrontEnd(speech.model.config)
    sureness: dict[tuple[int, int], list[float]] = {}
    rises: dict[tuple[int, int], list[NDArray[np.float64]]] = {}
    for spoken in utterances:
        ids = front_end.encode(spoken.phonemes)
        prefix = model.prefix(ids, 0, prompt=prompt)
        codes = torch.from_numpy(spoken.codes.astype(np.int64)).to(prefix.positions.device)
        loudness_db = _loudness_db(speech, codes)
        vowels = _vowels(spoken.phonemes, front_end.lengths(spoken.phonemes))
        for layer in range(model.config.layers):
            heads = _attention(speech, prefix, codes[:, 0], len(ids), layer)
            for head, attention in enumerate(heads):
                path = MonotonicPath(len(ids)).push(attention)
                near = np.abs(np.arange(len(ids)) - path[:, None]) <= 1
                visited = len(np.unique(path)) / len(ids)
                place = layer, head
                sureness.setdefault(place, []).append(
                    float((attention * near).sum(1).mean()) * visited
                )
                entered = np.searchsorted(path, vowels)
                rises.setdefault(place, []).append(_rises_db(loudness_db, entered))
    scores = [
        HeadScore(
            layer,
            head,
            float(np.mean(values)),
            int(np.concatenate(rises[layer, head]).sum(0).argmax()),
        )
        for (layer, head), values in sureness.items()
    ]
    return sorted(scores, key=lambda score: -score.sureness)


def _loudness_db(speech: SpeechModel, codes: Tensor) -> NDArray[np.float64]:
    """Return the power ``[T]`` of the sound of each frame, in dB; level 0 alone suffices."""
    samples = speech.codec.decode(codes).double().cpu().numpy()
    power = (samples.reshape(len(codes), -1) ** 2).mean(1)
    return np.asarray(10 * np.log10(power + 1e-6))


def _vowels(phonemes: str, lengths: list[int]) -> list[int]:
    """Return the indices of the ids with which a vowel begins that follows a consonant."""
    ends = np.cumsum(lengths)
    found = []
    for at, phoneme in enumerate(phonemes):
        begin = at
        while begin and phonemes[begin - 1] in _BETWEEN:
            begin -= 1
        before = phonemes[begin - 1] if begin else ""
        after_consonant = before.isalpha() and before not in _VOWELS and before != _LONG
        if phoneme in _VOWELS and after_consonant:
            # Stress belongs to the vowel; the space before it is entered while the word before
            # ends.
            begin = at - len(phonemes[begin:at].rpartition(" ")[2])
            found.append(int(np.searchsorted(ends, begin, side="right")))
    return found


def _rises_db(loudness_db: NDArray[np.float64], entered: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return by how much the sound becomes louder so many frames after some frames."""
    beside = _BESIDE_FRAMES
    sums = np.concatenate([[0.0], np.cumsum(loudness_db)])
    last = len(loudness_db) - MOST_LEAD_FRAMES - beside
    inside = entered[(entered >= beside) & (entered <= last)]
    at = inside[:, None] + np.arange(MOST_LEAD_FRAMES + 1)
    return np.asarray((sums[at + beside] - 2 * sums[at] + sums[at - beside]) / beside)


def _attention(
    speech: SpeechModel, prefix: Prefix, codes: Tensor, symbols: int, layer: int
) -> Iterator[np.ndarray[tuple[int, int], np.dtype[np.float32]]]:
    """Yield the attention ``[T, S]`` of what predicts each frame to the text, head by head."""
    model = speech.model
    cache = model.new_cache(1, len(prefix) + len(codes))
    inputs = torch.cat([prefix.embeddings, model.embed_response(codes[:-1, None], 0)])
    start = prefix.response_start
    frames = torch.arange(start, start + len(codes) - 1, device=codes.device)
    _, queries = model.transformer.extend(
        inputs,
        torch.cat([prefix.positions, frames]),
        cache,
        0,
        torch.arange(len(inputs), device=codes.device),
        Taps(queries=[layer]),
    )
    keys = cache.keys_of(layer, 0).float()
    text = slice(prefix.text_start, prefix.text_start + symbols)
    queries = queries[0, len(prefix) - 1 :].float()
    group = model.config.heads // model.config.kv_heads
    for head in range(model.config.heads):
        scores = queries[:, head] @ keys[head // group, text].T * queries.shape[-1] ** -0.5
        yield scores.softmax(-1).cpu().numpy()
