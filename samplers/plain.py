"""What one function samples by itself: rows of the usual features, packed into numbers.

Nearly all rows have temperature, top-k, top-p, min-p, guidance, and what lowers and raises single
codes before them. A kernel of a GPU (`samplers.cuda`) and a compiled function of a CPU
(`samplers.compiled`) sample a step of such rows on the same table as
`samplers.ar.sampler.ArSampler`, and what they compute is what that does: `sample` unpacks the
numbers, and is the reference that both are compared with.
"""

import math
from functools import lru_cache
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor

from samplers.ar.sampler import ArSampler
from samplers.ar.state import HostColumn, RowInput, SlotTable, lookback, null_place
from samplers.ar.trace import log_prob_of
from samplers.knobs.features import FEATURES, is_guided, is_on
from samplers.knobs.params import SamplingParams
from samplers.knobs.steps import STEPS, arrange
from samplers.ops import penalties
from samplers.ops.rows import sanitise, within
from samplers.processors.registry import FIXED, MOVABLE

WINDOW: Final = 128
"""The most codes that penalties of a plain row count."""

RESULTS: Final = 3
"""Columns of the results: the code, its log-probability in nats, and whether the logits had NaN."""

_SAMPLED: Final = frozenset({
    "temperature", "top_k", "top_p", "min_p", "logit_bias", "ban_tokens", "min_frames",
    "repetition_penalty", "frequency_penalty", "presence_penalty",
})  # fmt: skip
_OTHERS: Final = (
    frozenset({"mirostat_mode", "ras", "entropix"}).union(
        *(processor.features for processor in (*FIXED, *MOVABLE))
    )
    - _SAMPLED
)


def is_plain(params: SamplingParams) -> bool:
    """Return whether one function samples a row; all others are sampled by operators."""
    order = arrange(params.sampler_order, temperature_last=params.temperature_last)
    if params.beam_width or order != STEPS or lookback(params) > WINDOW:
        return False
    return not any(is_on(feature, params) for feature in _OTHERS)


class PlainRow(NamedTuple):
    """The knobs of a row, each with the value that changes nothing where it is off.

    A temperature of 0 is greedy, a `top_p` of infinity and a `min_p` of 0 keep all; `top_k` and
    `min_tokens_to_keep` are at most the size of the vocabulary, a window of 0 counts no code, and
    the mode is its number in `samplers.ops.penalties.MODES`. `PlainTable.nats` has the last three
    already.
    """

    temperature: float
    top_k: float
    top_p: float
    min_p: float
    min_tokens_to_keep: float
    cfg_strength: float
    cfg_rescale: float
    min_frames: float
    repetition_penalty_window: float
    repetition_penalty_mode: float
    repetition_penalty_one_time: float
    frequency_penalty: float
    presence_penalty: float
    repetition_penalty: float
    repetition_penalty_decay: float
    repetition_penalty_clamp: float


class PlainTable(NamedTuple):
    """What a kernel reads of rows, all of a row in one record of a table."""

    numbers: Tensor  # ``[B, len(PlainRow)]`` float64
    nats: Tensor  # ``[B, WINDOW]`` int64 of `samplers.ops.penalties.nats_by_distance`
    bias: Tensor  # ``[B, V]`` float32, added to the logits; -inf: banned

    @classmethod
    def of(cls, table: Tensor, vocab_size: int) -> "PlainTable":
        """Return the parts of a table ``[B, plain_width(V)]`` int64."""
        numbers, nats, bias = table.tensor_split([len(PlainRow._fields), _BIAS], 1)
        return cls(numbers.view(torch.float64), nats, bias.view(torch.float32)[:, :vocab_size])


_BIAS: Final = len(PlainRow._fields) + WINDOW


def plain_width(vocab_size: int) -> int:
    """Return how many numbers of 8 bytes the record of a row has."""
    return _BIAS + math.ceil(vocab_size / 2)


