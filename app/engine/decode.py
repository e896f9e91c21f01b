"""From phonemes to codes: the AR loop over a cache, then one NAR pass a level.

The only place where models meet samplers: logits go in, tokens come out, and the token is fed back.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Literal

import torch
from torch import Tensor

from app.engine.job import TraceColumns
from models.cache import KVCache
from models.valle import Prefix, Valle
from samplers.chain import ArSampler
from samplers.guidance import guide
from samplers.nar import sample_nar
from samplers.params import SamplingParams
from samplers.trace import Trace

FinishReason = Literal["stop", "length", "cancelled"]

OnFrame = Callable[[int], bool]
"""Called with the count after every frame; False stops."""


@dataclass(frozen=True, slots=True)
class Piece:
    """One utterance that is to be decoded.

    Args:
        phoneme_ids: With the begin and end marks.
        params: Resolved: every knob has its value.
        seed: Of every draw.
        utterance: Its number within the job; the noise depends on it.
        max_frames: Where the AR is stopped if it does not stop by itself.
        prompt: ``[Tp, K]`` codes of the voice, or None.
        language: Its index in the model's languages.
        trace: Whether to record what is seen and done at every token of the AR.
    """

    phoneme_ids: Sequence[int]
    params: SamplingParams
    seed: int
    utterance: int
    max_frames: int
    prompt: Tensor | None = None
    language: int = 0
    trace: bool = False

    def prefix(self, model: Valle, level: int) -> Prefix:
        """Assemble what stands before the response."""
        return model.prefix(self.phoneme_ids, level, language=self.language, prompt=self.prompt)


@dataclass(frozen=True, slots=True)
class Decoded:
    """One utterance as codes ``[T, K]`` int64, why it ended, and where the seconds went.

    K is fewer than the model's levels if `nar_levels` asks for fewer, or the job was cancelled.
    The trace is there if the piece asked for it.
    """

    codes: Tensor
    finish_reason: FinishReason
    ar_s: float
    nar_s: float
    trace: TraceColumns | None = None


@torch.inference_mode()
def decode_utterance(model: Valle, codebooks: Tensor, piece: Piece, on_frame: OnFrame) -> Decoded:
    """Decode one utterance.

    Args:
        model: On the device to use.
        codebooks: ``[K, V, D]`` vectors of the codec's codes, which some draws weigh.
        piece: What to speak.
        on_frame: Told of every frame of the AR.

    Returns:
        The codes; level 0 alone if it was cancelled.
    """
    started_s = perf_counter()
    trace = Trace() if piece.trace else None
    level_0, finish_reason = _decode_ar(model, piece, on_frame, trace)
    ar_s = perf_counter() - started_s
    codes = level_0[:, None]
    if len(codes) and finish_reason != "cancelled":
        codes = _decode_nar(model, codebooks, piece, codes)
    nar_s = perf_counter() - started_s - ar_s
    return Decoded(codes, finish_reason, ar_s, nar_s, trace.columns(0) if trace else None)


def _decode_ar(
    model: Valle, piece: Piece, on_frame: OnFrame, trace: Trace | None
) -> tuple[Tensor, FinishReason]:
    """Return level 0 ``[T]`` and why it ended.

    A guided utterance takes two slots, the second without its words; both are fed what was drawn.
    """
    config, params, device = model.config, piece.params, model.separator.device
    prefixes = [piece.prefix(model, 0)]
    if params.cfg_strength > 1:
        prefixes.append(model.null_prefix(0, language=piece.language))
    slots = range(len(prefixes))
    max_length = max(map(len, prefixes)) + piece.max_frames
    cache = KVCache(config, slots=len(slots), max_length=max_length, device=device)
    sampler = ArSampler(
        [params],
        [piece.seed],
        stop_token=config.stop_token,
        vocab_size=config.codes + 1,
        max_frames=piece.max_frames,
        utterances=[piece.utterance],
        device=device,
    )
    strength, rescale = torch.tensor(
        [[params.cfg_strength], [params.cfg_rescale]], device=device
    ).unbind()
    last = [
        model.transformer.extend(
            prefix.embeddings, prefix.positions, cache, slot, model.ranks(0, prefix.blocks)
        )[-1:]
        for slot, prefix in enumerate(prefixes)
    ]
    hidden = torch.cat(last)
    positions = torch.arange(piece.max_frames, device=device)[:, None].expand(-1, len(slots))
    drawn: list[Tensor] = []
    while True:
        logits = model.logits(hidden, 0)
        own = logits[:1]
        if len(slots) > 1:
            logits = guide(logits[:1, None], logits[1:, None], strength, rescale)[:, 0]
        token = sampler.step(logits, trace, own)
        if int(token) == config.stop_token:
            return _joined(drawn, device), "stop"
        drawn.append(token)
        if not on_frame(len(drawn)):
            return _joined(drawn, device), "cancelled"
        if len(drawn) == piece.max_frames:
            return _joined(drawn, device), "length"
        embedding = model.embed_response(token[:, None], 0).expand(len(slots), -1)
        hidden = model.transformer.step(embedding, positions[len(drawn) - 1], cache, slots)


def _decode_nar(model: Valle, codebooks: Tensor, piece: Piece, codes: Tensor) -> Tensor:
    """Return ``[T, 1 + levels]``, the finer levels added to level 0 ``[T, 1]``."""
    for level in range(1, 1 + min(piece.params.nar_levels, model.config.levels - 1)):
        drawn = sample_nar(
            model.nar_logits(piece.prefix(model, level), codes, level),
            piece.params,
            seed=piece.seed,
            utterance=piece.utterance,
            level=level,
            codebook=codebooks[level],
        )
        codes = torch.cat([codes, drawn[:, None]], 1)
    return codes


def _joined(drawn: list[Tensor], device: torch.device) -> Tensor:
    return torch.cat(drawn) if drawn else torch.zeros(0, dtype=torch.int64, device=device)
