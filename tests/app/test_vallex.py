"""The service on a model in the layout of VALL-E X: every way to ask that the built-in one has."""

# ruff: noqa: RUF001 - marks of Chinese look like Latin ones

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.main import create_app
from app.settings import Settings
from tests.app.tools.answers import asked, path_of, refusal, report_of
from tests.app.tools.live_client import live
from tests.app.tools.serving import served
from tests.speech_like import packed, speech_like
from tests.toy.make_vallex import make_vallex

pytestmark = pytest.mark.slow

BASE: dict[str, Any] = {"input": "Hello there.", "seed": 1, "max_duration_s": 0.4}
LOOP: dict[str, Any] = {"logit_bias": {"5": 99.0, "6": 90.0}, "min_frames": 20}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_vallex(tmp_path_factory.mktemp("vallex"))


@pytest.fixture(scope="module", params=["int8", "float32"])
def server(
    request: pytest.FixtureRequest, folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[httpx.Client]:
    """A client of a real server that speaks with the model."""
    voices = str(tmp_path_factory.mktemp("voices"))
    settings = Settings(model=str(folder), device="cpu", voices=voices, weights=request.param)
    with served(create_app(settings)) as client:
        yield client


def codes_of(client: httpx.Client, **fields: Any) -> str:
    answer = client.post("/tts", json=BASE | fields)
    assert answer.status_code == 200, answer.text
    return answer.headers["x-codes-sha256"]


def test_a_speech_has_all_levels_and_its_report_says_how_it_was_made(
    server: httpx.Client, request: pytest.FixtureRequest
) -> None:
    report, answer = asked(server, BASE | {"trace": True, "top_logprobs": 3})
    assert answer.headers["x-preset"] == "stable"
    made_by = report["made_by"]
    weights = request.node.callspec.params["server"]
    assert (made_by["model"], made_by["weights"]) == ("vall-e-x", weights)
    (utterance,) = report["utterances"]
    assert {len(frame) for frame in utterance["codes"]} == {8}
    assert len(utterance["codes"]) == report["frames"] > 0
    kept = [one for one in utterance["tokens"] if one["code"] != 1024]
    assert [one["code"] for one in kept] == [frame[0] for frame in utterance["codes"]]
    assert all(len(one["top_logprobs"]) == 3 for one in utterance["tokens"])


@pytest.mark.parametrize(
    ("knob", "value", "given"),
    [
        ("seed", 2, {}),
        ("preset", "vall_e_x", {}),
        ("temperature", 0.0, {}),
        ("top_k", 2, {}),
        ("top_p", 0.1, {}),
        ("min_p", 0.9, {}),
        ("typical_p", 0.1, {}),
        ("top_n_sigma", 0.5, {}),
        ("xtc_probability", 1.0, LOOP | {"xtc_threshold": 0.01, "temperature": 9.0}),
        ("repetition_penalty", 3.0, LOOP),
        ("frequency_penalty", 5.0, LOOP),
        ("dry_multiplier", 3.0, LOOP),
        ("no_repeat_ngram_size", 2, LOOP),
        ("ban_tokens", [5], LOOP),
        ("mirostat_mode", 2, {}),
        ("ras", True, {"logit_bias": {"5": 9.0}}),
        ("entropix", True, {"temperature": 1.0}),
        ("best_of", 4, {}),
        ("beam_width", 2, {}),
        ("nar_levels", 1, {}),
        ("nar_temperature", 1.0, {}),
        ("nar_window_frames", 4, {"nar_left_context_frames": 1, "nar_lookahead_frames": 0}),
    ],
)
def test_a_knob_of_a_request_changes_its_codes(
    server: httpx.Client, knob: str, value: Any, given: dict[str, Any]
) -> None:
    assert codes_of(server, **given | {knob: value}) != codes_of(server, **given)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"cfg_strength": 2.0}, "cfg_strength"),
        ({"nar_cfg_strength": 2.0}, "nar_cfg_strength"),
        ({"level_0": "masked"}, "level_0"),
        ({"prompt_as_prefix": True}, "prompt_as_prefix"),
        ({"timestamps": "word"}, "timestamps"),
        ({"text_lookahead_words": 1}, "text_lookahead_words"),
        ({"language": "de"}, "language"),
    ],
)
def test_what_it_was_not_trained_for_is_refused_by_name(
    server: httpx.Client, fields: dict[str, Any], param: str
) -> None:
    assert refusal(server.post("/tts", json=BASE | fields)) == (422, param)


