"""A step in shapes that never change is the step that knows how long everything is."""

from collections.abc import Iterator, Sequence

import pytest
import torch
from torch import Tensor

from models.cuda.kernels.choice import FUSED, TORCH, Kernels
from models.stack.attention import attention_statistics, masked_statistics
from models.stack.cache import KVCache
from models.stack.fixed_step import buckets
from models.stack.paged_cache import PAGE, PagePool
from models.stack.transformer import Transformer
from tests.models.stack.stacks import CONFIG, make_stack, vectors

SLOTS, ROOM = 6, 600
CPU = torch.device("cpu")
CLOSE = 1e-5
"""Of vectors whose entries are about 1; the two differ in the order of their float32 sums."""


@pytest.fixture(autouse=True, params=[FUSED, TORCH], ids=["fused", "torch"])
def kernels(request: pytest.FixtureRequest) -> Iterator[None]:
    """Every test with kernels of our own, and with torch's."""
    Both.kernels = request.param
    with torch.inference_mode():
        yield


class Both:
    """Two caches that hold the same, of which one is in pages and stepped in fixed shapes."""

    kernels: Kernels

    def __init__(self) -> None:
        self.stack = make_stack()
        self.stack.kernels = self.kernels
        self.pool = PagePool(CONFIG, SLOTS * -(-ROOM // PAGE), dtype=torch.float32, device=CPU)
        self.fixed, self.free = self.pool.new_cache(SLOTS, ROOM), KVCache(CONFIG, SLOTS, ROOM)
        self.fixed_step = self.stack.fixed_step(self.pool, rows=SLOTS, max_length=ROOM)

    def extend(self, slot: int, count: int, seed: int = 0) -> None:
        start = self.free.lengths[slot]
        x, at = vectors(count, seed), torch.arange(start, start + count)
        for cache in (self.fixed, self.free):
            self.stack.extend(x, at, cache, slot, at)

    def step(self, slots: Sequence[int], seed: int = 0) -> tuple[Tensor, Tensor]:
        """Return what each gives for the same new rows."""
        positions = torch.tensor(self.free.lengths)
        table = torch.full((SLOTS, self.fixed_step.columns[-1] // PAGE), self.pool.padding)
        for slot in range(SLOTS):
            if slot in slots:
                self.fixed.reserve(slot, self.free.lengths[slot] + 1)
            pages = self.fixed.pages(slot)
            table[slot, : len(pages)] = torch.tensor(pages)
        x = vectors(SLOTS, seed)
        rows, columns = self.fixed_step.size(
            max(slots) + 1, 1 + max(self.free.lengths[slot] for slot in slots)
        )
        at, table = positions[:rows], table[:rows]
        places = table.gather(1, at[:, None] // PAGE)[:, 0] * PAGE + at % PAGE
        found, _ = self.fixed_step.run(x[:rows], at, places, at + 1, table[:, : columns // PAGE])
        index = torch.tensor(slots)
        expected = self.stack.step(x[index], positions[index], self.free, slots)
        for slot in slots:
            self.fixed.advance(slot, 1)
        return found[index], expected


def assert_close(found: Tensor, expected: Tensor) -> None:
    assert (found - expected).abs().max() < CLOSE


def test_buckets_double_and_end_with_the_whole() -> None:
    assert list(buckets(1, 32)) == [1, 2, 4, 8, 16, 32]
    assert list(buckets(256, 600)) == [256, 512, 600]
    assert list(buckets(256, 100)) == [100]


def test_the_size_is_the_least_that_holds_the_batch() -> None:
    step = Both().fixed_step
    assert step.size(1, 256) == (1, 256)
    assert step.size(3, 257) == (4, 512)
    assert step.size(5, 513) == (6, 640)


@pytest.mark.parametrize("slots", [[0], [1], [1, 0], [2, 0, 1], [3], [5, 2, 0], [*range(SLOTS)]])
@pytest.mark.parametrize("length", [1, 254, 510])
def test_a_step_is_the_step_that_knows_the_lengths(slots: list[int], length: int) -> None:
    both = Both()
    for slot in slots:
        both.extend(slot, length + 3 * slot, seed=slot)
    for seed in range(5):  # over a border of the columns
        assert_close(*both.step(slots, seed))


def test_a_step_touches_nothing_that_idle_slots_hold() -> None:
    both = Both()
    for slot in range(SLOTS):
        both.extend(slot, 20 + slot, seed=slot)

    def held() -> list[Tensor]:
        parts = [both.fixed.part(0, slot, 0, 20 + slot) for slot in range(SLOTS)]
        return [one.clone() for part in parts for one in part]

    before = held()
    both.step([1, 4])
    assert all(torch.equal(old, new) for old, new in zip(before, held(), strict=True))


@pytest.mark.parametrize("broken", [torch.nan, torch.inf, -torch.inf])
def test_what_is_no_number_spoils_neither_neighbours_nor_the_next_of_its_slot(
    broken: float,
) -> None:
    both, at = Both(), torch.arange(3)
    both.extend(0, 3)
    x = vectors(3).index_fill(1, torch.tensor([5]), broken)
    assert not both.stack.extend(x, at, both.fixed, 1, at).isfinite().all()
    both.fixed.rewind(1, 0)
    both.extend(1, 2, seed=7)  # the broken positions lie behind its end
    for seed in range(3):
        assert_close(*both.step([0, 1], seed))


def test_attention_of_padded_rows_is_told_as_that_of_each() -> None:
    generator = torch.Generator().manual_seed(1)
    queries = torch.randn(3, CONFIG.heads, CONFIG.head_dim, generator=generator)
    keys = torch.randn(3, CONFIG.kv_heads, 40, CONFIG.head_dim, generator=generator)
    lengths = [1, 17, 40]
    found = masked_statistics(queries, keys, torch.tensor(lengths))
    own = [rows[:, :length] for rows, length in zip(keys, lengths, strict=True)]
    expected = attention_statistics(queries.unbind(), own)
    for name in ("entropy", "varentropy", "agreement", "strength"):
        assert_close(getattr(found, name), getattr(expected, name))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_step_asks_a_device_nothing(dtype: torch.dtype) -> None:
    """A device whose tensors have no contents stands for a GPU: whoever reads one is refused."""
    stack = Transformer(CONFIG).requires_grad_(False).to("meta")
    for parameter in stack.parameters():
        parameter.data = parameter.data.to(dtype)
    pool = PagePool(CONFIG, 9, dtype=dtype, device=torch.device("meta"))
    step = stack.fixed_step(pool, rows=SLOTS, max_length=ROOM)
    x, at = torch.zeros(2, CONFIG.width, dtype=dtype, device="meta"), torch.arange(2, device="meta")
    hidden, queries = step.run(x, at, at, at, torch.zeros(2, 4, dtype=torch.int64, device="meta"))
    assert hidden.is_meta
    assert hidden.dtype == queries.dtype == dtype
