"""What a kernel draws by itself: rows of a few usual features, packed into numbers.

Most rows have temperature, top-k, top-p and min-p alone, five numbers; nearly all others what
lowers and raises single codes before them, which is a table more. A kernel draws a step of such
rows on the same table as `samplers.ar.sampler.ArSampler`, and what it computes is what that does:
`draw` unpacks the numbers, and is the reference that kernels are compared with.
"""

import math
from enum import Enum
from functools import lru_cache
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor

from samplers.ar.sampler import ArSampler
from samplers.ar.state import Host, RowInput, SlotTable
from samplers.ar.trace import log_prob_of
from samplers.knobs.features import FEATURES, is_on
from samplers.knobs.params import SamplingParams
from samplers.knobs.steps import STEPS, arrange
from samplers.ops import filters, penalties
from samplers.ops.rows import within
from samplers.processors.registry import FIXED, MOVABLE, lookback


class Kind(Enum):
    """What a kernel draws; the second also what the first is."""

    PLAIN = frozenset({"temperature", "top_k", "top_p", "min_p"})
    LIGHT = PLAIN | {
        "logit_bias", "ban_tokens", "min_frames", "repetition_penalty", "frequency_penalty",
        "presence_penalty",
    }  # fmt: skip


WINDOW: Final = 128
"""The most codes that penalties of a light row count."""

_FEATURES: Final = frozenset({"mirostat_mode", "ras", "entropix"}).union(
    *(processor.features for processor in (*FIXED, *MOVABLE))
)


def kind_of(params: SamplingParams) -> Kind | None:
    """Return the smallest kind of what a row asks for; None if it is drawn by operators."""
    order = arrange(params.sampler_order, temperature_last=params.temperature_last)
    if params.beam_width or order != STEPS:
        return None
    on, longest = {feature for feature in _FEATURES if is_on(feature, params)}, lookback(params)
    return next(
        (kind for kind in Kind if on <= kind.value and longest <= WINDOW * (kind is Kind.LIGHT)),
        None,
    )


class PlainRow(NamedTuple):
    """The knobs of a row, each with the value that changes nothing where it is off.

    A temperature of 0 is greedy, a `top_p` of infinity and a `min_p` of 0 keep all. `keep` is how
    many codes min-p leaves at least; that and `top_k` are at most the size of the vocabulary.
    """

    temperature: float
    top_k: float
    top_p: float
    min_p: float
    keep: float


class LightRow(NamedTuple):
    """The numbers of what a light row has more, likewise."""

    least: float  # frames before which the stop is forbidden
    window: float  # how many of the newest codes penalties count; 0 where there is none
    mode: float  # of the repetition penalty, see `samplers.ops.penalties.apply_penalty`
    once: float  # 1 where only the newest occurrence of a code counts for it
    frequency: float  # nats for each occurrence
    presence: float  # nats for any
    factor: float  # of the repetition penalty, as the next two in `LightTable.nats` already
    decay: float
    clamp: float


class LightTable(NamedTuple):
    """What light rows have more, all of a row in one record of a table."""

    numbers: Tensor  # ``[B, len(LightRow)]`` float64
    nats: Tensor  # ``[B, WINDOW]`` int64 of `samplers.ops.penalties.nats_by_distance`
    bias: Tensor  # ``[B, V]`` float32, added to the logits; -inf: banned

    @classmethod
    def of(cls, table: Tensor, vocab_size: int) -> "LightTable":
        """Return the parts of a table ``[B, light_width(V)]`` int64."""
        numbers, nats, bias = table.tensor_split([len(LightRow._fields), _BIAS], 1)
        return cls(numbers.view(torch.float64), nats, bias.view(torch.float32)[:, :vocab_size])


_BIAS: Final = len(LightRow._fields) + WINDOW


def light_width(vocab_size: int) -> int:
    """Return how many numbers of 8 bytes the record of a light row has."""
    return _BIAS + math.ceil(vocab_size / 2)


def plain_row(params: SamplingParams, vocab_size: int) -> PlainRow:
    """Return the numbers of a row, whose params are resolved and of a `Kind`."""
    return PlainRow(
        max(0.0, within(params.temperature)),
        min(_knob(params, "top_k", vocab_size), vocab_size),
        _knob(params, "top_p", torch.inf),
        _knob(params, "min_p", 0.0),
        min(params.min_tokens_to_keep, vocab_size),
    )


