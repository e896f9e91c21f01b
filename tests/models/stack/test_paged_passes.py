"""What passes over pages have more than those over slots: 8 bits, a pool that is full, and types.

That they are the passes without a cache is said by `test_cached_passes`.
"""

import pytest
import torch

from gpu.kernels import FUSED, TORCH, Kernels
from models.stack.cache import KVCache
from models.stack.paged_cache import PAGE, OutOfPages
from models.stack.taps import Taps
from models.stack.transformer import Transformer
from tests.models.stack.stacks import CONFIG, make_stack, pool_of, vectors

pytestmark = pytest.mark.usefixtures("without_gradients")

FRAMES, PAGES = 20, 4
CLOSE = 1e-5
"""Of vectors whose entries are about 1; the two differ in the order of their float32 sums."""


@pytest.fixture(params=[FUSED, TORCH], ids=["fused", "torch"])
def stack(request: pytest.FixtureRequest) -> Transformer:
    """A stack with kernels of our own, and one with torch's."""
    made = make_stack()
    made.kernels = request.param
    return made


def test_in_8_bits_they_differ_by_what_rounding_costs(stack: Transformer) -> None:
    pool, exact = pool_of(9, torch.int8), KVCache(CONFIG, 1, PAGES * PAGE)
    assert pool.page_bytes < pool_of(9).page_bytes / 2
    eight, at = pool.new_cache(1, PAGES * PAGE), torch.arange(PAGE - 3)
    for cache in (eight, exact):
        stack.extend(vectors(len(at)), at, cache, 0, at)
    at = len(at) + torch.arange(FRAMES)
    found, expected = (
        stack.extend(vectors(FRAMES, 9), at, one, 0, at)[0] for one in (eight, exact)
    )
    assert 0 < (found - expected).abs().max() < 0.05
    keys, kept = (cache.keys_of(0, 0) for cache in (eight, exact))
    half_a_step = kept.abs().amax(-1, keepdim=True) / 127 / 2
    assert ((keys - kept).abs() < half_a_step + CLOSE).all()


def test_a_pool_without_a_page_refuses_and_loses_none(stack: Transformer) -> None:
    pool, at = pool_of(2), torch.arange(PAGE + 1)
    cache = pool.new_cache(2, 2 * PAGE)

    def extend(slot: int, count: int) -> None:
        stack.extend(vectors(count), at[:count], cache, slot, at[:count])

    extend(0, PAGE)
    with pytest.raises(OutOfPages, match="2 pages asked for, 1 of 2"):
        extend(1, PAGE + 1)
    assert (pool.free, cache.lengths) == (1, [PAGE, 0])
    extend(1, PAGE)


@pytest.mark.parametrize("broken", [torch.nan, torch.inf, -torch.inf])
def test_what_is_no_number_spoils_nothing_that_follows_in_its_page(
    stack: Transformer, broken: float
) -> None:
    at, cache, own = torch.arange(3), pool_of(9).new_cache(1, PAGE), KVCache(CONFIG, 1, PAGE)
    x = vectors(3).index_fill(1, torch.tensor([5]), broken)
    assert not stack.extend(x, at, cache, 0, at)[0].isfinite().all()
    cache.rewind(0, 0)
    for seed in range(3):  # the broken positions lie behind its end
        place = torch.tensor([seed])
        found, expected = (stack.extend(vectors(1, seed), place, one, 0)[0] for one in (cache, own))
        assert (found - expected).abs().max() < CLOSE


def test_hidden_states_and_queries_have_the_type_of_the_weights(stack: Transformer) -> None:
    cache, at = pool_of(9, torch.bfloat16).new_cache(1, PAGE), torch.arange(3)
    kernels: Kernels = stack.kernels
    stack = stack.bfloat16()
    stack.kernels = kernels
    hidden, queries = stack.extend(vectors(3).bfloat16(), at, cache, 0, at, Taps([0]))
    assert hidden.dtype == queries.dtype == torch.bfloat16
