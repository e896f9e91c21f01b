"""Takes that go on from a frame of an earlier one."""

from typing import Any

import httpx
import numpy as np
import pytest

from tests.app.tools.answers import asked, refusal
from tests.app.tools.live_client import live

RATE_HZ, HOP = 24_000, 320
TEXT = "The birch slid on. [pause:0.2s] We won."
BASE: dict[str, Any] = {"input": TEXT, "seed": 4, "voice": "heart", "response_format": "pcm"}
OTHER: dict[str, Any] = {"seed": 9, "temperature": 1.1, "nar_temperature": 0.8, "preset": "default"}
REACH = 4 * HOP  # samples before a cut that the codec's overlapping windows share with frames after


def say(client: httpx.Client, **fields: Any) -> tuple[dict[str, Any], bytes]:
    """Speak; return the report and the sound."""
    report, answer = asked(client, BASE | fields)
    return report, answer.content


def place(report: dict[str, Any], utterance: int, frame: int) -> dict[str, Any]:
    return {"id": report["id"], "utterance": utterance, "frame": frame}


KNOBS: dict[str, dict[str, Any]] = {
    "the voice's own": {},
    "penalties": {"repetition_penalty": 1.3, "frequency_penalty": 0.3, "dry_multiplier": 0.5},
    "mirostat": {"mirostat_mode": 2, "temperature": 1.0, "top_p": 1.0},
    "a text that grows": {"text_lookahead_words": 2},
    "words that are said again": {
        "input": "Last week, the doctor forgot to lock the back door. [pause:0.2s] We won.",
        "voice": "george",
        "seed": 1,
    },
    "entropix that pauses": {"entropix": True, "cfg_strength": 1.0},
    "much backtracking": {
        "temperature": 1.3,
        "backtrack": True,
        "backtrack_max_silence": 8,
        "backtrack_min_repeats": 2,
        "backtrack_min_frames": 4,
    },
}


