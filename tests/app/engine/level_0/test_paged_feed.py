"""Over pages, a step behind, called or played, the same codes are drawn as over slots, at once.

What is played comes from a tape, so that nothing of the host can be baked in unseen.
"""

import gc
import random
import weakref
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from app.engine.level_0.hypothesis_group import HypothesisGroup
from app.engine.level_0.input_batch import InputBatch
from app.engine.level_0.paged_feed import PagedFeed
from app.engine.level_0.runner import ArRunner
from app.engine.utterance import KeptFrames, UtteranceInput
from models.checkpoints import load_speech_model
from models.config import AlignmentHead
from models.cuda.graphs import Record, Recorder, as_it_is
from models.cuda.kernels.choice import FUSED, TORCH
from models.prefix_cache import PrefixCache, VoiceKey
from models.stack.paged_cache import PagedCache, PagePool
from models.valle import Valle
from samplers.ar import plain
from samplers.ar.state import Host, SlotTable
from samplers.knobs.features import rows_needed
from samplers.knobs.params import SamplingParams
from tests.app.engine.level_0.batches import BRANCH, EAGER
from tests.capture.tape import Tape
from tests.capture.watch import NotCaptureSafe, Watch

SLOTS, ROOM, PAGES = 8, 160, 40
CPU = torch.device("cpu")
STUCK = EAGER | {"temperature": 0.25, "backtrack_window": 20, "backtrack_max_silence": 3}
KNOBS: list[dict[str, Any]] = [
    {},
    {"temperature": 0.0},
    {"temperature": 0.7, "top_k": 5, "top_p": 0.9, "min_p": 0.02},
    {"temperature": 0.5, "top_p": 0.9, "cfg_strength": 1.5, "cfg_rescale": 0.3, **STUCK},
    {"repetition_penalty": 1.3, "repetition_penalty_window": 4, "min_frames": 6},
    {"logit_bias": {2: 4.0}, "ban_tokens": (3, 512), "min_frames": 6},
    {"repetition_penalty": 1.2, "repetition_penalty_window": 0, "presence_penalty": 0.2},
    {"temperature": 1.4, "min_temperature": 0.3, "typical_p": 0.9},
    {"xtc_probability": 0.5, "top_n_sigma": 2.0, "length_penalty": 0.5},
    {"mirostat_mode": 2, "mirostat_tau": 1.5},
    {"mirostat_mode": 1, "mirostat_tau": 2.5, "frequency_penalty": 0.1},
    {"ras": True, "ras_window": 5, "exponential_decay_factor": 1.1},
    {"dry_multiplier": 1.0, "dry_sequence_breakers": (7,), "epsilon_cutoff": 0.001},
    {"no_repeat_ngram_size": 2, "eta_cutoff": 0.002, **STUCK},
    {"repetition_penalty": 1.4, "penalty_includes_prompt": True, "dry_multiplier": 0.5},
    {"ban_sequences": [{"codes": (5, 6)}, {"codes": (7,), "strength": 1.0}], "temperature": 0.8},
    {"entropix": True},
    {"entropix": True, "entropix_action": "pause", "min_tokens_to_keep": 3, "min_p": 0.1},
    {"best_of": 2, "temperature": 0.8},
    {"best_of": 2, "cfg_strength": 2.0, **STUCK},
    {"sampler_order": "hf", "top_p": 0.9},
    {"temperature_last": True, "top_p": 0.9},
    {"ban_sequences": [{"codes": tuple(range(9))}] * 9},
    {"beam_width": 3},
    {"beam_width": 2, "temperature": 0.0, "cfg_strength": 1.5},
    BRANCH,
    BRANCH | {"cfg_strength": 1.5, "dry_multiplier": 0.7},
]  # fmt: skip
LONG = SamplingParams(min_frames=100, seed=0)


pytestmark = pytest.mark.usefixtures("sorted_as_on_a_gpu")


@pytest.fixture(scope="module")
def model(toy: Any) -> Valle:
    loaded = load_speech_model(toy, CPU).model
    head = AlignmentHead(layer=1, head=1)
    loaded.config = loaded.config.model_copy(update={"alignment": head})
    return loaded


