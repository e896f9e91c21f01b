"""The step of rows of a plain chain in two kernels is that of torch's operators."""

import math
from collections.abc import Iterator
from dataclasses import fields
from typing import Any

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton")

from models.cuda.kernels import plain as kernel
from samplers.ar import plain
from samplers.ar.chain import LIGHT, PLAIN, Chain, ChainKind, kind_of
from samplers.ar.plain import LightRow, LightTable, PlainRow, light_row, light_width, plain_row
from samplers.ar.row_state import Host, RowState
from samplers.knobs.params import SamplingParams
from samplers.ops import filters
from samplers.ops.draw import stream_key, uniform
from samplers.ops.guidance import guide
from tests.models.cuda.kernels.cases import normal

CPU = torch.device("cpu")
ROWS, CODES, STOP = 8, 100, 99
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
LIGHT_KNOBS: list[dict[str, Any]] = [
    {"repetition_penalty": 1.4},
    {"logit_bias": {3: 2.0, 5: -4.0, 999: 1.0}, "ban_tokens": (7, 98), "temperature": 0.7},
    {"min_frames": 20, "temperature": 0.0},
    {"repetition_penalty": 1.2, "repetition_penalty_decay": -0.5, "top_p": 0.9,
     "repetition_penalty_mode": "additive", "repetition_penalty_clamp": True},
    {"presence_penalty": 0.7, "frequency_penalty": 0.4, "repetition_penalty_window": 10},
    {"repetition_penalty": 1.3, "repetition_penalty_one_time": True, "top_k": 30,
     "repetition_penalty_window": 128, "min_frames": 5},
    {},
    {"repetition_penalty": 0.8, "repetition_penalty_mode": "raw", "frequency_penalty": -0.2,
     "repetition_penalty_window": 4, "logit_bias": {STOP: 3.0}},
]  # fmt: skip
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # NumPy's, of NaN and wrapping


@pytest.fixture(autouse=True)
def sorted_as_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(
        filters, "descending", lambda logits: logits.sort(-1, descending=True).values
    )
    with torch.inference_mode():
        yield


def rows_of(seed: int, codes: int = STOP) -> RowState:
    """Return rows in all conditions: new, under way, guided, at their limit, stopped, idle.

    Args:
        seed: Of everything.
        codes: How many there are among those drawn before: of few, many are repeated.
    """
    state = RowState.empty(ROWS, frames=40, prompted=6, vocab_size=CODES, device=CPU)
    chance = torch.Generator().manual_seed(seed)

    def integers(high: int) -> Tensor:
        return torch.randint(high, (ROWS,), generator=chance)

    state.codes.copy_(torch.randint(codes, state.codes.shape, generator=chance))
    state.lengths.copy_(integers(30))
    state.lengths[:2] = torch.tensor([0, 1])
    state.stopped.copy_(integers(4) == 0)
    state.seen.copy_(integers(2))
    state.avoid.copy_(torch.randn(state.avoid.shape, generator=chance) * 3)
    numbers = {
        Host.ACTIVE: integers(4) > 0, Host.GENERATION: integers(2), Host.RESTART: integers(9),
        Host.ATTEMPT: integers(3), Host.LIMIT: 10 + integers(40), Host.PROMPTED: integers(6),
        Host.AVOID: torch.where(integers(2) > 0, state.lengths, -1), Host.PREFIX: integers(50),
        Host.START: integers(50), Host.OWNER: integers(ROWS), Host.PARTNER: integers(ROWS),
        Host.KEY: torch.tensor([stream_key(seed, row, 0) for row in range(ROWS)]),  # type: ignore[arg-type]
    }  # fmt: skip
    for column, values in numbers.items():
        state.numbers[:, column] = values
    return state


def on(state: RowState, device: torch.device) -> RowState:
    return RowState(*(getattr(state, one.name).to(device, copy=True) for one in fields(state)))


def guidance() -> Tensor:
    return torch.stack([torch.linspace(0, 3, ROWS), torch.linspace(0, 1, ROWS)], 1)


def table(number: int, vocab_size: int = CODES) -> Tensor:
    knobs = [KNOBS[(number + row) % len(KNOBS)] for row in range(ROWS)]
    rows = [plain_row(SamplingParams(**one), vocab_size) for one in knobs]
    return torch.tensor(rows, dtype=torch.float64)


def logits_of(number: int, size: int = CODES) -> Tensor:
    logits = 3 * normal(ROWS, size, seed=number)
    kind = number % 4
    if kind == 1:  # ties
        logits = logits.round()
    if kind == 2:
        logits[0, 3], logits[1, 4], logits[2, 5:] = torch.nan, torch.inf, -torch.inf
        logits[3] = -torch.inf
    return logits


def light_params(number: int) -> list[SamplingParams]:
    return [SamplingParams(**LIGHT_KNOBS[(number + row) % len(LIGHT_KNOBS)]) for row in range(ROWS)]


def drawn(
    run: Any, logits: Tensor, state: RowState, knobs: Tensor, light: Tensor | None = None
) -> tuple[Tensor, RowState]:
    device, results = state.codes.device, torch.zeros(ROWS, 3, dtype=torch.float64)
    results = results.to(device)
    run(
        logits.to(device), state.numbers, guidance().to(device), state.avoid, knobs.to(device),
        state.codes, state.lengths, state.stopped, results, STOP,
        None if light is None else light.to(device),
    )  # fmt: skip
    return results.cpu(), state


