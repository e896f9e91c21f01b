"""A burst, which is several frames of one launch: what it needs, sends and fetches."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from app.engine.ar.graph_runner import GraphRunner
from gpu.transfers import Download, Upload
from models.stack.paged_cache import PAGE
from models.valle import Valle
from samplers.plain import is_plain
from tests.app.engine.ar.bursts import WHOLE, knobs
from tests.app.engine.ar.requests import finish, request, runner
from tests.capture.tape import Tape
from tests.samplers.ar.rows import EVERY

SLOTS = 8

pytestmark = pytest.mark.usefixtures("sorted_as_on_a_gpu")


@pytest.fixture(scope="module")
def model(float_model: Valle) -> Valle:
    return float_model


@pytest.fixture(params=[1, 3, 5])
def stride(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(GraphRunner, "stride", request.param)
    stride: int = request.param
    return stride


def test_one_that_has_ended_within_what_is_under_way_needs_no_page_more(model, stride) -> None:
    one = runner(model, Tape().capture, 6, pages=3)
    longer = request(
        model, 2, params=knobs(min_frames=100), phoneme_ids=[1, *range(10, 45), 2], max_frames=60,
        **WHOLE,
    )  # fmt: skip
    ending = request(model, 1, max_frames=100, **WHOLE)
    # The stop comes with the last burst that its one page has room for.
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