@pytest.mark.slow
@pytest.mark.weights
@pytest.mark.parametrize("name", KNOBS)
def test_the_same_knobs_and_seed_give_the_same_codes_and_bytes_to_the_end(builtin, name) -> None:
    report, sound = say(builtin, **KNOBS[name])
    frames = len(report["utterances"][0]["codes"])
    places = [(0, frames // 2), (1, 17)]  # what knobs remember is of the utterance that is drawn
    if not KNOBS[name]:
        places += [(0, 0), (0, 1), (0, frames), (1, 0)]
    repeats = [one for one in report["utterances"][0]["backtracks"] if one["cause"] == "repeat"]
    places += [(0, one["kept"] + 3) for one in repeats[-1:]]
    assert repeats or name != "words that are said again"
    for utterance, frame in places:
        frame = min(frame, len(report["utterances"][utterance]["codes"]))
        again, same = say(builtin, **KNOBS[name], continue_from=place(report, utterance, frame))
        assert again["codes_sha256"] == report["codes_sha256"], (utterance, frame)
        assert same == sound
        for one, other in zip(again["utterances"], report["utterances"], strict=True):
            assert one["backtracks"] == other["backtracks"]
            assert one["finish_reason"] == other["finish_reason"]


@pytest.mark.slow
@pytest.mark.weights
@pytest.mark.parametrize("frame", [1, 14, 15, 40])
def test_other_knobs_give_the_same_codes_and_bytes_up_to_the_cut(builtin, frame) -> None:
    report, sound = say(builtin, timestamps="word")
    other, changed = say(builtin, **OTHER, continue_from=place(report, 0, frame), timestamps="word")
    ours, theirs = report["utterances"][0], other["utterances"][0]
    assert theirs["codes"][:frame] == ours["codes"][:frame]
    assert theirs["codes"] != ours["codes"]
    cut = frame * HOP - REACH - HOP  # less what was trimmed at the beginning, which is not negative
    first, second = (np.frombuffer(one, "<i2") for one in (sound, changed))
    trimmed = 0.25 * RATE_HZ
    same = max(0, round(cut - trimmed))
    assert np.array_equal(first[:same], second[:same])


@pytest.mark.slow
@pytest.mark.weights
def test_whole_utterances_are_kept_and_the_next_is_drawn_anew(builtin) -> None:
    report, sound = say(builtin)
    other, changed = say(builtin, **OTHER, continue_from=place(report, 1, 0))
    first, second = report["utterances"]
    assert other["utterances"][0]["codes"] == first["codes"]
    assert other["utterances"][1]["codes"] != second["codes"]
    end = round(first["duration_s"] * RATE_HZ) * 2
    assert sound[:end] == changed[:end]


@pytest.mark.slow
@pytest.mark.weights
def test_it_goes_on_by_every_way_of_the_wire_alike(builtin) -> None:
    report, _ = say(builtin)
    wanted = OTHER | {"continue_from": place(report, 0, 20)}
    other, sound = say(builtin, **wanted)
    streamed = builtin.post("/v1/audio/speech", json=BASE | wanted | {"stream": True})
    assert streamed.content == sound
    with live(builtin) as session:
        done = session.say(TEXT[:9], TEXT[9:], voice="heart", **wanted)
    assert done["codes_sha256"] == other["codes_sha256"]
    assert session.sound == sound


@pytest.mark.slow
@pytest.mark.weights
def test_a_take_that_went_on_can_be_gone_on_from(builtin) -> None:
    report, _ = say(builtin)
    second, _ = say(builtin, **OTHER, continue_from=place(report, 0, 20))
    third, _ = say(builtin, **OTHER, continue_from=place(second, 0, 30))
    assert third["codes_sha256"] == second["codes_sha256"]


@pytest.mark.slow
@pytest.mark.weights
@pytest.mark.parametrize("knobs", [{"best_of": 2}, {"beam_width": 2, "backtrack": False}])
def test_several_continuations_can_be_tried(builtin, knobs) -> None:
    report, _ = say(builtin)
    other, _ = say(builtin, **knobs, continue_from=place(report, 0, 30))
    takes = other["utterances"][0]
    assert takes["codes"][:30] == report["utterances"][0]["codes"][:30]
    assert len(takes["takes"]) == (2 if "best_of" in knobs else len(takes["takes"]))


WANTED: dict[str, Any] = {"input": "Hi there.", "seed": 3, "max_duration_s": 0.4}


def test_a_trace_tells_of_what_was_drawn(toy_server) -> None:
    report, _ = asked(toy_server, WANTED | {"trace": True})
    other, _ = asked(toy_server, WANTED | {"trace": True, "continue_from": place(report, 0, 9)})
    ours, theirs = report["utterances"][0], other["utterances"][0]
    assert theirs["tokens"] == ours["tokens"][9:]
    assert theirs["logprobs"] == ours["logprobs"][9:]


@pytest.mark.parametrize(
    ("change", "fields", "status", "param"),
    [
        ({"id": "nobody"}, {}, 404, "id"),
        ({"utterance": 9}, {}, 422, "continue_from.utterance"),
        ({"frame": 10_000}, {}, 422, "continue_from.frame"),
        ({"frame": -1}, {}, 422, "continue_from.frame"),
        ({"frame": "one"}, {}, 422, "continue_from.frame"),
        ({"place": 1}, {}, 422, "continue_from.place"),
        ({"frame": 5}, {"input": "Another text."}, 422, "continue_from"),
        ({"frame": 5}, {"nar_levels": 1}, 422, "nar_levels"),
    ],
)
def test_a_place_that_is_none_or_a_take_of_another_kind_is_refused_by_name(
    toy_server, change, fields, status, param
) -> None:
    report, _ = asked(toy_server, WANTED)
    where = {"continue_from": {"id": report["id"], "frame": 1} | change}
    answer = toy_server.post("/tts", json=WANTED | fields | where)
    assert refusal(answer) == (status, param)
