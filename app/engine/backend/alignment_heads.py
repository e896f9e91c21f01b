"""Which attention head of level 0 follows the text, measured on speech of the model itself."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from app.engine.job import SpokenUtterance
from app.engine.sound.joiner import EDGE_SILENCE_S
from models.alignment.path import MonotonicPath
from models.checkpoints import SpeechModel
from models.prefix import Prefix
from models.text import FrontEnd

_ENDS = ",.!?;:…"


@dataclass(frozen=True)
class HeadScore:
    """How well a head follows the text.

    Attributes:
        layer: Its layer, from 0.
        head: Its number among the query heads, from 0.
        sureness: From 0 to 1: the share of its attention to the text that is on the path or beside
            it, times the share of the phonemes that the path visits.
        lead_frames: How many frames it is ahead of the sound, at the ends of utterances.
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
    front_end: FrontEnd,
    prompt: Tensor | None,
    utterances: Iterable[SpokenUtterance],
) -> list[HeadScore]:
    """Return all heads, the surest first.

    Args:
        speech: The model.
        front_end: Encodes phonemes to ids.
        prompt: ``[Tp, K]`` codes of the voice that spoke, or None.
        utterances: What it spoke, with phonemes and codes.
    """
    model = speech.model
    rate_hz = speech.codec.config.frame_rate_hz
    sureness: dict[tuple[int, int], list[float]] = {}
    leads: dict[tuple[int, int], list[float]] = {}
    for spoken in utterances:
        ids = front_end.encode(spoken.phonemes)
        prefix = model.prefix(ids, 0, prompt=prompt)
        codes = torch.from_numpy(spoken.codes[:, 0].astype(np.int64)).to(prefix.positions.device)
        sounds_to = (spoken.trimmed_s + spoken.duration_s - EDGE_SILENCE_S) * rate_hz
        last = len(ids) - 1 - (spoken.phonemes[-1] in _ENDS)
        for layer in range(model.config.layers):
            for head, attention in enumerate(_attention(speech, prefix, codes, len(ids), layer)):
                path = MonotonicPath(len(ids)).push(attention)
                near = np.abs(np.arange(len(ids)) - path[:, None]) <= 1
                visited = len(np.unique(path)) / len(ids)
                place = layer, head
                sureness.setdefault(place, []).append(
                    float((attention * near).sum(1).mean()) * visited
                )
                entered = np.flatnonzero(path >= last)
                if len(entered):
                    leads.setdefault(place, []).append(sounds_to - float(entered[0]))
    scores = [
        HeadScore(
            layer,
            head,
            float(np.mean(values)),
            max(0, min(75, round(float(np.median(leads.get((layer, head), [0.0])))))),
        )
        for (layer, head), values in sureness.items()
    ]
    return sorted(scores, key=lambda score: -score.sureness)


def _attention(
    speech: SpeechModel, prefix: Prefix, codes: Tensor, symbols: int, layer: int
) -> Iterator[np.ndarray[tuple[int, int], np.dtype[np.float32]]]:
    """Yield the attention ``[T, S]`` of what predicts each frame to the text, head by head."""
    model = speech.model
    cache = model.new_cache(1, len(prefix) + len(codes))
    inputs = torch.cat([prefix.embeddings, model.embed_response(codes[:-1, None], 0)])
    start = prefix.response_start
    frames = torch.arange(start, start + len(codes) - 1, device=codes.device)
    _, queries = model.transformer.extend_with_queries(
        inputs,
        torch.cat([prefix.positions, frames]),
        cache,
        0,
        torch.arange(len(inputs), device=codes.device),
        layer,
    )
    keys = cache.keys_of(layer, 0).float()
    text = slice(prefix.text_start, prefix.text_start + symbols)
    queries = queries[len(prefix) - 1 :].float()
    group = model.config.heads // model.config.kv_heads
    for head in range(model.config.heads):
        scores = queries[:, head] @ keys[head // group, text].T * queries.shape[-1] ** -0.5
        yield scores.softmax(-1).cpu().numpy()
