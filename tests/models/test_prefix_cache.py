"""Shared parts of prefixes: copied they are what reading the whole gives, and they are bounded."""

from typing import Any

import pytest
import torch
from torch import Tensor

from models.config import ModelConfig
from models.prefix import Prefix
from models.prefix_cache import NullKey, PrefixCache, SlotPrefix, VoiceKey, one_by_one
from models.stack.cache import KVCache
from models.stack.slot_cache import SlotCache
from models.valle import Valle
from tests.models.test_valle import CONFIG, IDS, random_model, some_codes

EVE = VoiceKey(None, "eve", 0)
PUBLIC = ("phn", "lang", "level", "prom", "resp")


@pytest.fixture(scope="module")
def model() -> Valle:
    return random_model()


class Counted(PrefixCache):
    """Counts the parts that the model was asked for."""

    def __init__(self, model: Valle, **options: Any) -> None:
        self.computed = 0

        def new_cache(slots: int, positions: int) -> SlotCache:
            self.computed += 1
            return model.new_cache(slots, positions)

        super().__init__(model, new_cache=new_cache, **options)


def slot_of(model: Valle, prefix: Prefix) -> KVCache:
    return KVCache(model.config, slots=2, max_length=len(prefix) + 20)


def rows(cache: KVCache, slot: int) -> list[Tensor]:
    end = cache.lengths[slot]
    return [tensor[slot, :, :end].clone() for tensor in (*cache.keys, *cache.values)]


def read(
    model: Valle, prefixes: PrefixCache, prefix: Prefix, key: VoiceKey | NullKey | None
) -> tuple[KVCache, Tensor]:
    """Read a prefix into slot 1; return the cache and the hidden rows of what was not shared."""
    cache = slot_of(model, prefix)
    ((hidden, _),) = prefixes.read([SlotPrefix(prefix, 1, key)], cache, one_by_one(model))
    assert cache.lengths == [0, len(prefix)]
    return cache, hidden


def begin(
    prefixes: PrefixCache, prefix: Prefix, key: VoiceKey | NullKey, cache: SlotCache
) -> list[Prefix]:
    """Load the shared part of a prefix into slot 0."""
    return prefixes.begin([SlotPrefix(prefix, 0, key)], cache, one_by_one(prefixes._model))


@pytest.mark.parametrize("level", [0, 1, 7])
@pytest.mark.parametrize("frames", [0, 20])
@torch.inference_mode()
def test_a_prefix_from_the_cache_equals_one_read_whole(model, level, frames) -> None:
    prefix = model.prefix(IDS, level, prompt=some_codes(frames))
    assert prefix.shared == 4 + (frames + 1 if frames else 0)
    whole = slot_of(model, prefix)
    hidden, _ = model.read(prefix, whole, 1)
    cache, rest = read(model, PrefixCache(model), prefix, EVE)
    assert (rest - hidden[prefix.shared :]).abs().max() < 1e-5
    for found, expected in zip(rows(cache, 1), rows(whole, 1), strict=True):
        assert (found - expected).abs().max() < 1e-5


@pytest.mark.parametrize("level", [0, 3])
@torch.inference_mode()
def test_a_slot_has_the_same_bits_whether_its_beginning_was_kept_or_not(model, level) -> None:
    prefixes = Counted(model)
    prompt = some_codes(20)
    prefix = model.prefix(IDS, level, prompt=prompt)
    unkept, hidden = read(model, prefixes, prefix, None)
    first, hidden_of_first = read(model, prefixes, prefix, EVE)
    read(model, prefixes, model.prefix([1, 7, 7, 2], level, prompt=prompt), EVE)
    later, hidden_of_later = read(model, prefixes, prefix, EVE)
    assert prefixes.computed == 2
    assert torch.equal(hidden, hidden_of_first)
    assert torch.equal(hidden, hidden_of_later)
    for one, other, third in zip(rows(unkept, 1), rows(first, 1), rows(later, 1), strict=True):
        assert torch.equal(one, other)
        assert torch.equal(one, third)