def drawn_by_chain(
    kind: ChainKind, logits: Tensor, state: RowState, params: list[SamplingParams]
) -> RowState:
    """Draw by a chain of that kind, with guidance before it."""
    chain = Chain(kind, ROWS, vocab_size=CODES, stop_token=STOP, device=CPU)
    chain.lie_in(torch.stack([chain.record(one, None) for one in params]))
    partner = state.number(Host.PARTNER)
    moved = guide(logits[:, None], logits.index_select(0, partner)[:, None], *guidance().unbind(1))
    guided = torch.where((partner != torch.arange(ROWS))[:, None], moved[:, 0], logits)
    state.draw(chain, state.penalised(guided), None, STOP)
    return state


def assert_same_state(one: RowState, other: RowState) -> None:
    for field in fields(RowState):
        assert torch.equal(getattr(one, field.name).cpu(), getattr(other, field.name)), field.name


@pytest.mark.parametrize("seed", range(10))
def test_rows_begin_as_by_operators(seed: int, device: torch.device) -> None:
    one, other = on(rows_of(seed), device), rows_of(seed)
    pages = torch.randint(999, (ROWS, 12), generator=torch.Generator().manual_seed(seed))
    found, expected = (
        run(
            state.numbers, state.codes, state.lengths, state.stopped, state.seen,
            pages.to(state.codes.device), 8,
        )
        for run, state in ((kernel.begin, one), (plain.begin, other))
    )  # fmt: skip
    for left, right in zip(found, expected, strict=True):
        assert torch.equal(left.cpu(), right)
    assert_same_state(one, other)


@pytest.mark.parametrize("seed", range(12))
def test_codes_results_and_state_are_those_of_operators(seed: int, device: torch.device) -> None:
    logits, knobs = logits_of(seed), table(seed)
    found, one = drawn(kernel.draw, logits, on(rows_of(seed), device), knobs)
    expected, other = drawn(plain.draw, logits, rows_of(seed), knobs)
    assert torch.equal(found[:, 0], expected[:, 0])
    assert torch.equal(found[:, 2], expected[:, 2])
    torch.testing.assert_close(found[:, 1], expected[:, 1], rtol=1e-5, atol=1e-5)
    assert_same_state(one, other)


@pytest.mark.parametrize("seed", range(12))
def test_operators_draw_what_a_plain_chain_does(seed: int) -> None:
    logits = logits_of(seed)
    _, one = drawn(plain.draw, logits, rows_of(seed), table(seed))
    params = [SamplingParams(**KNOBS[(seed + row) % len(KNOBS)]) for row in range(ROWS)]
    assert_same_state(one, drawn_by_chain(PLAIN, logits, rows_of(seed), params))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(16))
def test_light_rows_are_drawn_as_by_operators(seed: int, device: torch.device) -> None:
    logits, params = logits_of(seed), light_params(seed)
    knobs = torch.tensor([plain_row(one, CODES) for one in params], dtype=torch.float64)
    light = torch.stack([light_row(one, CODES) for one in params])
    state = rows_of(seed, codes=12)
    found, one = drawn(kernel.draw, logits, on(state, device), knobs, light)
    expected, other = drawn(plain.draw, logits, state, knobs, light)
    assert torch.equal(found[:, 0], expected[:, 0])
    torch.testing.assert_close(found[:, 1:], expected[:, 1:], rtol=1e-5, atol=1e-5)
    assert_same_state(one, other)


@pytest.mark.parametrize("seed", range(16))
def test_operators_draw_what_a_light_chain_does(seed: int) -> None:
    logits, params = logits_of(seed), light_params(seed)
    assert LIGHT in map(kind_of, params)
    knobs = torch.tensor([plain_row(one, CODES) for one in params], dtype=torch.float64)
    light = torch.stack([light_row(one, CODES) for one in params])
    _, one = drawn(plain.draw, logits, rows_of(seed, codes=12), knobs, light)
    assert_same_state(one, drawn_by_chain(LIGHT, logits, rows_of(seed, codes=12), params))


@pytest.mark.parametrize("seed", range(4))
def test_a_plain_row_is_drawn_alike_beside_light_ones(seed: int, device: torch.device) -> None:
    light = torch.stack([light_row(SamplingParams(), CODES)] * ROWS)
    found, one = drawn(kernel.draw, logits_of(seed), on(rows_of(seed), device), table(seed), light)
    alone, other = drawn(kernel.draw, logits_of(seed), on(rows_of(seed), device), table(seed))
    assert torch.equal(found, alone)
    assert_same_state(one, on(other, CPU))


def test_the_noise_has_the_same_bits(device: torch.device) -> None:
    import triton
    import triton.language as tl

    @triton.jit  # type: ignore[untyped-decorator]
    def noise_kernel(key, length, attempt, out, SIZE: tl.constexpr):
        ids = tl.arange(0, SIZE)
        tl.store(out + ids, kernel.uniform(tl.load(key), tl.load(length), tl.load(attempt), ids))

    for number in range(20):
        key, length, attempt = stream_key(number, number, 0), 7 * number, number % 3  # type: ignore[arg-type]
        out = torch.zeros(1024, device=device)
        given = (torch.tensor([one], device=device) for one in (key, length, attempt))
        noise_kernel[(1,)](*given, out, 1024)
        expected = uniform(torch.tensor([[key]]), 1024, step=length, attempt=attempt)
        assert torch.equal(out.cpu(), expected[0])


def test_what_is_off_changes_nothing() -> None:
    assert plain_row(SamplingParams(), 10) == PlainRow(1.0, 10, math.inf, 0.0, 1)
    assert plain_row(SamplingParams(top_k=50, temperature=0.0), 10).top_k == 10
    record = light_row(SamplingParams(), 11)
    assert len(record) == light_width(11)
    numbers, nats, bias = LightTable.of(record[None], 11)
    assert LightRow(*numbers[0].tolist()) == LightRow(0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
    assert not nats.any()
    assert bias.tolist() == [[0.0] * 11]
