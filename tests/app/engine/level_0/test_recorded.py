"""The recorded step draws what the loop that launches every operator draws.

What is played here comes from a tape, so that nothing of the host can be baked in unseen.
"""

import gc
import random
import weakref
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from app.engine.level_0.admission import Runner
from app.engine.level_0.hypothesis_group import HypothesisGroup
from app.engine.level_0.recorded.decode_graph import DecodeGraph
from app.engine.level_0.recorded.runner import RecordedRows, RecordedRunner
from app.engine.level_0.runner import ArRunner
from app.engine.utterance import UtteranceInput
from models.checkpoints import load_speech_model
from models.cuda.graphs import Recorder
from models.cuda.kernels.choice import TORCH
from models.prefix_cache import PrefixCache, VoiceKey
from models.stack.paged_cache import PagedCache, PagePool
from models.valle import Valle
from samplers.ar.chain import why_eager
from samplers.ar.row_state import Host, RowState
from samplers.knobs.params import SamplingParams
from samplers.ops import filters
from tests.capture.tape import Tape
from tests.capture.watch import NotCaptureSafe, Watch

SLOTS, ROOM, PAGES = 8, 160, 32
CPU = torch.device("cpu")
STUCK = {
    "backtrack": True, "backtrack_min_repeats": 2, "backtrack_min_frames": 2, "temperature": 0.25,
    "backtrack_window": 20, "backtrack_max_silence": 3,
}  # fmt: skip
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
]  # fmt: skip


LONG = SamplingParams(min_frames=100, seed=0)


@pytest.fixture(autouse=True)
def sorted_as_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """On a CPU `filters.descending` sorts by NumPy, which no graph could hold."""
    monkeypatch.setattr(
        filters, "descending", lambda logits: logits.sort(-1, descending=True).values
    )
    with torch.inference_mode():
        yield


@pytest.fixture(scope="module")
def model(toy: Any) -> Valle:
    return load_speech_model(toy, CPU).model


def utterance(model: Valle, number: int) -> UtteranceInput:
    draw = random.Random(number)
    knobs = KNOBS[number % len(KNOBS)] | {"seed": number}
    shares = number % 5 == 4  # a whole page of its prompt with others
    prompt = torch.randint(
        model.config.codes, (70 if shares else draw.randint(2, 9), model.config.levels),
        generator=torch.Generator().manual_seed(0 if shares else number),
    )  # fmt: skip
    silent = torch.arange(model.config.codes) % 8 == number % 8
    return UtteranceInput(
        [1, *(draw.randint(10, 20) for _ in range(draw.randint(1, 12))), 2],
        SamplingParams(**knobs), number, number % 3, draw.randint(5, 60),
        prompt=prompt, silent=silent, voice=VoiceKey(None, "a voice", 0) if shares else None,
    )  # fmt: skip


def pool_of(model: Valle, pages: int = PAGES) -> PagePool:
    return PagePool(model.config, pages, dtype=torch.float32, device=CPU)


def recorded(
    model: Valle, slots: int = SLOTS, tape: Tape | None = None, pages: int = PAGES
) -> RecordedRunner:
    pool = pool_of(model, pages)
    return RecordedRunner(
        model, PrefixCache(model, new_cache=pool.new_cache), pool, slots=slots, max_length=ROOM,
        record=(tape or Tape()).record,
    )  # fmt: skip


def outcome(group: HypothesisGroup) -> tuple[Any, ...]:
    return (
        group.codes().tolist(), group.finish_reason, group.backtracks,
        [(take.frames, take.finish_reason, take.kept) for take in group.ranked],
    )  # fmt: skip


def drawn(runner: Runner, inputs: list[UtteranceInput], seed: int) -> list[tuple[Any, ...]]:
    """Draw all, as rows are free, with pauses, and one that leaves now and then."""
    chance, waiting = random.Random(seed), list(inputs)
    groups: list[HypothesisGroup] = []
    while waiting or any(group.finish_reason is None for group in groups):
        while waiting and runner.free_rows >= 4 and chance.random() < 0.7:
            groups.append(runner.admit(waiting.pop(0)))
            if runner.free_rows >= 4 and chance.random() < 0.2:
                left = runner.admit(inputs[chance.randrange(len(inputs))])
                runner.step()
                runner.cancel(left)
        for group in groups:
            if group.finish_reason is None and chance.random() < 0.1:
                (runner.resume if group.paused else runner.pause)(group)
        runner.step()
    return [outcome(group) for group in groups]


