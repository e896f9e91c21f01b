"""The cache: what is written is returned, what is rewound is forgotten, slots are apart."""

import pytest
import torch

from models.config import ModelConfig
from models.stack.cache import KVCache

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


def test_a_loaded_slot_goes_on_from_a_copy_of_anothers_rows() -> None:
    source, cache = KVCache(CONFIG, slots=2, max_length=3), KVCache(CONFIG, slots=2, max_length=8)
    first, second = rows(3), rows(2)
    source.write(0, 1, first, -first)
    source.advance(1, 3)
    cache.load(0, source, source_slot=1)
    source.keys[0].zero_()
    keys, values = cache.write(0, 0, second, second)
    assert torch.equal(keys, torch.cat([first, second], 1))
    assert torch.equal(values, torch.cat([-first, second], 1))
    assert cache.lengths == [3, 0]


def test_only_an_empty_slot_of_enough_room_is_loaded() -> None:
    source = KVCache(CONFIG, slots=1, max_length=3)
    source.advance(0, 3)
    with pytest.raises(ValueError, match="cannot load 3"):
        KVCache(CONFIG, slots=1, max_length=2).load(0, source)
    cache = KVCache(CONFIG, slots=1, max_length=8)
    cache.advance(0, 1)
    with pytest.raises(ValueError, match="holds 1 of 8 positions"):
        cache.load(0, source)


def test_rows_of_several_slots_land_at_the_end_of_each() -> None:
    cache = KVCache(CONFIG, slots=3, max_length=4)
    for slot, count in ((0, 2), (2, 1)):
        cache.write(0, slot, rows(count), rows(count))
        cache.advance(slot, count)
    before = [cache.rows(0, slot)[0][0].clone() for slot in (2, 0)]
    new = torch.randn(2, CONFIG.kv_heads, CONFIG.head_dim)
    cache.put(0, cache.grow([2, 0]), new, -new)
    assert cache.lengths == [3, 0, 2]
    for row, slot in enumerate((2, 0)):
        keys, values = (rows[0] for rows in cache.rows(0, slot))
        assert torch.equal(keys[:, :-1], before[row])
        assert torch.equal(keys[:, -1], new[row])
        assert torch.equal(values[:, -1], -new[row])


def test_no_slot_grows_if_one_is_full() -> None:
    cache = KVCache(CONFIG, slots=2, max_length=2)
    cache.grow([0])
    cache.grow([0])
    with pytest.raises(ValueError, match="slot 0 holds 2 positions"):
        cache.grow([1, 0])
    assert cache.lengths == [2, 0]


@pytest.mark.parametrize("shared", [0, 2, 3])
def test_a_forked_slot_holds_what_the_other_holds_and_grows_apart(shared: int) -> None:
    cache = KVCache(CONFIG, slots=3, max_length=8)
    given, own = rows(5), rows(4)
    own[:, :shared] = given[:, :shared]
    for slot, values in ((2, given), (0, own)):
        cache.write(0, slot, values, -values)
        cache.advance(slot, values.shape[1])
    cache.fork(2, 0, shared=shared)
    assert cache.lengths == [5, 0, 5]
    for found in cache.rows(0, 0)[0], -cache.rows(0, 0)[1]:
        assert torch.equal(found[0], given)
    cache.put(0, cache.grow([0]), torch.ones(1, 1, 4), torch.ones(1, 1, 4))
    assert torch.equal(cache.rows(0, 2)[0][0], given)


def test_slots_share_no_more_than_both_hold() -> None:
    cache = KVCache(CONFIG, slots=2, max_length=8)
    cache.write(0, 0, rows(3), rows(3))
    cache.advance(0, 3)
    with pytest.raises(ValueError, match="slots 0 and 1 hold 3 and 0 positions, cannot share 1"):
        cache.fork(0, 1, shared=1)
