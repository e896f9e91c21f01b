"""Over pages, a step behind, called or replayed, the same codes are sampled as over slots, at once.

What is replayed comes from a tape, so that nothing of the host can be baked in unseen.
"""

import gc
import weakref
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch

from app.engine.ar.graph_runner import GraphRunner
from app.engine.ar.model_runner import ArModelRunner
from app.engine.ar.row_pages import RowPages
from app.engine.ar.stage import ArBatch
from gpu.graphs import GraphCapturer, eager
from gpu.transfers import Download
from models.cuda.kernels import operators
from models.stack.paged_cache import PagedCache, PagePool
from models.valle import Valle
from samplers.ar.state import HostColumn, SlotTable
from samplers.cuda import operators as sampling
from samplers.knobs.params import SamplingParams
from tests.alone_among.harness import Schedule, among
from tests.app.engine.ar.requests import (
    KINDS,
    PAGES,
    ArRequests,
    alone,
    finish,
    outcome,
    request,
    runner,
)
from tests.capture.faults import Fault
from tests.capture.tape import Tape
from tests.capture.watch import NotCaptureSafe, Watch
from tests.models.cuda.kernels.cases import launched

CPU, SLOTS, FLOAT = torch.device("cpu"), 8, torch.float32
LONG = SamplingParams(min_frames=100, seed=0)
READ = ("code", "attempt", "frame")  # of a trace; its logits differ by rounding

pytestmark = pytest.mark.usefixtures("sorted_as_on_a_gpu")


@pytest.fixture(scope="module")
def model(float_model: Valle) -> Valle:
    return float_model


def feed_of(one: ArBatch) -> GraphRunner:
    assert isinstance(one._runner, GraphRunner)
    return one._runner


def pool_of(one: ArBatch) -> PagePool:
    return feed_of(one).cache.pool


def outcomes(one: ArBatch, numbers: Sequence[int], seed: int) -> list[tuple[Any, ...]]:
    """What requests of these numbers come to that join, pause, leave and go back."""
    inputs = [request(one._runner.model, number) for number in numbers]
    return among(ArRequests(one, columns=READ), inputs, Schedule(seed))


@pytest.fixture(scope="module")
def sampled_alone(model: Valle) -> Callable[..., tuple[Any, ...]]:
    """What a request of a number samples alone over slots."""

    @cache
    def sampled_alone(number: int) -> tuple[Any, ...]:
        return outcomes(runner(model, None, SLOTS), [number], 0)[0]

    return sampled_alone


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # NumPy's, of NaN and wrapping
@pytest.mark.skipif(torch.cuda.is_available(), reason="Triton's interpreter is for a CPU")
def test_kernels_in_the_interpreter_put_together_draw_as_over_slots(model, monkeypatch) -> None:
    pytest.importorskip("triton")
    plain: dict[str, Any] = {"prompt": None, "trace": False, "max_frames": 2}
    few = [request(model, number, **plain) for number in range(4)]
    expected = [outcome(alone(model, each)) for each in few]
    one = runner(model, eager, 5)  # without warm-ups, of which each takes ten seconds
    groups = [one.admit(each) for each in few[1:]]  # and a prefix some
    for kernel in operators.KERNELS:
        monkeypatch.setattr(operators, kernel.name, launched(kernel))
    monkeypatch.setattr(sampling, "sample", launched(sampling.sample))
    groups = [one.admit(few[0]), *groups]
    finish(one)
    assert [outcome(group) for group in groups] == expected
    assert sum(map(len, groups)) > 6


@pytest.mark.parametrize("number", [0, 9, 17])
def test_what_a_later_take_goes_on_from_is_kept_as_over_slots(model, number) -> None:
    batches = runner(model, eager, 6), runner(model, None, 6)
    group, other = (one.admit(request(model, number)) for one in batches)
    for one in batches:
        finish(one)
    assert (group.memory is None) == (other.memory is None) == (number == 0)
    if group.memory is not None and other.memory is not None:
        np.testing.assert_allclose(group.memory.mu, other.memory.mu, atol=1e-4)


def test_a_row_that_stops_is_known_a_step_late_and_draws_nothing_more(model) -> None:
    one = runner(model, eager, 2)
    params = SamplingParams(logit_bias={model.config.stop_token: 50.0}, min_frames=4, seed=0)
    group, steps = one.admit(request(model, 0, params=params, max_frames=30)), 0
    while group.finish_reason is None:
        one.step()
        steps += 1
    assert (group.finish_reason, len(group), steps) == ("stop", 4, 2)
    assert one.free_rows == 2


def test_a_step_beside_beams_is_read_at_once_and_all_others_a_step_late(model) -> None:
    one = runner(model, eager, SLOTS)
    group = one.admit(request(model, 0, params=LONG, max_frames=60))
    one.step()
    assert len(group) == 0
    beams = one.admit(request(model, 23, max_frames=60))
    one.step()
    assert (len(group), len(beams)) == (GraphRunner.stride + 1, 1)
    one.cancel(beams)
    one.step()
    assert len(group) == GraphRunner.stride + 1
    one.step()
    assert len(group) == 2 * GraphRunner.stride + 1


VIEWS = (
    "view", "select.int", "slice", "unsqueeze", "unbind", "expand", "as_strided", "detach",
    "split", "transpose", "alias",
)  # fmt: skip


