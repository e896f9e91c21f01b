"""Prefixes that are read in captured functions are those that are read one by one."""

from typing import Any

import pytest
import torch

from models.config import ModelConfig
from models.prefill_graphs import PIECES, PrefillGraphRunner, padded_lengths
from models.prefix import Prefix
from models.prefix_cache import NullKey, PrefixCache, SlotPrefix, VoiceKey, one_by_one
from models.stack.paged_cache import PAGE, PagedCache, PagePool
from models.stack.taps import Taps
from models.valle import Valle
from tests.capture.tape import Tape
from tests.capture.watch import Watch
from tests.models.test_valle import CONFIG, random_model, some_codes

pytestmark = [
    pytest.mark.usefixtures("without_gradients"),
    pytest.mark.filterwarnings("ignore:.*inference.*"),
]
CPU = torch.device("cpu")
SMALL = {"max_phonemes": 60, "max_prompt_frames": 70}
EVE = VoiceKey(None, "eve", 0)


def made(levels: list[int], **changes: Any) -> tuple[Valle, PagePool, PrefillGraphRunner, Tape]:
    model, tape = random_model(CONFIG.model_copy(update=SMALL | changes)), Tape()
    pool = PagePool(model.config, 60, dtype=torch.float32, device=CPU)
    return model, pool, PrefillGraphRunner(model, pool, levels, tape.capture, 1024), tape


def text(number: int, symbols: int) -> list[int]:
    own = torch.randint(3, 9, (symbols,), generator=torch.Generator().manual_seed(number))
    return [1, *own.tolist(), 2]


def prefixes_of(model: Valle, levels: list[int], number: int, symbols: int) -> list[Prefix]:
    prompt = some_codes(70 if number % 2 else 9, seed=number) if number % 3 else None
    own = [model.prefix(text(number, symbols), level, prompt=prompt) for level in levels]
    return [*own, *map(model.null_prefix, levels)]


def held(cache: PagedCache, slot: int) -> list[torch.Tensor]:
    layers = range(len(cache.pool.keys))
    return [cache.keys_of(layer, slot) for layer in layers]


@pytest.mark.parametrize(
    ("levels", "changes"),
    [
        ([0], {}),
        ([0], {"segments": ("phn", "lang", "level", "prom", "resp")}),
        ([1, 2, 5], {}),
        ([1, 2], {"nar_mask": "causal", "unified_positions": True}),
        ([3, 7], {"prompt_all_levels": True, "shared_tables": True}),
        ([1], {"max_prompt_frames": 0}),
    ],
)
def test_what_is_read_from_tape_is_what_is_read_one_by_one(
    levels: list[int], changes: dict[str, Any]
) -> None:
    model, pool, captured, _ = made(levels, **changes)
    kept, others = PrefixCache(model, new_cache=pool.new_cache), PrefixCache(model)
    for number, symbols in ((0, 5), (1, 60), (2, 1), (1, 30), (0, 5), (5, 14)):
        if not model.config.max_prompt_frames:
            number *= 3
        found = prefixes_of(model, levels, number, symbols)
        room, own = max(map(len, found)) + 1, VoiceKey(None, f"{number}", 0)
        wanted = [
            SlotPrefix(one, slot, own if slot < len(levels) else NullKey(0))
            for slot, one in enumerate(found)
        ]
        cache, other = pool.new_cache(len(found), room), model.new_cache(len(found), room)
        results = [hidden[-1].clone() for hidden, _ in kept.read(wanted, cache, captured)]
        expected = others.read(wanted, other, one_by_one(model))
        for one, (whole, _) in zip(results, expected, strict=True):
            assert torch.allclose(one, whole[-1], atol=1e-4)
        for slot in range(len(found)):
            for layer, keys in enumerate(held(cache, slot)):
                assert torch.allclose(keys, other.keys_of(layer, slot), atol=1e-4)


def test_a_level_has_the_same_bits_whatever_is_read_with_it_and_was_kept() -> None:
    model, pool, captured, _ = made([1, 2, 3])
    first, second, third, *_ = prefixes_of(model, [1, 2, 3], 1, 8)
    kept = PrefixCache(model, new_cache=pool.new_cache)
    alone = pool.new_cache(1, 200)
    kept.read([SlotPrefix(second, 0, None)], alone, captured)
    for wanted in ([first, second], [first, second, third]):
        beside = pool.new_cache(3, 200)
        kept.read([SlotPrefix(one, slot, EVE) for slot, one in enumerate(wanted)], beside, captured)
        for one, other in zip(held(alone, 0), held(beside, 1), strict=True):
            assert torch.equal(one, other)