def utterance(model: Valle, number: int) -> UtteranceInput:
    draw = random.Random(number)
    knobs = KNOBS[number % len(KNOBS)] | {"seed": number}
    shares = number % 5 == 4  # a whole page of its prompt with others
    prompt = torch.randint(
        model.config.codes, (70 if shares else draw.randint(2, 9), model.config.levels),
        generator=torch.Generator().manual_seed(0 if shares else number),
    )  # fmt: skip
    silent, frames = torch.arange(model.config.codes) % 8 == number % 8, draw.randint(5, 60)
    one = UtteranceInput(
        [1, *(draw.randint(10, 20) for _ in range(draw.randint(1, 12))), 2],
        SamplingParams(**knobs), number, number % 3, frames, prompt=prompt, silent=silent,
        voice=VoiceKey(None, "a voice", 0) if shares else None, trace=number % 7 == 3,
    )  # fmt: skip
    if number % 11 == 6 and not one.params.beam_width:  # goes on from an earlier take
        return replace(one, kept=KeptFrames(prompt[:2]))
    return one


def runner(
    model: Valle,
    record: Record | None,
    slots: int = SLOTS,
    pages: int = PAGES,
    dtype: torch.dtype = torch.float32,
) -> ArRunner:
    """Return a runner over pages; over slots if nothing records."""
    if record is None:
        return ArRunner(model, PrefixCache(model), slots=slots, max_length=ROOM)
    pool = PagePool(model.config, pages, dtype=dtype, device=CPU)
    prefixes = PrefixCache(model, new_cache=pool.new_cache)
    return ArRunner(model, prefixes, slots=slots, max_length=ROOM, pool=pool, record=record)


def feed_of(one: ArRunner) -> PagedFeed:
    assert isinstance(one._feed, PagedFeed)
    return one._feed


def pool_of(one: ArRunner) -> PagePool:
    cache = feed_of(one).cache
    assert isinstance(cache, PagedCache)
    return cache.pool


def outcome(group: HypothesisGroup) -> tuple[Any, ...]:
    trace = group.trace
    read = (
        None if trace is None else [trace[name].tolist() for name in ("code", "attempt", "frame")]
    )
    memory = None if group.memory is None else group.memory.last_act.tolist()
    return (
        group.codes().tolist(), group.finish_reason, group.backtracks,
        [(take.frames, take.finish_reason, take.kept) for take in group.ranked], read, memory,
    )  # fmt: skip


def drawn(one: ArRunner, inputs: list[UtteranceInput], seed: int) -> list[tuple[Any, ...]]:
    """Draw all, as rows are free, with pauses, and one that leaves now and then."""
    chance, waiting = random.Random(seed), list(inputs)
    groups: list[HypothesisGroup] = []
    while waiting or any(group.finish_reason is None for group in groups):
        while waiting and one.free_rows >= 6 and chance.random() < 0.7:
            groups.append(one.admit(waiting.pop(0)))
            other = inputs[chance.randrange(len(inputs))]
            if one.free_rows >= rows_needed(other.params) and chance.random() < 0.2:
                left = one.admit(other)
                one.step()
                one.cancel(left)
        for group in groups:
            if group.finish_reason is None and chance.random() < 0.1:
                (one.resume if group.paused else one.pause)(group)
        one.step()
    return [outcome(group) for group in groups]


