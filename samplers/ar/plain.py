"""The step of rows that a plain or a light chain draws, as a few operators' worth of numbers.

`samplers.ar.chain.PLAIN` has temperature, top-k, top-p and min-p alone, so a row's knobs are five
numbers; `LIGHT` also what lowers and raises single codes before them, which is a table more. A step
is two functions of tensors, before the model and behind it, for each of which there is a kernel:
`models.cuda.kernels`. Both change the tensors of a `RowState`.
"""

import math
from typing import Final, NamedTuple

import torch
from torch import Tensor

from samplers.ar.chain import LIGHT
from samplers.ar.row_state import Host, RowState
from samplers.ar.trace import log_prob_of
from samplers.knobs.features import FEATURES, is_on
from samplers.knobs.params import SamplingParams
from samplers.ops import filters, penalties
from samplers.ops import temperature as temperatures
from samplers.ops.bounds import within
from samplers.ops.draw import Draw, categorical, greedy, uniform
from samplers.ops.guidance import guide


class PlainRow(NamedTuple):
    """The knobs of a row, each with the value that changes nothing where it is off.

    Attributes:
        temperature: 0 is greedy.
        top_k: At most the size of the vocabulary.
        top_p: Infinity keeps all.
        min_p: 0 keeps all.
        keep: How many codes min-p leaves at least; at most the size of the vocabulary.
    """

    temperature: float
    top_k: float
    top_p: float
    min_p: float
    keep: float


class LightRow(NamedTuple):
    """The numbers of what a light row has more, likewise.

    Attributes:
        least: Frames before which the stop is forbidden.
        window: How many of the newest codes penalties count; 0 where there is none.
        mode: Of the repetition penalty, see `samplers.ops.penalties.apply_penalty`.
        once: 1 where only the newest occurrence of a code counts for it.
        frequency: Nats for each occurrence.
        presence: Nats for any.
    """

    least: float
    window: float
    mode: float
    once: float
    frequency: float
    presence: float


WINDOW: Final = LIGHT.lookback
"""The most codes that penalties of a light row count."""


class LightTable(NamedTuple):
    """What light rows have more, all of a row in one record of a table.

    Attributes:
        numbers: ``[B, len(LightRow)]`` float64.
        nats: ``[B, WINDOW]`` int64 of `samplers.ops.penalties.nats_by_distance`.
        bias: ``[B, V]`` float32, added to the logits; -inf: banned.
    """

    numbers: Tensor
    nats: Tensor
    bias: Tensor

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
    """Return the numbers of a row.

    Args:
        params: Resolved; a plain chain serves them, or a light one.
        vocab_size: V.
    """
    return PlainRow(
        max(0.0, within(params.temperature)),
        min(_knob(params, "top_k", vocab_size), vocab_size),
        _knob(params, "top_p", torch.inf),
        _knob(params, "min_p", 0.0),
        min(params.min_tokens_to_keep, vocab_size),
    )