@pytest.mark.parametrize("level", [0, 3])
@torch.inference_mode()
def test_frames_behind_a_prefix_keep_their_keys_when_it_is_replaced(model, level) -> None:
    prompt = some_codes(20)
    prefixes = PrefixCache(model)
    old = model.prefix(IDS[:3], level, prompt=prompt)
    new = model.prefix(IDS, level, prompt=prompt)
    cache, _ = read(model, prefixes, old, EVE)
    model.read(model.frames(some_codes(7)[:, 0], old.response_start), cache, 1)
    frames = [one[:, len(old) :] for one in rows(cache, 1)]
    assert all(one.shape[1] == 7 for one in frames)
    wanted = [SlotPrefix(new, 1, EVE)]
    prefixes.replace(wanted, cache, one_by_one(model), old=len(old))
    alone, _ = read(model, prefixes, new, EVE)
    assert cache.lengths == [0, len(new) + 7]
    for found, kept, fresh in zip(rows(cache, 1), frames, rows(alone, 1), strict=True):
        assert torch.equal(found[:, : len(new)], fresh)
        assert torch.equal(found[:, len(new) :], kept)


@torch.inference_mode()
def test_what_says_nothing_is_shared_but_for_what_the_ar_starts_from(model) -> None:
    prefixes = PrefixCache(model)
    for level, unshared in ((0, 1), (5, 0)):
        prefix = model.null_prefix(level)
        cache = slot_of(model, prefix)
        (rest,) = begin(prefixes, prefix, NullKey(0), cache)
        assert len(rest) == unshared
        assert cache.lengths[0] == len(prefix) - unshared


def test_nothing_is_shared_that_sees_the_words() -> None:
    def shared(level: int, **changes: object) -> tuple[int, int]:
        model = random_model(CONFIG.model_copy(update=changes))
        prefix = model.prefix(IDS, level, prompt=some_codes(20))
        return prefix.shared, model.null_prefix(level).shared

    assert shared(0, nar_mask="full") == (25, 6)
    assert shared(1, nar_mask="full") == (0, 0)
    assert shared(1, nar_mask="causal") == (25, 7)
    assert shared(0, segments=PUBLIC) == (0, 6)
    assert shared(1, segments=("lang", "phn", "level", "prom", "resp")) == (0, 7)


def part_bytes(config: ModelConfig, positions: int) -> int:
    return 2 * 4 * config.layers * config.kv_heads * config.head_dim * positions


def use(prefixes: Counted, model: Valle, voice: str, level: int = 1) -> int:
    """Begin a sequence of a voice; return how many parts were read for it."""
    before = prefixes.computed
    prefix = model.prefix(IDS, level, prompt=some_codes(20, seed=len(voice)))
    begin(prefixes, prefix, VoiceKey(None, voice, 0), slot_of(model, prefix))
    return prefixes.computed - before


def test_the_longest_unused_goes_when_the_memory_is_full(model) -> None:
    prefixes = Counted(model, max_bytes=2 * part_bytes(model.config, 25))
    assert [use(prefixes, model, voice) for voice in ("a", "b", "a", "c")] == [1, 1, 0, 1]
    assert (prefixes.parts, prefixes.bytes) == (2, 2 * part_bytes(model.config, 25))
    assert [use(prefixes, model, voice) for voice in ("a", "c", "b")] == [0, 0, 1]


def test_owners_voices_languages_and_levels_are_apart(model) -> None:
    prefixes = Counted(model)
    prefix = model.prefix(IDS, 1, prompt=some_codes(20))
    keys = [VoiceKey("me", "eve", 0), VoiceKey(None, "eve", 0), VoiceKey(None, "eve", 1)]
    for key in keys:
        begin(prefixes, prefix, key, slot_of(model, prefix))
    assert use(prefixes, model, "eve", level=2) == 1
    assert prefixes.computed == prefixes.parts == 4


def test_a_prefix_without_the_prompt_is_not_taken_for_the_one_with_it(model) -> None:
    prefixes = Counted(model)
    for prompt in (some_codes(20), None):
        prefix = model.prefix(IDS, 0, prompt=prompt)
        cache = slot_of(model, prefix)
        begin(prefixes, prefix, EVE, cache)
        assert cache.lengths[0] == prefix.shared
    assert prefixes.parts == 2


def test_what_is_pinned_stays_as_long_as_anybody_pins_it(model) -> None:
    prefixes = Counted(model, max_bytes=part_bytes(model.config, 25))
    pinned = VoiceKey(None, "a", 0)
    with prefixes.pinned(pinned):
        with prefixes.pinned(pinned):
            assert [use(prefixes, model, "a", level) for level in (1, 2)] == [1, 1]
            assert use(prefixes, model, "b") == 1  # and is dropped at once
        assert prefixes.parts == 2
        assert [use(prefixes, model, "a", level) for level in (1, 2)] == [0, 0]
    assert prefixes.parts == 1
    assert prefixes.bytes == part_bytes(model.config, 25)