def plain(model: Valle) -> ArRunner:
    return ArRunner(model, PrefixCache(model), slots=SLOTS, max_length=ROOM)


@pytest.mark.slow
@pytest.mark.parametrize("number", range(len(KNOBS)))
def test_each_kind_of_row_is_drawn_as_by_the_other_loop(model: Valle, number: int) -> None:
    inputs = [utterance(model, number)]
    assert drawn(recorded(model, 4), inputs, 0) == drawn(plain(model), inputs, 0)


@pytest.mark.parametrize("number", [0, 9, 17])
def test_what_a_later_take_goes_on_from_is_kept_as_by_the_other_loop(
    model: Valle, number: int
) -> None:
    inputs, found = utterance(model, number), []
    for runner in (recorded(model, 2), plain(model)):
        group = runner.admit(inputs)
        while group.finish_reason is None:
            runner.step()
        found.append(group.memory)
    one, other = found
    assert (one is None) == (other is None) == (number == 0)
    if one is not None and other is not None:
        assert one.last_act.tolist() == other.last_act.tolist()
        np.testing.assert_allclose(one.mu, other.mu, atol=1e-4)


@pytest.mark.slow
def test_200_requests_that_join_pause_leave_and_go_back_are_drawn_alike(model: Valle) -> None:
    tape = Tape()
    inputs = [utterance(model, number) for number in range(200)]
    found, expected = drawn(recorded(model, tape=tape), inputs, 1), drawn(plain(model), inputs, 2)

    assert found == expected
    assert sum(len(backtracks) for _, _, backtracks, _ in found) > 10
    assert {reason for _, reason, *_ in found} >= {"stop", "length"}


@pytest.mark.slow
def test_without_kernels_of_our_own_the_codes_are_the_same(
    model: Valle, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model.transformer, "kernels", TORCH)
    inputs = [utterance(model, number) for number in range(len(KNOBS))]
    assert drawn(recorded(model), inputs, 7) == drawn(plain(model), inputs, 7)


def test_a_row_that_stops_is_known_a_step_late_and_draws_nothing_more(model: Valle) -> None:
    stop = model.config.stop_token
    inputs = utterance(model, 0)
    params = SamplingParams(logit_bias={stop: 50.0}, min_frames=4, seed=0)
    runner = recorded(model, 2)
    group = runner.admit(replace(inputs, params=params, max_frames=30))
    steps = 0
    while group.finish_reason is None:
        runner.step()
        steps += 1

    assert (group.finish_reason, len(group), steps) == ("stop", 4, 6)
    assert runner.free_rows == 2
    assert runner._recorded.graph.state.stopped[0]


def test_steps_wait_for_nothing_and_launch_one_thing_beside_two_copies(model: Valle) -> None:
    runner = recorded(model)
    for number in (0, 3, 12, 16):
        runner.admit(utterance(model, number))
    for _ in range(3):
        runner.step()
    launched: list[Any] = []
    plays = runner._recorded.graph._plays
    for size in plays:  # what these hold is the tape's
        plays[size] = partial(launched.append, size)
    with Watch("raise").on() as watch:
        runner.step()

    assert len(launched) == 1
    kernels = {name: count for name, count in watch.operators.items() if "view" not in name}
    assert set(kernels) <= {"aten.copy_.default", "aten.select.int"}
    assert kernels["aten.copy_.default"] <= 2


def test_no_storage_is_replaced_by_joins_leaves_and_rewinds(model: Valle) -> None:
    runner = recorded(model, 4)
    graph = runner._recorded.graph
    pool = graph.cache._pool
    kept = [
        *vars(graph.state).values(), *graph.tables.values(), graph.first_hidden, graph.guidance,
        graph.first_attention, graph._results, graph._pages, *pool.keys, *pool.values,
    ]  # fmt: skip
    places = [tensor.data_ptr() for tensor in kept]
    drawn(runner, [utterance(model, number) for number in range(2, 8)], 3)

    assert [tensor.data_ptr() for tensor in kept] == places