@pytest.fixture(scope="module")
def over_slots(model: Valle) -> list[tuple[Any, ...]]:
    """What the requests draw over slots, at once."""
    return drawn(runner(model, None), [utterance(model, number) for number in range(200)], 2)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("record", "kernels", "count"),
    [(as_it_is, FUSED, 54), (as_it_is, TORCH, 54), (None, TORCH, 54), (None, FUSED, 200)],
    ids=["called, fused", "called, operators", "played, operators", "played, fused"],
)
def test_requests_that_join_pause_leave_and_go_back_are_drawn_as_over_slots(
    model: Valle,
    over_slots: list[tuple[Any, ...]],
    record: Record | None,
    kernels: Any,
    count: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(model.transformer, "kernels", kernels)
    inputs = [utterance(model, number) for number in range(count)]
    found = drawn(runner(model, record or Tape().record), inputs, 1)

    for number, (one, other) in enumerate(zip(found, over_slots[:count], strict=True)):
        assert one == other, KNOBS[number % len(KNOBS)]
    assert sum(len(backtracks) for _, _, backtracks, *_ in found) > 2
    assert {reason for _, reason, *_ in found} >= {"stop", "length"}


@pytest.mark.parametrize("number", [0, 3, 4, 12, 16, 23, 25])
def test_a_request_is_drawn_as_over_slots(model: Valle, number: int) -> None:
    inputs = [utterance(model, number)]
    assert drawn(runner(model, Tape().record, 6), inputs, 0) == drawn(
        runner(model, None), inputs, 0
    )


def test_over_pages_in_8_bits_a_request_has_the_codes_that_it_has_alone(model: Valle) -> None:
    def eight(record: Record) -> ArRunner:
        return runner(model, record, dtype=torch.int8)

    inputs = [utterance(model, number) for number in range(8)]
    alone = [drawn(eight(as_it_is), [one], 0)[0] for one in inputs]
    assert drawn(eight(as_it_is), inputs, 1) == alone
    assert drawn(eight(Tape().record), inputs, 2) == alone


@pytest.mark.parametrize("number", [0, 9, 17])
def test_what_a_later_take_goes_on_from_is_kept_as_over_slots(model: Valle, number: int) -> None:
    found = []
    for one in (runner(model, Tape().record, 2), runner(model, None, 2)):
        group = one.admit(utterance(model, number))
        while group.finish_reason is None:
            one.step()
        found.append(group.memory)
    memory, other = found
    assert (memory is None) == (other is None) == (number == 0)
    if memory is not None and other is not None:
        assert memory.last_act.tolist() == other.last_act.tolist()
        np.testing.assert_allclose(memory.mu, other.mu, atol=1e-4)


def test_a_row_that_stops_is_known_a_step_late_and_draws_nothing_more(model: Valle) -> None:
    stop = model.config.stop_token
    params = SamplingParams(logit_bias={stop: 50.0}, min_frames=4, seed=0)
    one = runner(model, Tape().record, 2)
    group = one.admit(replace(utterance(model, 0), params=params, max_frames=30))
    steps = 0
    while group.finish_reason is None:
        one.step()
        steps += 1

    assert (group.finish_reason, len(group), steps) == ("stop", 4, 6)
    assert one.free_rows == 2


def test_a_step_beside_beams_is_read_at_once_and_all_others_a_step_late(model: Valle) -> None:
    one = runner(model, as_it_is)
    group = one.admit(replace(utterance(model, 0), params=LONG))
    one.step()
    assert len(group) == 0
    beams = one.admit(utterance(model, 23))
    one.step()
    assert (len(group), len(beams)) == (2, 1)
    one.cancel(beams)
    one.step()
    assert len(group) == 2


@pytest.mark.parametrize(("numbers", "most"), [((0, 2, 4), 8), ((0, 12, 9), 160), ((16,), 160)])
def test_a_step_waits_for_nothing_and_launches_little(
    model: Valle, numbers: tuple[int, ...], most: int
) -> None:
    one = runner(model, Tape().record)
    for number in numbers:
        one.admit(replace(utterance(model, number), kept=None, trace=False))
    for _ in range(3):
        one.step()
    feed = feed_of(one)
    plays: list[Any] = []
    for size in feed._feeding:  # what these hold is the tape's
        feed._feeding[size] = lambda: plays.append(0)
    for key in feed._drawing:
        feed._drawing[key] = lambda: plays.append(0)
    feed._attending = lambda: plays.append(0)
    with Watch("raise").on() as watch:
        one.step()

    assert len(plays) == 1
    views = (
        "view", "select.int", "slice", "unsqueeze", "unbind", "expand", "as_strided", "detach",
        "split", "transpose", "alias",
    )  # fmt: skip
    launched = {
        name: count
        for name, count in watch.operators.items()
        if not any(view in name for view in views)
    }
    assert sum(launched.values()) <= most, launched


@pytest.mark.parametrize(("slots", "recordings"), [(1, 8), (8, 17), (20, 20)])
def test_there_is_one_recording_a_number_of_rows_and_draw_and_none_after_the_start(
    model: Valle, slots: int, recordings: int
) -> None:
    tape = Tape()
    one = runner(model, tape.record, slots)
    assert len(tape.sizes) == recordings
    drawn_once = one.admit(utterance(model, 0))
    while drawn_once.finish_reason is None:
        one.step()
    assert len(tape.sizes) == recordings
    assert tape.plays > 5


def test_a_join_launches_little(model: Valle) -> None:
    one = runner(model, as_it_is)
    group = one.admit(utterance(model, 0))
    (hypothesis,) = group.hypotheses
    one._batch.remove([hypothesis])
    with Watch("count").on() as watch:
        one._batch.add([hypothesis], group.inputs)
    assert (
        sum(count for name, count in watch.operators.items() if "fill" in name or "copy" in name)
        <= 20
    )


def test_no_storage_is_replaced_by_joins_leaves_and_rewinds(model: Valle) -> None:
    one = runner(model, Tape().record)
    feed, pool = feed_of(one), pool_of(one)
    kept = [
        tensor
        for owner in (feed, feed.table)
        for tensor in vars(owner).values()
        if isinstance(tensor, Tensor)
    ]
    kept += [*pool.keys, *pool.values]
    places = [tensor.data_ptr() for tensor in kept]
    drawn(one, [utterance(model, number) for number in range(2, 8)], 3)

    assert [tensor.data_ptr() for tensor in kept] == places
    assert len(places) > 15


def test_a_closed_runner_frees_its_memory_at_once(model: Valle) -> None:
    # Unlike a tape, a recording keeps its function, and with it the feed that keeps the recording.
    one = runner(model, Recorder(CPU).record)
    drawn(one, [utterance(model, 2)], 0)
    pool, cache = pool_of(one), weakref.ref(feed_of(one).cache)
    gc.collect()
    gc.disable()  # a second batch may be made before the collector runs
    try:
        one.close()
        del one
        assert cache() is None
        assert pool.free == PAGES
    finally:
        gc.enable()


def test_a_row_has_the_pages_that_it_has_grown_into_and_shares_its_voice(model: Valle) -> None:
    one = runner(model, as_it_is)
    feed, pool, groups = feed_of(one), pool_of(one), []
    for _ in range(2):
        inputs = replace(utterance(model, 4), params=LONG, max_frames=70)
        groups.append(one.admit(inputs))
    before = pool.pages - pool.free
    first, other = (feed.cache.pages(slot) for slot in (0, 1))
    assert first[0] == other[0]  # of the prompt
    assert before == 4  # and the rest of it in the prefix cache
    while any(group.finish_reason is None for group in groups):
        one.step()
        assert not {*first[1:]} & {*other[1:]}
    assert pool.pages - pool.free == 2
    assert (feed.pages == pool.padding).all()


def test_an_utterance_that_finds_no_page_fails_alone(model: Valle) -> None:
    first, second = (
        replace(utterance(model, number), params=LONG, max_frames=100) for number in (1, 2)
    )
    expected = drawn(runner(model, None), [first], 0)
    one = runner(model, as_it_is, 6, pages=3)
    groups = [one.admit(each) for each in (first, second)]
    while any(group.finish_reason is None for group in groups):
        one.step()
    assert [outcome(groups[0])] == expected
    assert groups[1].finish_reason == "error"
    assert "keys and values" in str(groups[1].error)
    assert 40 < len(groups[1]) < 64
    assert one.free_rows == 6
    assert pool_of(one).free == 3


# What the tests above must not let pass: mistakes that a recording forgives.


def _host_length(patch: pytest.MonkeyPatch) -> None:
    """The number of frames is the host's."""
    right = plain.begin

    def wrong(numbers: Tensor, codes: Tensor, lengths: Tensor, *rest: Any) -> Any:
        return right(numbers, codes, torch.zeros_like(lengths), *rest)

    patch.setattr("models.cuda.kernels.choice.operators.begin", wrong)


def _new_buffer(patch: pytest.MonkeyPatch) -> None:
    """The host writes into another table than the one that was recorded."""
    right = PagedFeed.__init__

    def wrong(feed: PagedFeed, *args: Any, **kwargs: Any) -> None:
        right(feed, *args, **kwargs)
        feed.plain, feed.first_hidden = feed.plain.clone(), feed.first_hidden.clone()

    patch.setattr(PagedFeed, "__init__", wrong)


def _stale_row(patch: pytest.MonkeyPatch) -> None:
    """A row keeps the length of the one that had its slot before."""
    right = SlotTable.begin

    def wrong(table: SlotTable, slot: int, *args: Any) -> None:
        length = table.lengths[slot].clone()
        right(table, slot, *args)
        table.lengths[slot] = length + 1

    patch.setattr(SlotTable, "begin", wrong)


def _stale_results(patch: pytest.MonkeyPatch) -> None:
    """Results of a row's old generation are taken for those of the new one."""
    patch.setattr(InputBatch, "generation", lambda *_: 0)


def _unsent_attempt(patch: pytest.MonkeyPatch) -> None:
    """The noise does not know how often a row was rewound."""
    right = SlotTable.rewind

    def wrong(table: SlotTable, slot: int, *args: Any) -> None:
        right(table, slot, *args)
        table.host[slot, Host.ATTEMPT] = 0

    patch.setattr(SlotTable, "rewind", wrong)


def _unfinished_copy(patch: pytest.MonkeyPatch) -> None:
    """The host reads the step that has just been queued for that before."""
    patch.setattr(
        "models.cuda.transfers.Download.wait", lambda self, _: self._source.numpy().copy()
    )


def _stale_page(patch: pytest.MonkeyPatch) -> None:
    """A row that grows into a new page goes on in its first one."""
    right = PagedFeed.moved

    def wrong(feed: PagedFeed, slot: int) -> None:
        right(feed, slot)
        if len(pages := feed.cache.pages(slot)) > 1:
            feed.pages[slot] = pages[0]

    patch.setattr(PagedFeed, "moved", wrong)


def _kept_pages(patch: pytest.MonkeyPatch) -> None:
    """A row that has ended goes on writing to its pages, which are others' now."""

    def wrong(feed: PagedFeed, hypothesis: Any) -> None:
        del feed._kinds[hypothesis]

    patch.setattr(PagedFeed, "end", wrong)


def _page_of_two(patch: pytest.MonkeyPatch) -> None:
    """A page that is not full is shared, too: two rows write to it."""
    right = PagedCache._copy

    def wrong(cache: PagedCache, slot: int, source: PagedCache, *args: Any) -> None:
        right(cache, slot, source, *args)
        if source is not cache:
            cache._pages[slot][-1] = source._pages[0][-1]

    patch.setattr(PagedCache, "_copy", wrong)


def _unsent_pages(patch: pytest.MonkeyPatch) -> None:
    """The table of pages goes up only with the rows' numbers."""
    right = PagedFeed._play

    def wrong(feed: PagedFeed, *args: Any) -> None:
        feed._new_pages &= feed.table.sent != feed.table.version
        right(feed, *args)

    patch.setattr(PagedFeed, "_play", wrong)


def _result_in_a_temporary(patch: pytest.MonkeyPatch) -> None:
    """The logits are left where the next recording has its temporaries."""

    def wrong(feed: PagedFeed, rows: int) -> None:
        feed._logits = feed._run(rows)[0]

    patch.setattr(PagedFeed, "_feed", wrong)


@pytest.mark.slow
@pytest.mark.parametrize(
    "fault",
    [
        _host_length, _new_buffer, _stale_row, _stale_results, _unsent_attempt, _unfinished_copy,
        _stale_page, _kept_pages, _page_of_two, _unsent_pages, _result_in_a_temporary,
    ],
)  # fmt: skip
def test_a_seeded_fault_shows(
    model: Valle,
    over_slots: list[tuple[Any, ...]],
    fault: Callable[[pytest.MonkeyPatch], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fault(monkeypatch)
    for count in (7, 54):  # most show among few
        inputs = [utterance(model, number) for number in range(count)]
        try:
            found = drawn(runner(model, Tape().record), inputs, 1)
        except (KeyError, IndexError, RuntimeError, ValueError):  # as loud as another result
            return
        if found != over_slots[:count]:
            return
    pytest.fail("all is as over slots")


def test_a_seeded_wait_shows(model: Valle, monkeypatch: pytest.MonkeyPatch) -> None:
    right = PagedFeed._run

    def wrong(feed: PagedFeed, rows: int) -> Any:
        assert bool(feed.table.lengths.sum() >= 0)
        return right(feed, rows)

    monkeypatch.setattr(PagedFeed, "_run", wrong)
    with pytest.raises(NotCaptureSafe):
        runner(model, Tape().record, 1)
