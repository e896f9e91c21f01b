"""Passes over slots, of memory of their own or in pages, are the passes without a cache."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from torch import Tensor

from gpu.kernels import FUSED, TORCH
from models.stack.attention import attention_statistics, measure_attention
from models.stack.cache import KVCache
from models.stack.paged_cache import PAGE
from models.stack.taps import Taps
from tests.models.stack.stacks import CONFIG, make_stack, pool_of, scores_of, uncached, vectors

pytestmark = pytest.mark.usefixtures("without_gradients")

SLOTS, ROOM, BLOCK = 3, 3 * PAGE, 5
DEEDS = ["extend", "extend", "step", "step", "record", "record", "rewind", "load", "fork"]
FRAMES = 20
TAPS = Taps([-1], [0, CONFIG.layers - 1])
MASKS: dict[str, Callable[[Tensor], Tensor]] = {
    "causal": lambda frames: frames, "blocks": lambda frames: frames // BLOCK,
    "full": lambda frames: frames * 0,
}  # fmt: skip
CLOSE = 1e-4


@dataclass
class Held:
    """What a slot holds: vectors, and whom each sees."""

    x: Tensor = field(default_factory=lambda: vectors(0))
    ranks: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.int64))

    def first(self, count: int) -> "Held":
        return Held(self.x[:count], self.ranks[:count])

    def with_more(self, x: Tensor, ranks: Tensor) -> "Held":
        start = int(self.ranks.max()) + 1 if len(self.ranks) else 0
        return Held(torch.cat([self.x, x]), torch.cat([self.ranks, start + ranks]))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["slots", "fused", "torch"])
@settings(
    max_examples=15, phases=(Phase.explicit, Phase.reuse, Phase.generate),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)  # fmt: skip
@given(st.data())
def test_whatever_slots_go_through_their_passes_are_those_without_a_cache(
    kind: str, data: st.DataObject
) -> None:
    stack, pool = make_stack(), pool_of(40)
    stack.kernels = TORCH if kind == "torch" else FUSED
    caches: list[Any] = [
        KVCache(CONFIG, SLOTS, ROOM) if kind == "slots" else pool.new_cache(SLOTS, ROOM)
        for _ in range(2)
    ]
    for cache in caches:  # what lies behind a slot's length must not be seen
        for tensor in (*cache.keys, *cache.values) if isinstance(cache, KVCache) else pool.keys:
            tensor.fill_(1e3)
    held = [[Held() for _ in range(SLOTS)] for _ in caches]

    def draw(most: int, least: int = 0) -> int:
        return data.draw(st.integers(least, most))

    def extend(which: int, slot: int, count: int, number: int) -> None:
        cache, before = caches[which], held[which][slot]
        start, x, layer = len(before.x), vectors(count, number), number % CONFIG.layers
        mask = data.draw(st.sampled_from([*MASKS]))
        ranks = MASKS[mask](torch.arange(count))
        after = held[which][slot] = before.with_more(x, ranks)
        given = None if mask == "full" else ranks
        at, taps = start + torch.arange(count), Taps([layer], [layer])
        found, queries = stack.extend(x, at, cache, slot, given, taps)
        expected = uncached(stack, after.x, after.ranks, [layer])[start:]
        torch.testing.assert_close(found, expected, atol=CLOSE, rtol=CLOSE)
        keys = cache.keys_of(layer, slot).repeat_interleave(CONFIG.heads // CONFIG.kv_heads, 0)
        scores = (keys @ queries[0, -1][..., None])[..., 0] / CONFIG.head_dim**0.5
        expected = scores_of(stack, after.x, after.ranks, layer)
        torch.testing.assert_close(scores.double(), expected, atol=CLOSE, rtol=CLOSE)

    def step(which: int, number: int) -> None:
        cache, own = caches[which], held[which]
        slots = [slot for slot in range(SLOTS) if len(own[slot].x) < ROOM and draw(3)]
        slots = data.draw(st.permutations(slots))
        if not slots:
            return
        x, at = vectors(len(slots), number), torch.tensor([len(own[slot].x) for slot in slots])
        found, queries = stack.step(x, at, cache, slots, TAPS)
        for row, slot in enumerate(slots):
            after = own[slot] = own[slot].with_more(x[row, None], torch.zeros(1, dtype=torch.int64))
            expected = uncached(stack, after.x, after.ranks, TAPS.outputs)[-1]
            torch.testing.assert_close(found[row], expected, atol=CLOSE, rtol=CLOSE)
            count, keys = torch.tensor([len(after.x)]), cache.keys_of(-1, slot)[None]
            wanted = measure_attention(
                scores_of(stack, after.x, after.ranks, -1)[None], count
            ).float()
            one = attention_statistics(queries[0, row, None], keys, count)
            torch.testing.assert_close(one, wanted, atol=CLOSE, rtol=CLOSE)

    def capture(which: int, number: int) -> None:
        """Extend some slots at once in the shapes of a graph: padded, and a row idle."""
        cache, before = caches[which], held[which]
        slots = [slot for slot in range(SLOTS) if len(before[slot].x) + FRAMES <= ROOM]
        slots, mask = slots[draw(SLOTS) :], data.draw(st.sampled_from([*MASKS]))
        ranks = MASKS[mask](torch.arange(FRAMES))
        passes, table = stack.paged(pool), torch.full((SLOTS + 1, ROOM // PAGE), pool.padding)
        counts = torch.tensor([*(draw(FRAMES, 1) for _ in slots), *[1] * (SLOTS + 1 - len(slots))])
        at = torch.zeros(SLOTS + 1, dtype=torch.int64)
        for row, slot in enumerate(slots):
            at[row] = cache.lengths[slot]
            cache.reserve(slot, int(at[row] + counts[row]))
            table[row, : len(cache.pages(slot))] = torch.tensor(cache.pages(slot))
        x = vectors(len(table) * FRAMES, number)
        reach = torch.searchsorted(ranks, ranks, side="right")
        layout = passes.layout(at[:, None] + torch.arange(FRAMES), at, counts, reach)
        found, _ = passes.run(x.clone(), layout(table))
        for row, slot in enumerate(slots):
            own = slice(row * FRAMES, row * FRAMES + int(counts[row]))
            start, after = len(before[slot].x), before[slot].with_more(x[own], ranks[: counts[row]])
            before[slot] = after
            cache.advance(slot, int(counts[row]))
            expected = uncached(stack, after.x, after.ranks)[start:]
            torch.testing.assert_close(found[own], expected, atol=CLOSE, rtol=CLOSE)

    for number in range(draw(25, 5)):
        which, slot, other = draw(1), draw(SLOTS - 1), draw(SLOTS - 1)
        cache, own = caches[which], held[which][slot]
        match data.draw(st.sampled_from(DEEDS)):
            case "extend" if len(own.x) < ROOM:
                extend(which, slot, draw(min(80, ROOM - len(own.x)), 1), number)
            case "step" if kind == "slots":
                step(which, number)
            case "record" if kind != "slots":
                capture(which, number)
            case "rewind":
                ends = own.ranks.diff(append=torch.tensor([-1])).nonzero()[:, 0] + 1
                length = data.draw(st.sampled_from([0, *ends.tolist()]))
                cache.rewind(slot, length)
                held[which][slot] = own.first(length)
            case "load" if not len(own.x):
                cache.load(slot, caches[1 - which], source_slot=other)
                cache.keys_of(0, slot)  # copied before the other can go back
                held[which][slot] = held[1 - which][other]
            case "fork" if slot != other:
                keys = (cache.keys_of(-1, each).unbind(1) for each in (slot, other))
                equal = [torch.equal(one, two) for one, two in zip(*keys, strict=False)]
                cache.fork(other, slot, shared=draw([*equal, False].index(False)))
                held[which][slot] = held[which][other]
        assert cache.lengths == [len(one.x) for one in held[which]]
    for which, slot in ((which, slot) for which in range(2) for slot in range(SLOTS)):
        if len(held[which][slot].x) < ROOM:
            extend(which, slot, 1, 99)
    del cache
    caches.clear()
    assert pool.free == pool.pages