def test_a_loop_is_rewound_and_the_report_tells_it(server: httpx.Client) -> None:
    given = {**LOOP, "backtrack": True, "backtrack_min_repeats": 2, "backtrack_min_frames": 4}
    report, _ = asked(server, BASE | given | {"trace": True})
    (utterance,) = report["utterances"]
    assert utterance["backtracks"]
    assert max(one["attempt"] for one in utterance["tokens"]) > 0


def test_requests_at_once_have_the_codes_that_each_has_alone(server: httpx.Client) -> None:
    wanted: list[dict[str, Any]] = [
        {"input": text, "seed": seed, "temperature": 0.3 + 0.2 * seed, "best_of": 1 + seed % 2}
        for seed in range(4)
        for text in ("Hello there.", "One, two, three, four.")
    ]
    alone = [codes_of(server, **one) for one in wanted]
    with ThreadPoolExecutor(len(wanted)) as pool:
        together = pool.map(lambda one: codes_of(server, **one), wanted)
        assert list(together) == alone


@pytest.mark.parametrize("window", [{}, {"nar_window_frames": 8, "nar_lookahead_frames": 4}])
def test_a_stream_and_a_growing_text_have_the_samples_of_the_whole(
    server: httpx.Client, window: dict[str, Any]
) -> None:
    asked_for = BASE | window | {"input": "Hello there. It is late.", "response_format": "pcm"}
    whole = server.post("/tts", json=asked_for | {"stream": False})
    assert whole.status_code == 200, whole.text
    streamed = server.post("/tts", json=asked_for | {"stream": True})
    assert streamed.content == whole.content
    fields = {name: asked_for[name] for name in asked_for.keys() - {"input", "response_format"}}
    with live(server) as session:
        session.say("Hello the", "re. It", " is late.", **fields)
        assert session.sound == whole.content


def test_a_take_goes_on_and_is_spoken_again(server: httpx.Client) -> None:
    first = server.post("/tts", json=BASE)
    body = server.get(path_of(first), params={"as": "request"}).json()
    assert server.post("/tts", json=body).content == first.content
    going_on = {"id": first.headers["x-request-id"], "utterance": 0, "frame": 7}
    changed = server.post("/tts", json=BASE | {"seed": 2, "continue_from": going_on})
    assert changed.status_code == 200, changed.text
    before, after = (report_of(server, one)["utterances"][0]["codes"] for one in (first, changed))
    assert after[:7] == before[:7]
    assert [one[0] for one in after[7:]] != [one[0] for one in before[7:]]


def test_a_voice_is_used_with_its_transcript_and_refused_without(server: httpx.Client) -> None:
    files = {"file": packed(speech_like(2.0))}
    plain = {"name": "silent", "consent": "true"}
    told = {"name": "told", "consent": "true", "transcript": "One, two, three."}
    for form in (plain, told):
        server.delete(f"/v1/audio/voices/{form['name']}")
        assert server.post("/v1/audio/voices", data=form, files=files).status_code == 200
    answer = server.post("/tts", json=BASE | {"voice": "silent"})
    assert refusal(answer) == (422, "voice")
    assert "transcript" in answer.json()["error"]["message"]
    assert codes_of(server, voice="told") != codes_of(server, voice="toy")


@pytest.mark.parametrize(
    ("language", "text", "packages"),
    [("zh", "你好，世界！", ("cn2an", "jieba", "pypinyin")), ("ja", "今日は。", ("pyopenjtalk",))],
)
def test_chinese_and_japanese_are_spoken_with_the_extra(
    server: httpx.Client, language: str, text: str, packages: tuple[str, ...]
) -> None:
    for name in packages:
        pytest.importorskip(name, reason=f"the extra `vallex` is not installed: {name}")
    answer = server.post("/tts", json=BASE | {"input": text, "language": language})
    if "OPEN_JTALK_DICT_DIR" in answer.text:
        pytest.skip(json.loads(answer.text)["error"]["message"])
    assert answer.status_code == 200, answer.text
    assert int(answer.headers["x-frames"]) > 0


@pytest.mark.parametrize("voice", ["toy", "yuki"])
def test_what_is_not_installed_is_told_with_its_cure(
    server: httpx.Client, voice: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The text's language is refused, or that of the voice's transcript."""
    fields = {"voice": voice} | ({"language": "ja"} if voice == "toy" else {"language": "en"})
    answer = server.post("/tts", json=BASE | fields | {"input": "Hai."})
    if answer.status_code == 200:
        pytest.skip("the extra `vallex` is installed")
    assert answer.status_code == 422
    assert "Japanese cannot be read here: " in answer.json()["error"]["message"]
