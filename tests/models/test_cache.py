"""The cache: what is written is returned, what is rewound is forgotten, slots are apart."""

import pytest
import torch

from models.cache import KVCache
from models.config import ModelConfig

CONFIG = ModelConfig(width=8, layers=1, heads=2, kv_heads=1, ffn=8, phonemes=("a",))


def rows(count: int) -> torch.Tensor:
    return torch.randn(1, count, 4)


def test_write_returns_all_rows_so_far() -> None:
    cache = KVCache(CONFIG, slots=2, max_length=8)
    first, second = rows(3), rows(2)
    cache.write(0, 1, first, first)
    cache.advance(1, 3)
    keys, values = cache.write(0, 1, second, -second)
    assert torch.equal(keys, torch.cat([first, second], 1))
    assert torch.equal(values, torch.cat([first, -second], 1))
    assert cache.lengths == [0, 3]


def test_rewound_rows_are_overwritten() -> None:
    cache = KVCache(CONFIG, slots=1, max_length=8)
    first, second = rows(4), rows(1)
    cache.write(0, 0, first, first)
    cache.advance(0, 4)
    cache.rewind(0, 2)
    keys, _ = cache.write(0, 0, second, second)
    assert torch.equal(keys, torch.cat([first[:, :2], second], 1))


def test_a_full_slot_is_an_error() -> None:
    cache = KVCache(CONFIG, slots=1, max_length=4)
    with pytest.raises(ValueError, match="slot 0 holds 4 positions, 5 asked for"):
        cache.write(0, 0, rows(5), rows(5))


@pytest.mark.parametrize("length", [-1, 1])
def test_rewinding_to_what_never_was_is_an_error(length: int) -> None:
    with pytest.raises(ValueError, match="cannot keep"):
        KVCache(CONFIG, slots=1, max_length=4).rewind(0, length)
