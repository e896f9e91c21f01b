"""From phonemes to codes: the AR loop over a cache, then one NAR pass a level.

The only place where models meet samplers: logits go in, tokens come out, and the token is fed back.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Literal

import torch
from torch import Tensor

from models.cache import KVCache
from models.valle import Valle
from samplers.chain import ArSampler, sample_nar
from samplers.params import SamplingParams

OnFrame = Callable[[int], bool]
"""Called with the count after every frame; False stops."""


@dataclass(frozen=True, slots=True)
class Decoded:
    """One utterance as codes ``[T, K]`` int64, why it ended, and where the seconds went."""

    codes: Tensor
    finish_reason: Literal["stop", "length", "cancelled"]
    ar_s: float
    nar_s: float


@torch.inference_mode()
def decode_utterance(
    model: Valle,
    phoneme_ids: Sequence[int],
    prompt: Tensor | None,
    params: SamplingParams,
    *,
    seed: int,
    utterance: int,
    max_frames: int,
    on_frame: OnFrame,
) -> Decoded:
    """Decode one utterance.

    Args:
        model: On the device to use.
        phoneme_ids: With the begin and end marks.
        prompt: ``[Tp, K]`` codes of the voice, or None.
        params: Resolved: every knob has its value.
        seed: Of every draw.
        utterance: Its number within the job; the noise depends on it.
        max_frames: Where the AR is stopped if it does not stop by itself.
        on_frame: Told of every frame.

    Returns:
        The codes so far; all levels unless it was cancelled.
    """
    started_s = perf_counter()
    level_0, finish_reason = _decode_ar(
        model, phoneme_ids, prompt, params, seed, utterance, max_frames, on_frame
    )
    ar_s = perf_counter() - started_s
    codes = level_0[:, None]
    if len(codes) and finish_reason != "cancelled":
        codes = _decode_nar(model, phoneme_ids, prompt, params, seed, utterance, codes)
    return Decoded(codes, finish_reason, ar_s, perf_counter() - started_s - ar_s)


def _decode_ar(
    model: Valle,
    phoneme_ids: Sequence[int],
    prompt: Tensor | None,
    params: SamplingParams,
    seed: int,
    utterance: int,
    max_frames: int,
    on_frame: OnFrame,
) -> tuple[Tensor, Literal["stop", "length", "cancelled"]]:
    """Return level 0 ``[T]`` and why it ended."""
    config, device = model.config, model.separator.device
    prefix = model.prefix(phoneme_ids, 0, prompt=prompt)
    cache = KVCache(config, slots=1, max_length=len(prefix) + max_frames, device=device)
    sampler = ArSampler(
        [params],
        [seed],
        stop_token=config.stop_token,
        vocab_size=config.codes + 1,
        max_frames=max_frames,
        utterances=[utterance],
        device=device,
    )
    hidden = model.transformer.extend(
        prefix.embeddings, prefix.positions, cache, 0, model.ranks(0, prefix.blocks)
    )[-1:]
    frames = torch.arange(max_frames, device=device)
    drawn: list[Tensor] = []
    while True:
        token = sampler.step(model.logits(hidden, 0))
        if int(token) == config.stop_token:
            return _joined(drawn, device), "stop"
        drawn.append(token)
        if not on_frame(len(drawn)):
            return _joined(drawn, device), "cancelled"
        if len(drawn) == max_frames:
            return _joined(drawn, device), "length"
        embedding = model.embed_response(token[:, None], 0)
        position = frames[len(drawn) - 1, None]
        hidden = model.transformer.step(embedding, position, cache, [0])


def _decode_nar(
    model: Valle,
    phoneme_ids: Sequence[int],
    prompt: Tensor | None,
    params: SamplingParams,
    seed: int,
    utterance: int,
    codes: Tensor,
) -> Tensor:
    """Return ``[T, K]``, levels 1 and up added to level 0 ``[T, 1]``."""
    for level in range(1, model.config.levels):
        prefix = model.prefix(phoneme_ids, level, prompt=prompt)
        logits = model.nar_logits(prefix, codes, level)
        drawn = sample_nar(logits, params, seed=seed, utterance=utterance, level=level)
        codes = torch.cat([codes, drawn[:, None]], 1)
    return codes


def _joined(drawn: list[Tensor], device: torch.device) -> Tensor:
    return torch.cat(drawn) if drawn else torch.zeros(0, dtype=torch.int64, device=device)
