"""Two checkouts compared: equal answers count, and any difference shows."""

import asyncio
from pathlib import Path

import pytest

from app.api.schemas import SpeechRequest
from lab.benchmarks.service.unchanged import (
    KNOBS,
    PRESETS,
    Answer,
    answers,
    compare,
    requests,
    serving,
)
from tests.conftest import ROOT
from tests.toy.make_toy import make


def test_every_request_is_one_that_the_service_takes() -> None:
    wanted = requests(100)

    for request in wanted:
        SpeechRequest(input=request.text, **request.fields)
    assert {one.fields["preset"] for one in wanted} == set(PRESETS)
    named = {knob for one in wanted for knob in one.fields}
    assert named >= {knob for knobs in KNOBS for knob in knobs}


@pytest.mark.parametrize(
    ("other", "codes", "sound"),
    [
        (Answer(200, "a", "b"), 1, 1),
        (Answer(200, "a", "c"), 1, 0),
        (Answer(200, "x", "c"), 0, 0),
        (Answer(500, "", "b"), 0, 0),
    ],
)
def test_a_difference_in_status_codes_or_bytes_is_counted(
    other: Answer, codes: int, sound: int
) -> None:
    (row,) = compare({"whole": [Answer(200, "a", "b")]}, {"whole": [other]})

    assert (row["same codes"], row["same bytes"]) == (codes, sound)


@pytest.mark.slow
def test_a_checkout_is_equal_to_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TTS_MODEL", str(make(tmp_path / "toy")))
    with serving(ROOT) as url:
        rows = compare(*(asyncio.run(answers(url, requests(2))) for _ in range(2)))

    assert all(row["spoken"] == row["same codes"] == row["same bytes"] == 2 for row in rows)
