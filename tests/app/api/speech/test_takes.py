"""Utterances that are tried in several ways, as a caller meets them."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from app.engine.serving import scheduler
from app.main import create_app
from app.settings import Settings
from tests.app.tools.answers import asked, refusal
from tests.app.tools.serving import served
from tests.toy.make_toy import MODEL, make

ASKED: dict[str, Any] = {"input": "Hi. You.", "seed": 1, "max_duration_s": 0.5, "nar_levels": 0}
BRANCH: dict[str, Any] = {"entropix": True, "entropix_action": "branch"}


@pytest.mark.parametrize(
    ("knobs", "count"), [({}, 0), ({"best_of": 3}, 3), ({"beam_width": 1}, 1), (BRANCH, 0)]
)
def test_what_each_take_was_ranked_by_is_told(
    toy_server: httpx.Client, knobs: dict[str, Any], count: int
) -> None:
    for utterance in asked(toy_server, ASKED | knobs)[0]["utterances"]:
        takes = utterance["takes"]
        assert len(takes) == count
        kept = [take for take in takes if take["kept"]]
        assert len(kept) == bool(takes)
        for take in kept:
            assert take["frames"] == len(utterance["codes"])
            assert take["finish_reason"] == utterance["finish_reason"]
            assert take["score"] < 0


@pytest.mark.parametrize(
    ("knobs", "param"),
    [
        ({"best_of": 5}, "best_of"),
        ({"beam_width": 3, "cfg_strength": 2.0}, "beam_width"),
        (BRANCH | {"entropix_branch_rollouts": 5}, "entropix_branch_rollouts"),
    ],
)
def test_more_rows_than_there_are_is_refused_with_the_knob_that_asks_for_them(
    small_server: httpx.Client, knobs: dict[str, Any], param: str
) -> None:
    answer = small_server.post("/tts", json=ASKED | knobs)
    assert refusal(answer) == (422, param)
    assert small_server.post("/tts", json=ASKED | {"best_of": 4}).status_code == 200


@pytest.fixture(scope="module")
def small_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """One with four rows, and a model whose NAR levels see all frames."""
    config = MODEL.model_copy(update={"nar_mask": "full"})
    folder = make(tmp_path_factory.mktemp("full") / "toy", config=config)
    with served(create_app(Settings(model=str(folder), device="cpu", slots=4))) as client:
        yield client


@pytest.mark.parametrize(
    "knobs",
    [
        {},
        {"nar_window_frames": 500},
        {"best_of": 2},
        {"beam_width": 2},
        {"backtrack": True, "backtrack_window": 750},
    ],
)
def test_more_may_be_drawn_at_a_time_than_may_wait_where_nothing_can_be_heard_before(
    small_server: httpx.Client, monkeypatch: pytest.MonkeyPatch, knobs: dict[str, Any]
) -> None:
    monkeypatch.setattr(scheduler, "MAX_WAITING_S", 0.1)
    asked = ASKED | {"ban_tokens": [512], "response_format": "pcm"} | knobs
    answer = small_server.post("/tts", json=asked, timeout=60)
    assert (answer.status_code, answer.headers["x-nar"]) == (
        200,
        "windows" if "nar_window_frames" in knobs else "whole",
    )