@pytest.mark.parametrize(("numbers", "most"), [((0, 2, 4), 8), ((0, 12, 9), 160), ((16,), 160)])
def test_a_step_waits_for_nothing_and_launches_little(model, numbers, most) -> None:
    one = runner(model, Tape().capture, SLOTS)
    one._runner.table.host[:, HostColumn.AVOID_UNTIL] = 0  # avoiding takes a few operators more
    for number in numbers:
        one.admit(request(model, number, kept=None, trace=False, max_frames=60))
    for _ in range(3):
        one.step()
    feed, replays = feed_of(one), list[int]()
    held: list[dict[Any, Any]] = [feed._graphs.feeding, feed._graphs.sampling]
    for recordings in held:  # what these play is the tape's
        recordings.update(dict.fromkeys(recordings, lambda: replays.append(0)))
    feed._graphs.attending = lambda: replays.append(0)
    with Watch("raise").on() as watch:
        one.step()
    assert len(replays) == 1
    launched = {
        name: count
        for name, count in watch.operators.items()
        if not any(view in name for view in VIEWS)
    }
    assert sum(launched.values()) <= most, launched


@pytest.mark.parametrize(("slots", "recordings"), [(1, 5), (8, 11), (20, 13)])
def test_there_is_one_recording_a_number_of_rows_and_draw_and_none_after_the_start(
    model, slots, recordings
) -> None:
    tape = Tape()
    one = runner(model, tape.capture, slots)
    assert len(tape.sizes) == recordings
    finish(one, one.admit(request(model, 0)))
    assert len(tape.sizes) == recordings
    assert tape.replays > 5


def test_a_join_launches_little(model) -> None:
    one = runner(model, eager, SLOTS)
    group = one.admit(request(model, 0))
    one._runner.remove(group.sequences)
    with Watch("count").on() as watch:
        one._runner.add(group.sequences, group.inputs)
    counts = {name: count for name, count in watch.operators.items() if "view" not in name}
    assert sum(counts[name] for name in counts if "fill" in name or "copy" in name) <= 20


def test_a_closed_runner_frees_its_memory_at_once(model) -> None:
    # Unlike a tape, a graph keeps its function, and with it the feed that keeps the graph.
    one = runner(model, GraphCapturer(CPU).capture, SLOTS)
    outcomes(one, [2], 0)
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


def test_a_row_has_the_pages_that_it_has_grown_into_and_shares_its_voice(model) -> None:
    one = runner(model, eager, SLOTS)
    feed, pool = feed_of(one), pool_of(one)
    groups = [one.admit(request(model, 4, params=LONG, max_frames=70)) for _ in range(2)]
    before = pool.pages - pool.free
    first, other = (feed.cache.pages(slot) for slot in (0, 1))
    assert first[0] == other[0]  # of the prompt
    assert before == 4  # and the rest of it in the prefix cache
    while any(group.finish_reason is None for group in groups):
        one.step()
        assert not {*first[1:]} & {*other[1:]}
    assert pool.pages - pool.free == 2
    assert (feed.places.pages == pool.padding).all()


FAULTS = {
    "a step is fed what the first was": Fault(
        GraphRunner._run, "frames.clamp(min=1)", "frames.clamp(1, 2)"
    ),
    "the host writes into another table than the recorded one": Fault(
        GraphRunner.__init__, "for rows in reversed(graphs.sizes):",
        "for rows in reversed(graphs.sizes):\n            self.plain = self.plain.clone()",
    ),
    "a row keeps the length of the one before in its slot": Fault(
        SlotTable.begin, "self.beam_scores[slot] = 0.0", "length = int(self.lengths[slot])"
    ),
    "results of a row's old generation are the new one's": Fault(
        ArModelRunner.rewind, "generation += 1", "generation += 0"
    ),
    "the noise does not know how often a row was rewound": Fault(
        SlotTable.rewind, "HostColumn.ATTEMPT] += 1", "HostColumn.ATTEMPT] = 0"
    ),
    "the host reads the step that was just queued for that before": Fault(
        Download.wait, "np.array(self._numbers[ticket, : self._most[ticket]])",
        "self._source.numpy()[: self._most[ticket]].copy()",
    ),
    "a row that grows into a new page goes on in its first": Fault(
        RowPages.lay, "= pages", "= pages[:1]"
    ),
    "a row that has ended goes on writing to its pages": Fault(
        GraphRunner._leave, "self.places.lay(slot, ())", "continue"
    ),
    "two rows write to a page that is not full": Fault(
        PagedCache._copy, "self.reserve(slot, end)", "self._pages[slot].append(pages[whole])"
    ),
    "the table of pages goes up only before the first frame": Fault(
        GraphRunner._replay, "self.places.send()",
        "None if self.table.lengths.any() else self.places.send()",
    ),
    "the logits are left where the next has its temporaries": Fault(
        GraphRunner._feed, "self._logits[:rows].copy_(logits[:rows])", "self._logits = logits"
    ),
    "the host waits for a step": Fault(
        GraphRunner._run, "code = ", "code = bool(self.table.lengths.any()) * "
    ),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", FAULTS)
def test_a_seeded_fault_shows(model, sampled_alone, name, monkeypatch) -> None:
    expected = [sampled_alone(number) for number in range(2 * KINDS)]
    FAULTS[name].seed(monkeypatch)
    for count in (7, 2 * KINDS):  # most show among few
        try:
            found = outcomes(runner(model, Tape().capture, SLOTS), range(count), 1)
        except (NotCaptureSafe, KeyError, IndexError, RuntimeError, ValueError):
            return  # as loud as another result
        if found != expected[:count]:
            return
    pytest.fail("all is as alone")