def light_row(params: SamplingParams, vocab_size: int) -> Tensor:
    """Return the record of a row, ``[light_width(V)]`` int64 on the host; see `plain_row`."""
    record = torch.zeros(1, light_width(vocab_size), dtype=torch.int64)
    table = LightTable.of(record, vocab_size)
    repeats = is_on("repetition_penalty", params)
    counts = repeats or is_on("frequency_penalty", params) or is_on("presence_penalty", params)
    numbers = LightRow(
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


def begin(
    numbers: Tensor, codes: Tensor, lengths: Tensor, pages: Tensor, page: int
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Tell each of B rows what the model is fed.

    Args:
        numbers: See `samplers.ar.state.SlotTable`, as the next two.
        pages: ``[B, P]`` int64: where the positions of each row lie in the cache.
        page: Positions of a page.

    Returns:
        ``[B]`` each: the code that a row is fed, int64; its position id; its place in the cache;
            how many positions it sees with that; whether there is no code yet, so that what it
            writes is overwritten, bool.
    """
    owner = numbers[:, Host.OWNER]
    newest = (numbers[:, Host.PROMPTED] + lengths - 1).clamp(min=0)
    frames = lengths.index_select(0, owner)
    last = (frames - 1).clamp(min=0)
    place = numbers[:, Host.PREFIX] + last
    own = pages.gather(1, (place // page)[:, None])[:, 0]
    return (
        codes.gather(1, newest[:, None])[:, 0].index_select(0, owner),
        numbers[:, Host.START] + last,
        own * page + place % page,
        place + 1,
        frames == 0,
    )


def draw(
    logits: Tensor,
    numbers: Tensor,
    guidance: Tensor,
    avoid: Tensor,
    knobs: Tensor,
    codes: Tensor,
    lengths: Tensor,
    stopped: Tensor,
    results: Tensor,
    stop_token: int,
    light: Tensor | None,
) -> None:
    """Draw the next code of the rows that are active, as `ArSampler` does, and append it.

    Reads the numbers on the host: a recording holds it as one operator.

    Args:
        logits: ``[B, V]`` float32, the model's.
        numbers: See `samplers.ar.state.SlotTable`, as ``avoid``; ``codes``, ``lengths`` and
            ``stopped`` change.
        guidance: ``[B, 2]`` float32: strength, above 1, and rescale of rows that have a partner.
        knobs: ``[B, len(PlainRow)]`` float64.
        results: ``[B, 3]`` float64: written are, of active rows, the code, its log-probability in
            nats, and whether the logits had NaN.
        light: ``[B, light_width(V)]`` int64 of `LightTable`; None: all rows are plain.
    """
    host, vocab_size = numbers.cpu().numpy(), logits.shape[1]
    sampler = ArSampler(
        SlotTable.around(host, numbers, avoid, codes, lengths, stopped), stop_token=stop_token
    )
    slots = [slot for slot, one in enumerate(host) if one[Host.ACTIVE]]
    for slot in slots:
        packed = None if light is None else light[slot].cpu().numpy().tobytes()
        params = _unpacked(tuple(knobs[slot].tolist()), packed, vocab_size)
        if host[slot, Host.PARTNER] != slot:
            strength, rescale = guidance[slot].tolist()
            params = params.model_copy(update={"cfg_strength": strength, "cfg_rescale": rescale})
        limit, prompted = (int(host[slot, one]) for one in (Host.LIMIT, Host.PROMPTED))
        sampler.adopt(slot, RowInput(params, 0, limit, prompt=codes[slot, :prompted]))
    if not slots:
        return
    partners = [int(host[slot, Host.PARTNER]) for slot in slots]
    null = [partner for slot, partner in zip(slots, partners, strict=True) if slot != partner]
    own = logits[slots]
    drawn = sampler.step(own, null=logits[null] if null else None)
    results[slots, 0] = drawn.double()
    results[slots, 1] = log_prob_of(filters.sanitise(own), drawn).double()
    results[slots, 2] = (own.isnan().any(-1) | logits[partners].isnan().any(-1)).double()


@lru_cache(maxsize=256)
def _unpacked(plain: tuple[float, ...], light: bytes | None, vocab_size: int) -> SamplingParams:
    """Return params that ask for what a row's numbers say."""
    one = PlainRow(*plain)
    knobs: dict[str, Any] = {
        "temperature": one.temperature, "top_k": int(one.top_k), "top_p": min(1.0, one.top_p),
        "min_p": one.min_p, "min_tokens_to_keep": int(one.keep),
        "penalty_includes_prompt": True,
    }  # fmt: skip
    if light is not None:
        record = torch.frombuffer(bytearray(light), dtype=torch.int64)[None]
        table = LightTable.of(record, vocab_size)
        more, bias = LightRow(*table.numbers[0].tolist()), table.bias[0].tolist()
        knobs |= {
            "min_frames": int(more.least), "repetition_penalty": more.factor,
            "repetition_penalty_window": int(more.window),
            "repetition_penalty_mode": penalties.MODES[int(more.mode)],
            "repetition_penalty_one_time": bool(more.once),
            "repetition_penalty_decay": more.decay,
            "repetition_penalty_clamp": bool(more.clamp),
            "frequency_penalty": more.frequency, "presence_penalty": more.presence,
            "logit_bias": {
                code: nats for code, nats in enumerate(bias) if nats and math.isfinite(nats)
            },
            "ban_tokens": tuple(code for code, nats in enumerate(bias) if nats == -math.inf),
        }  # fmt: skip
    return SamplingParams.model_construct(**SamplingParams().model_dump() | knobs)