def plain_row(params: SamplingParams, vocab_size: int) -> Tensor:
    """Return the record of a row, ``[plain_width(V)]`` int64 on the host; its params are plain."""
    record = torch.zeros(1, plain_width(vocab_size), dtype=torch.int64)
    table = PlainTable.of(record, vocab_size)
    repeats = is_on("repetition_penalty", params)
    counts = repeats or is_on("frequency_penalty", params) or is_on("presence_penalty", params)
    numbers = PlainRow(
        max(0.0, within(params.temperature)),
        min(_knob(params, "top_k", vocab_size), vocab_size),
        _knob(params, "top_p", torch.inf),
        _knob(params, "min_p", 0.0),
        min(params.min_tokens_to_keep, vocab_size),
        within(params.cfg_strength) if is_guided(params) else 1.0,
        params.cfg_rescale,
        params.min_frames,
        params.repetition_penalty_window if counts else 0,
        penalties.MODES.index(params.repetition_penalty_mode),
        params.repetition_penalty_one_time,
        _knob(params, "frequency_penalty", 0.0),
        _knob(params, "presence_penalty", 0.0),
        _knob(params, "repetition_penalty", 1.0),
        params.repetition_penalty_decay,
        params.repetition_penalty_clamp,
    )
    table.numbers[0] = torch.tensor(numbers, dtype=torch.float64)
    if repeats:

        def column(value: float) -> Tensor:
            return torch.tensor([[within(value)]])

        table.nats[:] = penalties.nats_by_distance(
            WINDOW,
            log_factor=column(math.log(params.repetition_penalty)),
            decay=column(params.repetition_penalty_decay),
            window=column(params.repetition_penalty_window),
            clamp=column(params.repetition_penalty_clamp),
            mode=column(penalties.MODES.index(params.repetition_penalty_mode)),
        )
    for code, value in params.logit_bias.items():
        if 0 <= code < vocab_size:
            table.bias[0, code] = within(value)
    table.bias[0, [code for code in params.ban_tokens if 0 <= code < vocab_size]] = -torch.inf
    return record[0]


def _knob(params: SamplingParams, feature: str, neutral: float) -> float:
    name = FEATURES[feature].knob
    return within(getattr(params, name)) if is_on(feature, params) else neutral


def sample(
    logits: Tensor,
    numbers: Tensor,
    avoid: Tensor,
    knobs: Tensor,
    codes: Tensor,
    lengths: Tensor,
    stopped: Tensor,
    results: Tensor,
    stop_token: int,
) -> None:
    """Sample the next code of the rows that are active, as `ArSampler` does, and append it.

    Reads the numbers on the host: a recording holds it as one operator.

    Args:
        logits: ``[B, V]`` float32, the model's; behind them ``[B, V]`` that it predicts for the
            null condition, if it does.
        numbers: See `samplers.ar.state.SlotTable`, as ``avoid``; ``codes``, ``lengths`` and
            ``stopped`` change.
        knobs: ``[B, plain_width(V)]`` int64 of `PlainTable`.
        results: ``[B, RESULTS]`` float64: written for active rows.
    """
    host = numbers.cpu().numpy().copy()
    vocab_size = logits.shape[1]
    table = SlotTable(len(host), frames=0, vocab_size=vocab_size, device=logits.device)
    table.host = host
    table.numbers = numbers
    table.held = lengths.tolist()
    table.avoid = avoid
    table.codes = codes
    table.lengths = lengths
    table.stopped = stopped
    sampler = ArSampler(table, stop_token=stop_token)
    slots = [slot for slot, one in enumerate(host) if one[HostColumn.ACTIVE]]
    for slot in slots:
        params = _unpacked(knobs[slot].cpu().numpy().tobytes(), vocab_size)
        limit, prompted = (int(host[slot, one]) for one in (HostColumn.LIMIT, HostColumn.PROMPTED))
        sampler.adopt(slot, RowInput(params, 0, limit, prompt=codes[slot, :prompted]))
    if not slots:
        return
    partners = [null_place(int(host[slot, HostColumn.PARTNER]), slot, len(host)) for slot in slots]
    null = [partner for slot, partner in zip(slots, partners, strict=True) if slot != partner]
    own = logits[slots]
    sampled = sampler.step(own, null=logits[null] if null else None)
    results[slots, 0] = sampled.double()
    results[slots, 1] = log_prob_of(sanitise(own), sampled).double()
    results[slots, 2] = (own.isnan().any(-1) | logits[partners].isnan().any(-1)).double()


@lru_cache(maxsize=256)
def _unpacked(record: bytes, vocab_size: int) -> SamplingParams:
    """Return params that ask for what a row's record says."""
    packed = torch.frombuffer(bytearray(record), dtype=torch.int64)[None]
    table = PlainTable.of(packed, vocab_size)
    row = PlainRow(*table.numbers[0].tolist())
    bias = table.bias[0].tolist()
    whole = ("top_k", "min_tokens_to_keep", "min_frames", "repetition_penalty_window")
    knobs: dict[str, Any] = {
        **row._asdict(),
        **{name: int(getattr(row, name)) for name in whole},
        "top_p": min(1.0, row.top_p),
        "repetition_penalty_mode": penalties.MODES[int(row.repetition_penalty_mode)],
        "repetition_penalty_one_time": bool(row.repetition_penalty_one_time),
        "repetition_penalty_clamp": bool(row.repetition_penalty_clamp),
        "penalty_includes_prompt": True,
        "logit_bias": {
            code: nats for code, nats in enumerate(bias) if nats and math.isfinite(nats)
        },
        "ban_tokens": tuple(code for code, nats in enumerate(bias) if nats == -math.inf),
    }
    return SamplingParams.model_construct(**SamplingParams().model_dump() | knobs)