def test_a_closed_runner_frees_its_memory_at_once(model: Valle) -> None:
    # Unlike a tape, a recording keeps its function, and with it the graph that keeps the recording.
    pool = pool_of(model)
    runner = RecordedRunner(
        model, PrefixCache(model, new_cache=pool.new_cache), pool, slots=4, max_length=ROOM,
        record=Recorder(CPU).record,
    )  # fmt: skip
    drawn(runner, [utterance(model, 2)], 0)
    cache = weakref.ref(runner._recorded.graph.cache)
    gc.collect()
    gc.disable()  # a second batch may be made before the collector runs
    try:
        runner.close()
        del runner
        assert cache() is None
        assert pool.free == PAGES
    finally:
        gc.enable()


def test_a_row_has_the_pages_that_it_has_grown_into_and_shares_its_voice(model: Valle) -> None:
    runner = recorded(model, 4)
    pool = runner._recorded.graph.cache._pool
    groups = []
    for _ in range(2):
        inputs = replace(utterance(model, 4), params=LONG, max_frames=70)
        groups.append(runner.admit(inputs))
    before = pool.pages - pool.free
    one, other = (runner._recorded.graph.cache.pages(slot) for slot in (0, 1))
    assert one[0] == other[0]  # of the prompt
    assert before == 4  # and the rest of it in the prefix cache
    while any(group.finish_reason is None for group in groups):
        runner.step()
        assert not {*one[1:]} & {*other[1:]}
    assert pool.pages - pool.free == 2
    assert (runner._recorded.graph.pages == pool.padding).all()


def test_an_utterance_that_finds_no_page_fails_alone(model: Valle) -> None:
    first, second = (
        replace(utterance(model, number), params=LONG, max_frames=100) for number in (1, 2)
    )
    expected = drawn(plain(model), [first], 0)
    runner = recorded(model, 4, pages=3)
    groups = [runner.admit(one) for one in (first, second)]
    while any(group.finish_reason is None for group in groups):
        runner.step()
    assert [outcome(groups[0])] == expected
    assert groups[1].finish_reason == "error"
    assert "keys and values" in str(groups[1].error)
    assert 40 < len(groups[1]) < 64
    assert runner.free_rows == 4
    assert runner._recorded.graph.cache._pool.free == 3


def test_nothing_is_recorded_after_the_start(model: Valle) -> None:
    tape = Tape()
    runner = recorded(model, 4, tape)
    recordings = len(tape.sizes)
    drawn(runner, [utterance(model, number) for number in (0, 3)], 3)

    assert len(tape.sizes) == recordings
    assert tape.plays > 20


@pytest.mark.parametrize(
    "knobs",
    [
        {"beam_width": 2, "temperature": 0.0},
        {"entropix": True, "entropix_action": "branch"},
        {"sampler_order": "hf"},
        {"temperature_last": True, "top_p": 0.9},
        {"ban_sequences": [{"codes": (1, 2)}] * 9},
        {"ban_sequences": [{"codes": tuple(range(9))}]},
        {"entropix": True, "entropix_adaptive_candidates": 9},
    ],
)
def test_what_is_not_recorded_says_why(model: Valle, knobs: dict[str, Any]) -> None:
    params = SamplingParams(**knobs)
    assert why_eager(params)
    assert not recorded(model, 1).draws(replace(utterance(model, 0), params=params))


# What the tests above must not let pass: mistakes that a recording forgives.


def _host_length(patch: pytest.MonkeyPatch) -> None:
    """The number of frames is the host's."""
    right = RowState.newest

    def wrong(state: RowState) -> Tensor:
        state.lengths.fill_(0)
        return right(state)

    patch.setattr(RowState, "newest", wrong)