def light_row(params: SamplingParams, vocab_size: int) -> Tensor:
    """Return the record of a row, ``[light_width(V)]`` int64 on the host.

    Args:
        params: Resolved; a light chain serves them.
        vocab_size: V.
    """
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
    numbers: Tensor,
    codes: Tensor,
    lengths: Tensor,
    stopped: Tensor,
    seen: Tensor,
    pages: Tensor,
    page: int,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Begin a step: rows of another generation begin anew, and each is told what it is fed.

    Args:
        numbers: As the next four of `RowState`; the last three of them are changed.
        codes: See there.
        lengths: See there.
        stopped: See there.
        seen: See there.
        pages: ``[B, P]`` int64: where the positions of each row lie in the cache.
        page: Positions of a page.

    Returns:
        Of each row, ``[B]`` each: the code that it is fed, int64; its position id; its place in the
        cache; how many of its positions it sees with that; and whether there is no code yet, so
        that what it writes is overwritten, bool.
    """
    state = RowState(numbers, codes, codes, codes, lengths, stopped, seen, lengths, lengths)
    state.begin_step()
    owner = state.number(Host.OWNER)
    frames = lengths.index_select(0, owner)
    last = (frames - 1).clamp(min=0)
    place = state.number(Host.PREFIX) + last
    own = pages.gather(1, (place // page)[:, None])[:, 0]
    return (
        state.newest().index_select(0, owner),
        state.number(Host.START) + last,
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
    """Draw the next code of every row, and append it to those that are active.

    What `RowState.draw` does with a plain or a light chain, with guidance before it and the results
    behind.

    Args:
        logits: ``[B, V]`` float32, the model's.
        numbers: See `RowState`.
        guidance: ``[B, 2]`` float32: strength and rescale of rows that are guided.
        avoid: See `RowState`.
        knobs: ``[B, len(PlainRow)]`` float64.
        codes: See `RowState`; changed, as the next two.
        lengths: See there.
        stopped: See there.
        results: ``[B, 3]`` float64: written are the code, its log-probability in nats, and whether
            the logits had NaN.
        stop_token: The code that ends an utterance.
        light: ``[B, light_width(V)]`` int64 of `LightTable`; None: all rows are plain.
    """
    vocab_size = logits.shape[1]
    partner = numbers[:, Host.PARTNER]
    null = logits.index_select(0, partner)
    moved = guide(logits[:, None], null[:, None], *guidance.unbind(1))[:, 0]
    own = torch.arange(len(logits), device=logits.device)
    guided = torch.where((partner != own)[:, None], moved, logits)
    applies = lengths == numbers[:, Host.AVOID]
    clean = filters.sanitise(torch.where(applies[:, None], guided + avoid, guided))
    if light is not None:
        clean = _penalised(clean, numbers, codes, lengths, stop_token, light)

    temperature, top_p, min_p = (knobs[:, place, None].float() for place in (0, 2, 3))
    top_k, keep = (knobs[:, place, None].long() for place in (1, 4))
    is_greedy = temperature <= 0
    scaled = temperatures.scale(clean, temperature.masked_fill(is_greedy, 1.0))
    scaled = torch.where(is_greedy, temperatures.only_best(clean), scaled)
    ordered = filters.descending(scaled)
    for floor_of, knob in ((filters.top_k_floor, top_k), (filters.top_p_floor, top_p)):
        floor = floor_of(ordered, knob)
        scaled, ordered = (filters.keep_from(one, floor) for one in (scaled, ordered))
    likely = filters.min_p_floor(ordered[:, :1], min_p)
    scaled = filters.keep_from(scaled, torch.minimum(likely, filters.top_k_floor(ordered, keep)))

    key, attempt = numbers[:, Host.KEY, None], numbers[:, Host.ATTEMPT, None]
    noise = uniform(key, vocab_size, step=lengths[:, None], attempt=attempt, draw=Draw.CODE)
    drawn = torch.where(is_greedy[:, 0], greedy(scaled), categorical(scaled, noise))
    empty = scaled.gather(1, drawn[:, None])[:, 0] == -torch.inf
    full = lengths >= numbers[:, Host.LIMIT]
    ended = stopped | empty | (drawn == stop_token) | full
    drawn = drawn.masked_fill(ended, stop_token)
    results[:, 0].copy_(drawn)
    results[:, 1].copy_(log_prob_of(filters.sanitise(logits), drawn))
    results[:, 2].copy_(logits.isnan().any(-1) | null.isnan().any(-1))
    active = numbers[:, Host.ACTIVE] > 0
    # A row that does not grow writes behind its end.
    codes.scatter_(1, (numbers[:, Host.PROMPTED] + lengths)[:, None], drawn[:, None])
    lengths.add_(active & ~ended)
    stopped.copy_(torch.where(active, ended, stopped))


def _penalised(
    logits: Tensor,
    numbers: Tensor,
    codes: Tensor,
    lengths: Tensor,
    stop_token: int,
    light: Tensor,
) -> Tensor:
    """Return ``[B, V]`` logits with what light rows add and take; arguments as of `draw`."""
    vocab_size = logits.shape[1]
    table = LightTable.of(light, vocab_size)
    least, window, mode, once = (table.numbers[:, place, None].long() for place in range(4))
    frequency, presence = (table.numbers[:, place, None].float() for place in (4, 5))
    back = torch.arange(1, min(WINDOW, codes.shape[1] - 1) + 1, device=codes.device)
    places = (numbers[:, Host.PROMPTED] + lengths)[:, None] - back
    counted = codes.gather(1, places.clamp(min=0)).masked_fill_(places < 0, -1)
    held = penalties.hold_stop(logits + table.bias, lengths[:, None], least, stop_token)
    each = table.nats[:, : len(back)]
    nats = penalties.summed_nats(counted, vocab_size, each, once > 0)
    lowered = penalties.apply_penalty(held, nats, mode)
    found = penalties.occurrences(counted, vocab_size, window)
    return penalties.frequency_presence(lowered, found, frequency, presence)
