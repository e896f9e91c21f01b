"""Looks of one, three and five frames sample what one frame at a time does, whatever ends in them.

What is replayed comes from a tape, which spoils the temporaries.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from app.engine.ar.graph_runner import GraphRunner
from app.engine.utterance import UtteranceSpec
from gpu.transfers import Download, Upload
from models.stack.paged_cache import PAGE
from models.valle import Valle
from samplers.knobs.params import SamplingParams
from samplers.plain import is_plain
from tests.app.engine.ar.requests import alone, finish, outcome, request, runner, sampled
from tests.capture.tape import Tape
from tests.samplers.ar.rows import EVERY, GUIDED, STUCK

SLOTS = 8
WHOLE: dict[str, Any] = {"trace": False, "kept": None, "context": ()}
ALIGNED: dict[str, Any] = {"alignment_stop_frames": 3, "backtrack_repeat_frames": 2}

pytestmark = pytest.mark.usefixtures("sorted_as_on_a_gpu")


@pytest.fixture(scope="module")
def model(float_model: Valle) -> Valle:
    return float_model


@pytest.fixture(params=[1, 3, 5])
def stride(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(GraphRunner, "stride", request.param)
    stride: int = request.param
    return stride


def knobs(**chosen: Any) -> SamplingParams:
    return SamplingParams.model_validate({"seed": 0, **chosen})


def stops(model: Valle) -> list[UtteranceSpec]:
    """End at each place of a look, the first frame and none among them."""
    likely = {model.config.stop_token: 50.0}
    return [
        request(model, number, params=knobs(logit_bias=likely, min_frames=number), **WHOLE)
        for number in range(7)
    ]


def limits(model: Valle) -> list[UtteranceSpec]:
    """Are cut at each place of a look."""
    params = knobs(min_frames=100, **GUIDED)
    return [request(model, n, params=params, **WHOLE, max_frames=n) for n in range(1, 8)]


def borders(model: Valle) -> list[UtteranceSpec]:
    """Grow into a second page at each place of a look."""
    params = knobs(min_frames=100, **GUIDED)
    ids = [1, *range(10, 60), 2]
    return [
        request(model, 4, params=params, phoneme_ids=[*ids[: 40 - n], 2], max_frames=40, **WHOLE)
        for n in range(5)
    ]


def rewinds(model: Valle) -> list[UtteranceSpec]:
    """Go back, many times, each from elsewhere."""
    return [request(model, n, params=knobs(**STUCK), max_frames=60, **WHOLE) for n in range(10)]


def alignments(model: Valle) -> list[UtteranceSpec]:
    """End, or go back, where the alignment says so."""
    return [
        request(model, n, params=knobs(**ALIGNED, **more), **WHOLE)
        for n in range(4)
        for more in ({"temperature": 1.1}, {**GUIDED, **STUCK})
    ]


def repeats(model: Valle) -> list[UtteranceSpec]:
    """Say words again, where any attention to what was before counts."""
    params = {"backtrack": True, "backtrack_repeat_frames": 2, "min_frames": 60}
    return [
        request(model, n, params=knobs(**params | more), max_frames=60, **WHOLE)
        for n in range(4)
        for more in ({"temperature": 1.1}, GUIDED, GUIDED | STUCK)
    ]


def takes(model: Valle) -> list[UtteranceSpec]:
    """Are the best of several, of which some end before the others."""
    likely = {model.config.stop_token: 4.0}
    params = knobs(best_of=2, logit_bias=likely, **ALIGNED)
    return [request(model, n, params=params, **WHOLE) for n in range(3)]


CASES: dict[str, tuple[Callable[[Valle], list[UtteranceSpec]], set[str]]] = {
    "stops": (stops, {"stop", "empty"}),
    "limits": (limits, {"length"}),
    "borders": (borders, {"length"}),
    "rewinds": (rewinds, set()),
    "alignments": (alignments, {"aligned"}),
    "repeats": (repeats, {"length"}),
    "takes": (takes, set()),
}


@pytest.fixture(scope="module")
def expected(model: Valle) -> Callable[[str], list[tuple[Any, ...]]]:
    """What the requests of a case come to alone, over slots, a frame at a time."""
    known: dict[str, list[tuple[Any, ...]]] = {}

    def expected(case: str) -> list[tuple[Any, ...]]:
        if case not in known:
            known[case] = [outcome(alone(model, one)) for one in CASES[case][0](model)]
        return known[case]

    return expected


@pytest.mark.parametrize("case", CASES)
def test_what_ends_or_goes_back_within_a_look_draws_as_alone_over_slots(
    model, expected, stride, case, monkeypatch
) -> None:
    inputs, reasons = CASES[case][0](model), CASES[case][1]
    if case == "repeats":  # the toy attends to no symbol clearly
        monkeypatch.setattr("app.engine.ar.text_progress._CLEAR", 0.0)
    found = [outcome(one) for one in sampled(runner(model, Tape().capture, SLOTS), inputs, stride)]
    assert found == expected(case)
    assert {reason for _, reason, *_ in found} >= reasons
    if case == "rewinds":
        assert sum(len(backtracks) for _, _, backtracks, *_ in found) > 2
    if case == "repeats":
        assert sum(back.cause == "repeat" for _, _, taken, *_ in found for back in taken) > 20


def test_one_that_is_cancelled_leaves_the_codes_of_others_as_they_were(model, stride) -> None:
    params = knobs(min_frames=100)
    wanted = [request(model, n, params=params, max_frames=20, **WHOLE) for n in range(3)]
    for steps in range(1, 4):
        one = runner(model, Tape().capture, SLOTS)
        leaving, *others = [one.admit(each) for each in wanted]
        for _ in range(steps):
            one.step()
        assert len(leaving) == (steps - 1) * stride
        one.cancel(leaving)
        late = one.admit(wanted[0])  # in its slot
        finish(one, late, *others)
        for group in (late, *others):
            assert outcome(group) == outcome(alone(model, group.inputs))


def test_one_that_finds_no_page_within_a_look_fails_alone(model, stride) -> None:
    params = knobs(min_frames=100)
    first, second = (request(model, n, params=params, max_frames=100, **WHOLE) for n in (1, 2))
    one = runner(model, Tape().capture, 6, pages=3)
    groups = [one.admit(each) for each in (first, second)]
    finish(one, *groups)
    assert outcome(groups[0]) == outcome(alone(model, first))
    assert groups[1].finish_reason == "error"
    assert 40 < len(groups[1]) < 64
    assert one.free_rows == 6


def test_one_that_has_ended_within_what_is_under_way_needs_no_page_more(model, stride) -> None:
    one = runner(model, Tape().capture, 6, pages=3)
    longer = request(
        model, 2, params=knobs(min_frames=100), phoneme_ids=[1, *range(10, 45), 2], max_frames=60,
        **WHOLE,
    )  # fmt: skip
    ending = request(model, 1, max_frames=100, **WHOLE)
    # The stop comes with the last look that its one page has room for.
    ends = (PAGE + 1 - len(ending.ar_prefix(model)) - stride) // stride * stride
    params = knobs(logit_bias={model.config.stop_token: 50.0}, min_frames=ends)
    groups = [one.admit(longer), one.admit(replace(ending, params=params))]
    finish(one, *groups)
    assert [(group.finish_reason, len(group)) for group in groups] == [
        ("length", 60),
        ("stop", ends),
    ]


def test_a_look_sends_nothing_that_the_host_did_not_write_and_fetches_once(
    model, monkeypatch
) -> None:
    one = runner(model, Tape().capture, SLOTS)
    for number in (n for n in range(len(EVERY)) if is_plain(EVERY[n])):
        if one.free_rows >= 4:
            params = knobs(min_frames=100)
            one.admit(request(model, number, params=params, max_frames=60, **WHOLE))
    for _ in range(2):
        one.step()
    calls: list[str] = []
    for kind, name in ((Upload, "send"), (Download, "fetch"), (Download, "wait")):
        own: Callable[..., Any] = getattr(kind, name)

        def counted(*given: Any, own: Callable[..., Any] = own, name: str = name) -> Any:
            calls.append(name)
            return own(*given)

        monkeypatch.setattr(kind, name, counted)
    one.step()
    assert calls == ["fetch", "wait"]