def _new_buffer(patch: pytest.MonkeyPatch) -> None:
    """The host writes into another table than the one that was recorded."""
    right = DecodeGraph.__init__

    def wrong(graph: DecodeGraph, *args: Any, **kwargs: Any) -> None:
        right(graph, *args, **kwargs)
        graph.tables = {kind: table.clone() for kind, table in graph.tables.items()}

    patch.setattr(DecodeGraph, "__init__", wrong)


def _stale_row(patch: pytest.MonkeyPatch) -> None:
    """A row keeps the length of the one that had its slot before."""

    def wrong(state: RowState) -> None:
        state.seen.copy_(state.number(Host.GENERATION))

    patch.setattr(RowState, "begin_step", wrong)


def _stale_results(patch: pytest.MonkeyPatch) -> None:
    """Results of a row's old generation are taken for those of the new one."""
    patch.setattr(RecordedRows, "is_current", lambda *_: True)


def _baked_attempt(patch: pytest.MonkeyPatch) -> None:
    """The noise does not know how often a row was rewound."""
    right = RowState.number

    def wrong(state: RowState, column: Host) -> Tensor:
        return torch.zeros_like(state.seen) if column is Host.ATTEMPT else right(state, column)

    patch.setattr(RowState, "number", wrong)


def _unfinished_copy(patch: pytest.MonkeyPatch) -> None:
    """The host reads the step that has just been queued for that before."""
    patch.setattr(DecodeGraph, "results", lambda graph, _: graph._results.numpy().copy())


def _stale_page(patch: pytest.MonkeyPatch) -> None:
    """A row that grows into a new page goes on in its first one."""

    def wrong(graph: DecodeGraph, slot: int, length: int) -> None:
        graph.cache.reserve(slot, length)
        graph.pages[slot] = graph.cache.pages(slot)[0]

    patch.setattr(DecodeGraph, "reserve", wrong)


def _kept_pages(patch: pytest.MonkeyPatch) -> None:
    """A row that has ended goes on writing to its pages, which are others' now."""
    patch.setattr(DecodeGraph, "forget", lambda *_: None)


def _page_of_two(patch: pytest.MonkeyPatch) -> None:
    """A page that is not full is shared, too: two rows write to it."""
    right = PagedCache._copy

    def wrong(cache: PagedCache, slot: int, source: PagedCache, *args: Any) -> None:
        right(cache, slot, source, *args)
        if source is not cache:
            cache._pages[slot][-1] = source._pages[0][-1]
            cache._places[slot] = None

    patch.setattr(PagedCache, "_copy", wrong)


def _unsent_pages(patch: pytest.MonkeyPatch) -> None:
    """The table of pages goes up only with the rows' numbers."""
    right = DecodeGraph.launch

    def wrong(graph: DecodeGraph, *args: Any) -> int:
        numbers = graph.host.size
        if np.array_equal(graph._host[:numbers], graph._sent[:numbers]):
            graph._sent[:] = graph._host
        return right(graph, *args)

    patch.setattr(DecodeGraph, "launch", wrong)


@pytest.mark.slow
@pytest.mark.parametrize(
    "fault",
    [
        _host_length, _new_buffer, _stale_row, _stale_results, _baked_attempt, _unfinished_copy,
        _stale_page, _kept_pages, _page_of_two, _unsent_pages,
    ],
)  # fmt: skip
def test_a_seeded_fault_shows(
    model: Valle, fault: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    inputs = [utterance(model, number) for number in (3, 5, 13, 2, 4, 9, 14)]
    expected = drawn(plain(model), inputs, 1)
    fault(monkeypatch)
    try:
        found = drawn(recorded(model), inputs, 1)
    except (KeyError, IndexError, RuntimeError):  # as loud as another result
        return

    assert found != expected


def test_a_seeded_wait_shows(model: Valle, monkeypatch: pytest.MonkeyPatch) -> None:
    right = RowState.penalised

    def wrong(state: RowState, logits: Tensor) -> Tensor:
        return right(state, logits) if bool(state.stopped.any()) else logits

    monkeypatch.setattr(RowState, "penalised", wrong)
    with pytest.raises(NotCaptureSafe):
        recorded(model, 1)
