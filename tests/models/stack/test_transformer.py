"""The stack: the cached passes equal the uncached one, and masks hide what they must."""

import subprocess
import sys

import pytest
import torch
from torch import Tensor

from models.stack.cache import KVCache
from models.stack.transformer import PADDING_RANK, Transformer
from tests.conftest import ROOT
from tests.models.stack.stacks import CONFIG, make_stack, vectors

pytestmark = pytest.mark.usefixtures("without_gradients")


@pytest.fixture(scope="module")
def stack() -> Transformer:
    return make_stack()


def uncached(stack: Transformer, x: Tensor, ranks: Tensor | None = None) -> Tensor:
    positions = torch.arange(len(x))[None]
    hidden: Tensor = stack(x[None], positions, None if ranks is None else ranks[None])
    return hidden[0]


def test_a_prefill_and_steps_equal_the_uncached_pass(stack: Transformer) -> None:
    x = vectors(330)
    cache = KVCache(CONFIG, slots=1, max_length=330)
    found = [stack.extend(x[:30], torch.arange(30), cache, 0, torch.arange(30))]
    found += [stack.step(x[i, None], torch.tensor([i]), cache, [0]) for i in range(30, 330)]
    assert (torch.cat(found) - uncached(stack, x)).abs().max() < 1e-4


@pytest.mark.parametrize("prefix", [1, 2, 17, 100])
@pytest.mark.parametrize("kept", [1, 50, 99])
def test_after_a_rewind_steps_equal_the_uncached_pass(
    stack: Transformer, prefix: int, kept: int
) -> None:
    x, other = vectors(prefix + 120), vectors(40, seed=1)
    cache = KVCache(CONFIG, slots=1, max_length=prefix + 120)
    stack.extend(x[:prefix], torch.arange(prefix), cache, 0, torch.arange(prefix))
    for i in range(prefix, prefix + 100):
        stack.step(x[i, None], torch.tensor([i]), cache, [0])
    cache.rewind(0, prefix + kept)
    path = torch.cat([x[: prefix + kept], other])[: prefix + 120]
    found = [
        stack.step(path[i, None], torch.tensor([i]), cache, [0])
        for i in range(prefix + kept, len(path))
    ]
    assert (torch.cat(found) - uncached(stack, path)[prefix + kept :]).abs().max() < 1e-4


def test_slots_of_different_lengths_step_together(stack: Transformer) -> None:
    lengths = [3, 50, 17, 111]
    sequences = [vectors(length + 300, seed) for seed, length in enumerate(lengths)]
    cache = KVCache(CONFIG, slots=6, max_length=420)
    slots = [4, 0, 5, 2]
    for x, slot, length in zip(sequences, slots, lengths, strict=True):
        stack.extend(x[:length], torch.arange(length), cache, slot, torch.arange(length))
    found: list[Tensor] = []
    for step in range(300):
        at = [length + step for length in lengths]
        rows = torch.stack([x[i] for x, i in zip(sequences, at, strict=True)])
        found.append(stack.step(rows, torch.tensor(at), cache, slots))
    for row, (x, length) in enumerate(zip(sequences, lengths, strict=True)):
        expected = uncached(stack, x)[length:]
        assert (torch.stack([step[row] for step in found]) - expected).abs().max() < 1e-4


def test_blocks_one_at_a_time_equal_the_uncached_block_causal_pass(stack: Transformer) -> None:
    x = vectors(47)
    ranks = torch.tensor([0] * 5 + [1] * 12 + [2] * 15 + [3] * 15)
    cache = KVCache(CONFIG, slots=1, max_length=47)
    found = [stack.extend(x[:17], torch.arange(17), cache, 0, ranks[:17])]
    for start, end in ((17, 32), (32, 47)):
        found.append(stack.extend(x[start:end], torch.arange(start, end), cache, 0))
    assert (torch.cat(found) - uncached(stack, x, ranks)).abs().max() < 1e-4


@pytest.mark.parametrize(
    ("ranks", "seen"),
    [
        (torch.arange(6), {0: {0}, 3: {0, 1, 2, 3}, 5: {0, 1, 2, 3, 4, 5}}),
        (torch.tensor([0, 0, 1, 1, 2, 2]), {0: {0, 1}, 2: {0, 1, 2, 3}, 5: {0, 1, 2, 3, 4, 5}}),
        (torch.zeros(6, dtype=torch.int64), {0: {0, 1, 2, 3, 4, 5}, 5: {0, 1, 2, 3, 4, 5}}),
    ],
    ids=["causal", "block_causal", "full"],
)
def test_ranks_decide_who_sees_whom(
    stack: Transformer, ranks: Tensor, seen: dict[int, set[int]]
) -> None:
    x = vectors(6)
    before = uncached(stack, x, ranks)
    for changed in range(6):
        moved = x.clone()
        moved[changed] += 1
        differs = (uncached(stack, moved, ranks) - before).abs().amax(1) > 1e-6
        for position, visible in seen.items():
            assert bool(differs[position]) == (changed in visible)


def test_padding_changes_nothing(stack: Transformer) -> None:
    x, ranks = vectors(10), torch.arange(10)
    padded = torch.cat([x, vectors(5, seed=3)])[None]
    padded_ranks = torch.cat([ranks, torch.full((5,), PADDING_RANK)])[None]
    found = stack(padded, torch.arange(15)[None], padded_ranks)[0, :10]
    assert (found - uncached(stack, x, ranks)).abs().max() < 1e-5


def test_rotary_positions_are_relative(stack: Transformer) -> None:
    x = vectors(20)
    found = stack(x[None], torch.arange(500, 520)[None])[0]
    assert (found - uncached(stack, x)).abs().max() < 1e-3


def test_the_float_stack_does_not_load_the_compiler_of_the_int8_one() -> None:
    program = (
        "import sys, models.valle; print(*{'numba', 'llvmlite', 'models.int8'} & {*sys.modules})"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == []
