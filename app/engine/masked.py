"""Level 0 in masked passes: the length first, then every frame at once, the least certain again.

The other way to level 0 is the AR loop of `app.engine.decode`; which one a job takes is settled
here, before any work.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from app.engine.errors import InvalidRequest
from models.config import LENGTH_TOKENS, ModelConfig
from models.valle import Prefix, Valle
from samplers.guidance import guide
from samplers.masked import least_certain, sample_masked, schedule
from samplers.params import SamplingParams, off_value

_MAX_DIGITS = 10
_BOTH = {"request", "nar", "joining"}  # groups of knobs that matter however level 0 is drawn


@dataclass(frozen=True, slots=True)
class MaskedDraw:
    """Level 0 of one utterance.

    Attributes:
        codes: ``[T]`` int64.
        finish_reason: `length` if the model told a longer one than is allowed.
    """

    codes: Tensor
    finish_reason: Literal["stop", "length", "cancelled"]


def choose_level_0(
    params: SamplingParams, preset: SamplingParams, config: ModelConfig
) -> SamplingParams:
    """Settle how level 0 is drawn.

    Args:
        params: Resolved.
        preset: What they would be had the caller moved no knob.
        config: What the model can do.

    Returns:
        The same with `level_0` either `ar` or `masked`.

    Raises:
        InvalidRequest: The model cannot, or a knob was moved that belongs to the other way.
    """
    way = params.level_0
    if way == "auto":
        can = config.masked_level_0 and not _moved(params, preset, masked=False)
        way = "masked" if can else "ar"
    if way == "masked":
        if not config.masked_level_0:
            raise InvalidRequest("the model cannot draw level 0 in masked passes", param="level_0")
        if params.nar_len_cfg_strength > 1 and not config.has_null_condition:
            raise InvalidRequest(
                "the model was not trained for guidance: nar_len_cfg_strength must be 1",
                param="nar_len_cfg_strength",
            )
    if idle := _moved(params, preset, masked=way == "ar"):
        other = "masked" if way == "ar" else "ar"
        raise InvalidRequest(f"{idle[0]} acts only with level_0={other}", param=idle[0])
    return params.model_copy(update={"level_0": way})


@torch.inference_mode()
def draw_masked(
    model: Valle,
    prefix: Prefix,
    null: Prefix,
    params: SamplingParams,
    *,
    seed: int,
    utterance: int,
    max_frames: int,
    on_frame: Callable[[int], bool],
    on_pass: Callable[[Tensor], None] | None = None,
) -> MaskedDraw:
    """Draw level 0 of an utterance in masked passes.

    Args:
        model: One with masked level 0.
        prefix: For level 0.
        null: The one that says nothing; unread without guidance.
        params: Resolved.
        seed: Of every draw.
        utterance: Its number; the noise depends on it.
        max_frames: Longest it may be.
        on_frame: Told how many frames are settled after every pass; False stops.
        on_pass: Shown the codes ``[T]`` that each pass reads, the mask among them.

    Source: MaskGIT, arXiv:2202.04200, as in e-c-k-e-r/vall-e.
    """
    wanted = params.nar_len_frames
    if not wanted:
        told = max(predict_length(model, prefix), params.nar_len_min_frames)
        wanted = int(told * params.nar_len_stretch)
    length = max(1, min(wanted, max_frames))
    device = model.separator.device
    codes = torch.full((length,), model.config.mask_token, device=device)
    scores = torch.ones(length, device=device)
    counts = schedule(length, params.nar_len_steps, remask=params.nar_len_remask)
    for place, count in enumerate(counts):
        masked = least_certain(scores, count)
        codes = codes.masked_fill(masked, model.config.mask_token)
        if on_pass is not None:
            on_pass(codes)
        logits = _guided(model, prefix, null, codes, params)
        codes, scores = sample_masked(
            logits, codes, masked, params, seed=seed, utterance=utterance, place=place
        )
        settled = length - (counts[place + 1] if place + 1 < len(counts) else 0)
        if not on_frame(settled):
            return MaskedDraw(codes, "cancelled")
    return MaskedDraw(codes, "length" if wanted > max_frames else "stop")


@torch.inference_mode()
def predict_length(model: Valle, prefix: Prefix) -> int:
    """Return how many frames the model says the utterance has: digits, greedily, until the stop."""
    digits = torch.zeros(1, dtype=torch.int64, device=model.separator.device)
    for _ in range(_MAX_DIGITS):
        digit = model.length_logits(prefix, digits).argmax()
        if int(digit) == LENGTH_TOKENS - 1:
            break
        digits = torch.cat([digits, digit[None]])
    return int("".join(map(str, digits.tolist())))


def _guided(
    model: Valle, prefix: Prefix, null: Prefix, codes: Tensor, params: SamplingParams
) -> Tensor:
    """Return ``[T, V]``; the spread is that of all frames together, as in the reference."""
    own = model.masked_logits(prefix, codes)
    if params.nar_len_cfg_strength <= 1:
        return own
    knobs = own.new_tensor([[params.nar_len_cfg_strength], [params.nar_len_cfg_rescale]])
    return guide(own[None], model.masked_logits(null, codes)[None], *knobs)[0]


def _moved(params: SamplingParams, preset: SamplingParams, *, masked: bool) -> list[str]:
    """Return which knobs the caller moved, and not off, of those that one way alone heeds."""
    moved = []
    for knob, field in SamplingParams.model_fields.items():
        extra: Any = field.json_schema_extra
        ui = extra["x-ui"]
        value = getattr(params, knob)
        of_this_way = knob != "level_0" and ui["group"] not in _BOTH
        if not of_this_way or (ui["group"] == "masked") != masked:
            continue
        if value != getattr(preset, knob) and not ("off" in ui and value == off_value(knob)):
            moved.append(knob)
    return moved
