"""The steps of the chain: which knobs each reads, and what it does to the scores of a batch.

A step is built once, when its rows are admitted: the builder reads the rows' params into `(B, 1)`
tensors, in which a row that has the step off gets a neutral value, and returns None if it is off in
every row, so that it then costs nothing. Being neutral is exact: a row's scores do not change by a
bit, which is why a row does not depend on its neighbours.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from samplers import filters, penalties
from samplers import temperature as temperatures
from samplers.conflicts import FEATURES
from samplers.params import SamplingParams


@dataclass
class Scores:
    """The scores of a group of rows on their way through the chain.

    Attributes:
        logits: ``(B, V)`` float32, what is left so far.
        lengths: ``(B, 1)`` int64, frames drawn.
        recent: ``(B, W)`` int64, the history, newest first, -1 before its beginning.
        noise: From the number of a draw to ``(B, width)`` uniform noise of that width.
    """

    logits: Tensor
    lengths: Tensor
    recent: Tensor
    noise: Callable[[int, int], Tensor]
    _ordered: Tensor | None = field(default=None, init=False)

    @property
    def ordered(self) -> Tensor:
        """The scores, largest first; sorted once for consecutive filters."""
        if self._ordered is None:
            self._ordered = filters.descending(self.logits)
        return self._ordered

    @property
    def best(self) -> Tensor:
        """The largest score of each row, ``(B, 1)``."""
        if self._ordered is None:
            return self.logits.amax(-1, keepdim=True)
        return self._ordered[:, :1]

    def replace(self, logits: Tensor) -> None:
        """Go on with other scores."""
        self.logits, self._ordered = logits, None

    def keep_from(self, floor: Tensor) -> None:
        """Remove what is below a ``(B, 1)`` floor; the sort stays valid."""
        self.logits = filters.keep_from(self.logits, floor)
        if self._ordered is not None:
            self._ordered = filters.keep_from(self._ordered, floor)


Step = Callable[[Scores], None]


@dataclass(frozen=True)
class Rows:
    """What a builder knows: the params of the rows, and what they draw from."""

    params: Sequence[SamplingParams]
    vocab_size: int
    stop_token: int | None
    device: torch.device

    def on(self, feature: str) -> list[bool]:
        """In which rows a feature of `samplers.conflicts` is on."""
        return [FEATURES[feature].on(params) for params in self.params]

    def column(self, values: Sequence[float | bool]) -> Tensor:
        """One value a row as a ``(B, 1)`` tensor: float32, int64 or bool, as the values are."""
        return torch.tensor(values, device=self.device)[:, None]

    def knob(self, feature: str, neutral: float) -> Tensor:
        """The knob of a feature, ``neutral`` in rows that have it off, as a ``(B, 1)`` tensor."""
        name = FEATURES[feature].knob
        pairs = zip(self.params, self.on(feature), strict=True)
        return self.column([getattr(p, name) if on else neutral for p, on in pairs])


Builder = Callable[[Rows], Step | None]


def _bias(rows: Rows) -> Step | None:
    bias = torch.zeros(len(rows.params), rows.vocab_size)
    for row, params in enumerate(rows.params):
        for token, value in params.logit_bias.items():
            if 0 <= token < rows.vocab_size:
                bias[row, token] = value
        banned = [token for token in params.ban_tokens if 0 <= token < rows.vocab_size]
        bias[row, banned] = -math.inf
    if not bias.any():
        return None
    bias = bias.to(rows.device)
    return lambda scores: scores.replace(scores.logits + bias)


def _min_frames(rows: Rows) -> Step | None:
    stop_token = rows.stop_token
    if stop_token is None or not any(params.min_frames for params in rows.params):
        return None
    least = rows.column([params.min_frames for params in rows.params])
    return lambda scores: scores.replace(
        penalties.hold_stop(scores.logits, scores.lengths, least, stop_token)
    )


def _repetition_penalty(rows: Rows) -> Step | None:
    if not any(rows.on("repetition_penalty")):
        return None
    every = rows.params
    factors = rows.column([math.log(p.repetition_penalty) for p in every])
    decay = rows.column([p.repetition_penalty_decay for p in every])
    window = rows.column([p.repetition_penalty_window or 2**62 for p in every])
    clamp = rows.column([p.repetition_penalty_clamp for p in every])
    mode = rows.column([penalties.MODES.index(p.repetition_penalty_mode) for p in every])
    once = [p.repetition_penalty_one_time for p in every]
    one_time = rows.column(once) if any(once) else None

    def step(scores: Scores) -> None:
        nats = penalties.repetition_nats(
            scores.recent, rows.vocab_size, log_factor=factors, decay=decay, window=window,
            clamp=clamp, one_time=one_time,
        )  # fmt: skip
        scores.replace(penalties.apply_penalty(scores.logits, nats, mode))

    return step


def _length_penalty(rows: Rows) -> Step | None:
    stop_token = rows.stop_token
    if stop_token is None or not any(rows.on("length_penalty")):
        return None
    power = rows.knob("length_penalty", 0.0)
    mode = rows.column([penalties.MODES.index(p.length_penalty_mode) for p in rows.params])
    return lambda scores: scores.replace(
        penalties.length_penalty(scores.logits, scores.lengths, power, mode, stop_token)
    )


def _temperature(rows: Rows) -> Step | None:
    if not any(rows.on("temperature")):
        return None
    greedy = rows.on("greedy")
    flags = rows.column(greedy)
    divisor = rows.column([1.0 if p.temperature <= 0 else p.temperature for p in rows.params])

    def step(scores: Scores) -> None:
        logits = temperatures.scale(scores.logits, divisor)
        if any(greedy):
            logits = torch.where(flags, temperatures.only_best(scores.logits), logits)
        scores.replace(logits)

    return step


def _top_k(rows: Rows) -> Step | None:
    if not any(rows.on("top_k")):
        return None
    k = rows.knob("top_k", rows.vocab_size)
    return lambda scores: scores.keep_from(filters.top_k_floor(scores.ordered, k))


def _top_p(rows: Rows) -> Step | None:
    if not any(rows.on("top_p")):
        return None
    p = rows.knob("top_p", math.inf)
    return lambda scores: scores.keep_from(filters.top_p_floor(scores.ordered, p))


def _min_p(rows: Rows) -> Step | None:
    if not any(rows.on("min_p")):
        return None
    p = rows.knob("min_p", 0.0)
    keep = rows.column([params.min_tokens_to_keep for params in rows.params])
    several = any(params.min_tokens_to_keep > 1 for params in rows.params)

    def step(scores: Scores) -> None:
        floor = filters.min_p_floor(scores.best, p)
        if several:
            floor = torch.minimum(floor, filters.top_k_floor(scores.ordered, keep))
        scores.keep_from(floor)

    return step


FIXED: Sequence[Builder] = (_bias, _min_frames)
"""Steps that come first, whatever the order."""

MOVABLE: Mapping[str, Builder] = {
    "repetition_penalty": _repetition_penalty,
    "length_penalty": _length_penalty,
    "temperature": _temperature,
    "top_k": _top_k,
    "top_p": _top_p,
    "min_p": _min_p,
}
"""Steps whose order a request may choose, by name."""
