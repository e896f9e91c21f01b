"""What GET /v1/audio/speech/{id} tells about a response."""

import asyncio
import hashlib
import math
from typing import Any

import httpx
import numpy as np
import pytest

from app.api.history.recent import RecentSpeeches
from app.api.history.report import AskedSpeech, Failure
from app.api.schemas import SpeechOptions
from app.engine.core import SpeechJob
from app.engine.errors import UnknownSpeech
from app.main import create_app
from app.settings import Settings
from samplers.knobs.params import SamplingParams
from tests.app.tools.answers import asked, path_of, shape
from tests.app.tools.live_client import live
from tests.app.tools.serving import served
from tests.fakes import fake_engine

TEXT = "One. [pause:0.2s] Two."
STOP = 512  # the toy's
CFG = {"cfg_strength": 1.5}


def ask(client: httpx.Client, **fields) -> tuple[httpx.Headers, dict[str, Any]]:
    """Speak, then ask how it was done."""
    report, answer = asked(client, {"input": TEXT, "max_duration_s": 0.6} | fields)
    return answer.headers, report


def test_it_tells_what_was_asked_and_what_came_of_it(toy_server) -> None:
    headers, report = ask(toy_server, temperature=0.9, preset="stable")
    assert report["id"] == headers["x-request-id"]
    request = report["request"]
    assert (request["input"], request["voice"], request["language"]) == (TEXT, "toy", "en")
    params = request["params"]
    assert str(params["seed"]) == headers["x-seed"]
    assert (params["temperature"], params["preset"], params["top_p"]) == (0.9, "stable", 0.9)
    assert report["finish_reason"] == headers["x-finish-reason"]
    assert f"{1000 * report['audio_s']:.0f}" == headers["x-audio-ms"]
    assert report["timings"]["total_s"] >= report["timings"]["ar_s"] > 0
    assert (report["nar"], report["decoder"]) == ("chunks", "codec")


def test_its_codes_have_the_hash_of_the_response_and_nothing_is_taken_back(toy_server) -> None:
    headers, report = ask(toy_server)
    params = report["request"]["params"]
    assert (headers["x-backtracks"], params["backtrack"]) == ("0", False)
    assert not any(utterance["backtracks"] for utterance in report["utterances"])
    digest, frames = hashlib.sha256(), 0
    for utterance in report["utterances"]:
        codes = np.array(utterance["codes"], "<i2")
        digest.update(codes.tobytes())
        frames += len(codes)
        assert not len(codes) or codes.shape[1] == 8
    assert digest.hexdigest() == report["codes_sha256"] == headers["x-codes-sha256"]
    assert str(frames) == headers["x-frames"]


@pytest.mark.parametrize("knobs", [{}, CFG, {"mirostat_mode": 2}, {"temperature": 0}])
def test_a_trace_has_a_record_a_token_and_changes_no_code(toy_server, knobs) -> None:
    headers, report = ask(toy_server, trace=True, seed=3, **knobs)
    assert headers["x-codes-sha256"] == ask(toy_server, seed=3, **knobs)[0]["x-codes-sha256"]
    for utterance in report["utterances"]:
        tokens, codes = utterance["tokens"], [frame[0] for frame in utterance["codes"]]
        stop = [STOP] if utterance["finish_reason"] == "stop" and codes else []
        assert [token["code"] for token in tokens] == codes + stop
        assert [token["frame"] for token in tokens] == list(range(len(tokens)))
        assert utterance["scores"] == [token["score"] for token in tokens]
        assert utterance["logprobs"] == [token["logprob"] for token in tokens]
        assert all(math.isfinite(score) for score in utterance["scores"])
        guided = [token["guided_logprob"] for token in tokens]
        assert (guided == utterance["logprobs"]) == (knobs is not CFG or not codes)
    no_number = report["utterances"][0]["tokens"][0]["mirostat_mu"] is None
    assert no_number == ("mirostat_mode" not in knobs)


