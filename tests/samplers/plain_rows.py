"""Rows of a table in all conditions, and what a function that samples plain rows makes of them."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from samplers import plain
from samplers.ar.state import PREDICTED, HostColumn, SlotTable
from samplers.knobs.params import SamplingParams
from samplers.ops.sample import Stage, stream_key
from samplers.plain import plain_row

CPU = torch.device("cpu")
ROWS, CODES, STOP, FEW = 8, 100, 99, 6
KNOBS: list[dict[str, Any]] = [
    {},
    {"temperature": 0.0},
    {"temperature": 0.7, "top_k": 5},
    {"temperature": 1.3, "top_p": 0.6},
    {"min_p": 0.2, "temperature": 0.5},
    {"min_p": 0.9, "min_tokens_to_keep": 4},
    {"temperature": 0.8, "top_k": 40, "top_p": 0.9, "min_p": 0.05},
    {"top_p": 0.0001, "temperature": 2.0},
    {"top_k": 1},
    {"temperature": 1e-7, "top_k": 5000},
]
PENALISED: list[dict[str, Any]] = [
    {"repetition_penalty": 1.4, "repetition_penalty_mode": "signed"},
    {"logit_bias": {3: 2.0, 5: -4.0, 999: 1.0}, "ban_tokens": (2, 98), "temperature": 0.7},
    {"min_frames": 20, "temperature": 0.0, "logit_bias": {STOP: 99.0}},
    {"repetition_penalty": 1.2, "repetition_penalty_decay": -0.5, "top_p": 0.9,
     "repetition_penalty_mode": "additive", "repetition_penalty_clamp": True},
    {"presence_penalty": 1.0, "frequency_penalty": 0.2},
    {"repetition_penalty": 1.3, "repetition_penalty_one_time": True, "top_k": 30,
     "repetition_penalty_window": 6, "min_frames": 5},
    {},
    {"repetition_penalty": 0.8, "repetition_penalty_mode": "raw", "frequency_penalty": -0.2,
     "repetition_penalty_window": 4, "logit_bias": {STOP: 3.0}},
]  # fmt: skip
GREEDY = [knobs | {"temperature": 0.0} for knobs in PENALISED]  # nothing else decides


def rows_of(seed: int, device: torch.device, codes: int = STOP) -> SlotTable:
    """Return rows in all conditions: new, under way, guided, at their limit, stopped, idle.

    Args:
        codes: How many there are among those sampled before: of few, many are repeated.
    """
    chance = torch.Generator().manual_seed(seed)

    def integers(high: int, *shape: int) -> Tensor:
        return torch.randint(high, shape or (ROWS,), generator=chance)

    lengths = integers(30)
    lengths[:2] = torch.tensor([0, 1])
    keys = [stream_key(seed, row, Stage.AR) for row in range(ROWS)]
    avoided = torch.where(integers(2) > 0, lengths + integers(3), 0)
    columns = {
        HostColumn.ACTIVE: integers(4) > 0,
        HostColumn.ATTEMPT: integers(3),
        HostColumn.LIMIT: 10 + integers(40),
        HostColumn.KEY: torch.tensor(keys),
        HostColumn.PROMPTED: integers(6),
        HostColumn.AVOID_UNTIL: avoided,
        HostColumn.UNGUIDED_UNTIL: torch.where(integers(2) > 0, avoided, 0),
        HostColumn.PARTNER: integers(ROWS),
    }
    table = SlotTable(ROWS, frames=40, prompt=6, vocab_size=CODES, device=device)
    table.numbers.copy_(torch.stack([columns[column].long() for column in HostColumn], 1))
    table.avoid.copy_(torch.randn(ROWS, CODES, generator=chance) * 3)
    table.codes.copy_(integers(codes, ROWS, 47))
    table.lengths.copy_(lengths)
    table.stopped.copy_(integers(4) == 0)
    table.numbers[(integers(4) == 0).to(device), HostColumn.PARTNER] = PREDICTED
    return table


def records(knobs: Sequence[Mapping[str, Any]], number: int, partners: Sequence[int]) -> Tensor:
    """Return the records of rows of some knobs in turn; guided is who has another for a partner."""
    return torch.stack([
        plain_row(
            SamplingParams(
                **knobs[(number + row) % len(knobs)],
                cfg_strength=1.1 + row / 4 if partner != row else 1.0,
                cfg_rescale=row / ROWS,
            ),
            CODES,
        )
        for row, partner in enumerate(partners)
    ])


def logits_of(number: int) -> Tensor:
    """Return those of all rows, and behind them what is predicted of their null condition."""
    chance = torch.Generator().manual_seed(number)
    logits = torch.cat([3 * torch.randn(ROWS, CODES, generator=chance) for _ in range(2)])
    kind = number % 4
    if kind == 1:  # ties
        logits = logits.round()
    if kind == 2:
        logits[0, 3], logits[1, 4], logits[2, 5:] = torch.nan, torch.inf, -torch.inf
        logits[3] = -torch.inf
    return logits


def sampled(run: Any, logits: Tensor, table: SlotTable, knobs: Tensor) -> Tensor:
    device = table.codes.device
    results = torch.zeros(ROWS, 3, dtype=torch.float64).to(device)
    run(
        logits.to(device), table.numbers, table.avoid, knobs.to(device), table.codes,
        table.lengths, table.stopped, results, STOP,
    )  # fmt: skip
    return results.cpu()


def assert_sampled_as_by_the_sampler(
    sample: Callable[..., None],
    knobs: Sequence[Mapping[str, Any]],
    seeds: Iterable[int],
    device: torch.device,
) -> None:
    """Of rows that are active; others sample nothing."""
    for seed in seeds:
        logits, codes = logits_of(seed), STOP if knobs is KNOBS else FEW
        one, other = rows_of(seed, device, codes), rows_of(seed, CPU, codes)
        if knobs is GREEDY:  # of codes that were sampled before, nothing but penalties decides
            logits[:, :FEW] = logits[:, :FEW] / 3 + 30
            for state in (one, other):
                state.lengths[:], state.stopped[:] = 20, False
                for column, number in (
                    (HostColumn.ACTIVE, 1),
                    (HostColumn.LIMIT, 99),
                    (HostColumn.AVOID_UNTIL, 0),
                    (HostColumn.UNGUIDED_UNTIL, 0),
                ):
                    state.numbers[:, column] = number
                state.numbers[:, HostColumn.PARTNER] = torch.arange(ROWS)
        table = records(knobs, seed, other.numbers[:, HostColumn.PARTNER].tolist())
        found, expected = (
            sampled(run, logits, state, table)[state.numbers[:, HostColumn.ACTIVE].cpu() > 0]
            for run, state in ((sample, one), (plain.sample, other))
        )
        assert torch.equal(found[:, ::2], expected[:, ::2])
        torch.testing.assert_close(found[:, 1], expected[:, 1], rtol=1e-5, atol=1e-5)
        assert torch.equal(one.lengths.cpu(), other.lengths)
        assert torch.equal(one.stopped.cpu(), other.stopped)
        for row, held in enumerate(
            (other.numbers[:, HostColumn.PROMPTED] + other.lengths).tolist()
        ):
            assert torch.equal(one.codes[row, :held].cpu(), other.codes[row, :held])
