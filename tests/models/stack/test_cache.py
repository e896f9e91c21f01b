"""A slot's memory: what does not fit, or is not there, is refused, and nothing has changed then.

What caches hold is said by `test_cached_passes`.
"""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from models.stack.cache import KVCache
from tests.models.stack.stacks import CONFIG

LENGTHS = [2, 0, 4]


def rows(count: int) -> Tensor:
    return torch.randn(CONFIG.kv_heads, count, CONFIG.head_dim)


def cache_of(lengths: list[int], max_length: int = 4) -> KVCache:
    cache = KVCache(CONFIG, slots=len(lengths), max_length=max_length)
    for slot, length in enumerate(lengths):
        cache.write(0, slot, rows(length), rows(length))
        cache.advance(slot, length)
    return cache


@pytest.mark.parametrize(
    ("deed", "words"),
    [
        (lambda cache: cache.write(0, 0, rows(3), rows(3)), "slot 0 holds 4 positions, 5 asked"),
        (lambda cache: cache.grow([0, 2]), "slot 2 holds 4 positions, 5 asked for"),
        (lambda cache: cache.rewind(0, -1), "slot 0 holds 2 positions, cannot keep -1"),
        (lambda cache: cache.rewind(0, 3), "cannot keep 3"),
        (lambda cache: cache.load(1, cache_of([5], 5)), "slot 1 holds 0 of 4 .* cannot load 5"),
        (lambda cache: cache.load(0, cache_of([1])), "slot 0 holds 2 of 4 positions"),
        (lambda cache: cache.fork(0, 1, shared=1), "hold 2 and 0 positions, cannot share 1"),
        (lambda cache: cache.fork(0, 2, shared=3), "hold 2 and 4 positions, cannot share 3"),
        (lambda cache: cache.fork(0, 2, shared=-1), "cannot share -1"),
    ],
)
def test_what_is_impossible_is_refused(deed: Callable[[KVCache], object], words: str) -> None:
    cache = cache_of(LENGTHS)
    kept = cache.keys[0].clone()
    with pytest.raises(ValueError, match=words):
        deed(cache)
    assert cache.lengths == LENGTHS
    assert torch.equal(cache.keys[0], kept)