def test_what_was_taken_back_is_counted_and_told_and_has_no_score(toy_server) -> None:
    stuck = {"ban_tokens": [STOP], "temperature": 0, "preset": "stable"}
    eager = {"backtrack_min_repeats": 2, "backtrack_min_frames": 2}
    headers, report = ask(toy_server, **stuck, **eager, trace=True, max_duration_s=2)
    assert int(headers["x-backtracks"]) > 0
    assert int(headers["x-backtracks"]) == sum(len(u["backtracks"]) for u in report["utterances"])
    for utterance in report["utterances"]:
        codes, tokens = utterance["codes"], utterance["tokens"]
        assert len(codes) == len(utterance["scores"]) == len(utterance["logprobs"])
        dropped = len(tokens) - len(codes)
        known = sum(one["frames"] - one["kept"] for one in utterance["backtracks"])
        assert dropped >= known
        assert (dropped == known) == (utterance["finish_reason"] != "stuck")
        for one in utterance["backtracks"]:
            assert one["cause"] == "loop"


def test_its_sound_can_be_heard_again_to_the_bit(toy_server) -> None:
    wanted = {"input": TEXT, "max_duration_s": 0.6, "pause_s": 0.5}
    first = toy_server.post("/tts", json=wanted)
    again = toy_server.get(path_of(first, "/audio"))
    assert again.status_code == 200, again.text
    assert again.content == first.content
    assert again.headers["content-type"] == "audio/wav"
    for name in ("x-seed", "x-codes-sha256", "x-finish-reason", "x-audio-ms", "x-preset"):
        assert again.headers[name] == first.headers[name]
    assert again.headers["x-request-id"] != first.headers["x-request-id"]
    heard = toy_server.get(path_of(again))
    assert heard.status_code == 404  # a replay is no speech of its own


@pytest.mark.parametrize(
    ("method", "rest"), [("GET", ""), ("GET", "/audio"), ("GET", "/codes"), ("POST", "/audio")]
)
def test_an_unknown_id_is_a_404_in_the_one_body(toy_server, method, rest) -> None:
    answer = toy_server.request(method, f"/v1/audio/speech/nothing{rest}")
    assert answer.status_code == 404
    error = shape(answer)
    assert (error["code"], error["param"]) == ("speech_not_found", "id")


@pytest.mark.parametrize("keep", [0, 1, 2])
def test_only_the_latest_are_kept(keep) -> None:
    with served(create_app(Settings(keep=keep), fake_engine())) as client:
        ids = [client.post("/tts", json={"input": "Hi."}).headers["x-request-id"] for _ in range(3)]
        found = [client.get(f"/v1/audio/speech/{id}").status_code == 200 for id in ids]
    assert found == [place >= 3 - keep for place in range(3)]


def outcome(name: str, client: str, recent: RecentSpeeches) -> None:
    job = SpeechJob(id=name, text="Hi.", params=SamplingParams(), owner=client, client=client)
    recent.keep(AskedSpeech(job, SpeechOptions()), Failure.of(job, None, None, 0, 0.0))


def kept(name: str, owner: str, recent: RecentSpeeches) -> bool:
    try:
        asyncio.run(recent.find(name, owner))
    except UnknownSpeech:
        return False
    return True


def test_nobody_evicts_the_responses_of_another() -> None:
    recent = RecentSpeeches(8)
    for number in range(3):
        outcome(f"alice-{number}", "alice", recent)
    for number in range(100):
        outcome(f"bob-{number}", "bob", recent)
    assert all(kept(f"alice-{number}", "alice", recent) for number in range(3))
    assert [kept(f"bob-{number}", "bob", recent) for number in (94, 95, 99)] == [False, True, True]


def test_of_many_askers_the_oldest_response_goes() -> None:
    recent = RecentSpeeches(4)
    for number in range(6):
        outcome(str(number), f"owner-{number}", recent)
    assert [kept(str(n), f"owner-{n}", recent) for n in range(6)] == [False] * 2 + [True] * 4


def test_a_storm_of_one_key_leaves_the_responses_of_another() -> None:
    keys = {"alice": "alice-0123456789", "bob": "bob-0123456789abc"}
    settings = Settings(api_keys=",".join(f"{n}:{k}" for n, k in keys.items()), keep=8)
    with served(create_app(settings, fake_engine())) as client:
        headers = {name: {"authorization": f"Bearer {key}"} for name, key in keys.items()}
        made = client.post("/tts", json={"input": "Hi."}, headers=headers["alice"])
        path = path_of(made)
        with live(client, additional_headers=headers["bob"]) as session:
            for _ in range(30):
                session.create()
                session.send("response.cancel")
                session.until("response.done")
        assert client.get(path, headers=headers["alice"]).status_code == 200