def test_pages_that_are_nobodys_and_those_of_others_stay_as_they_are() -> None:
    model, pool, captured, _ = made([1, 2])
    cache = pool.new_cache(2, 2 * PAGE)
    other = pool.new_cache(2, 2 * PAGE)
    found = prefixes_of(model, [1, 2], 3, 9)[:2]
    wanted = [SlotPrefix(one, slot, None) for slot, one in enumerate(found)]
    PrefixCache(model, new_cache=pool.new_cache).read(wanted, other, captured)
    own = [page for slot in (0, 1) for page in other.pages(slot)]
    before = pool.by_page[:, own].clone()
    PrefixCache(model, new_cache=pool.new_cache).read(wanted[:1], cache, captured)
    assert torch.equal(pool.by_page[:, own], before)


@pytest.mark.parametrize("level", [0, 2])
def test_what_sees_nothing_after_it_is_read_piece_by_piece_also_frames_behind_it(
    level: int,
) -> None:
    model, pool, captured, tape = made([level], nar_mask="causal")
    sampled, frames = some_codes(300, seed=1)[:, 0], some_codes(40, seed=2)[:, 0]
    for symbols, prompt in ((3, 0), (300, 0), (60, 70), (130, 60)):
        codes = some_codes(prompt, seed=3) if prompt else None
        prefixes = [model.prefix(text(0, symbols), level, prompt=codes)]
        if not level:
            prefixes = [model.begin(prefixes[0], sampled), model.frames(frames, 300)]
        cache, other = pool.new_cache(1, 800), model.new_cache(1, 800)
        for prefix in prefixes:
            replays = tape.replays
            ((hidden, queries),) = captured([prefix], [(cache, 0)])
            assert tape.replays - replays == -(-len(prefix) // PIECES[-1])
            for found, expected in zip(
                (hidden, queries), model.read(prefix, other, 0), strict=True
            ):
                assert torch.allclose(found, expected, atol=1e-4)


def test_what_is_told_of_layers_is_of_those_that_are_asked_for() -> None:
    model, pool, _, tape = made([0])
    taps = Taps(queries=[0], outputs=[0, 1])
    captured = PrefillGraphRunner(model, pool, [0], tape.capture, taps=taps)
    prefix = model.prefix(text(0, 9), 0)
    ((hidden, queries),) = captured([prefix], [(pool.new_cache(1, 90), 0)])
    expected, asked = model.read(prefix, model.new_cache(1, 90), 0, taps)
    assert hidden.shape[1] == 3 * model.config.width
    torch.testing.assert_close(hidden, expected, atol=1e-4, rtol=0)
    torch.testing.assert_close(queries, asked, atol=1e-4, rtol=0)


def test_a_text_that_is_a_block_is_not_read_in_pieces() -> None:
    model, pool, captured, _ = made([1])
    with pytest.raises(ValueError, match="see each other"):
        captured([model.prefix(text(0, 90), 1)], [(pool.new_cache(1, 200), 0)])


@pytest.mark.parametrize(("known", "launches"), [(True, 2), (False, 5)])
def test_all_levels_of_a_voice_take_few_launches_and_no_wait(known: bool, launches: int) -> None:
    model, pool, captured, _ = made([*range(1, 8)])
    kept = PrefixCache(model, new_cache=pool.new_cache)
    found = prefixes_of(model, [*range(1, 8)], 1, 20)[:7]
    wanted = [SlotPrefix(one, slot, EVE) for slot, one in enumerate(found)]
    if known:
        kept.read(wanted, pool.new_cache(7, 200), captured)
    queued: list[Any] = []
    captured._replays = {key: lambda: queued.append(0) for key in captured._replays}
    with Watch("raise").on() as watch:
        kept.read(wanted, pool.new_cache(7, 200), captured)
    copies = watch.operators["aten.copy_.default"]
    assert copies + len(queued) == launches
    assert {name.split(".")[1] for name in watch.operators} <= {
        "copy_",
        "select",
        "slice",
        "unsqueeze",
    }


@pytest.mark.parametrize(
    ("changes", "ar", "lengths"),
    [
        ({}, False, {False: [80, 144, 272], True: [240]}),
        ({"max_prompt_frames": 0}, False, {False: [80, 144, 272]}),
        ({"nar_mask": "causal"}, False, {False: [*PIECES], True: [*PIECES]}),
        ({}, True, {True: [*PIECES]}),
        ({"max_prompt_frames": 0}, True, {False: [*PIECES]}),
    ],
)
def test_lengths_are_few_and_hold_the_longest(
    changes: dict[str, Any], ar: bool, lengths: dict[bool, list[int]]
) -> None:
    config = ModelConfig.model_validate(CONFIG.model_dump() | {"max_phonemes": 250} | changes)
    assert padded_lengths(config, ar=ar) == lengths
