"""A speech whose model draws its stop at once: every shape says so, and no container breaks."""

from io import BytesIO
from typing import Any, get_args

import av
import httpx
import pytest

from app.audio.formats import AudioFormat
from tests.app.tools.answers import events_of, path_of, report_of
from tests.app.tools.live_client import live

AT_ONCE: dict[str, Any] = {"logit_bias": {"512": 100}}  # the toy model's stop
EMPTY = AT_ONCE | {"input": "Hello there."}
FORMATS = get_args(AudioFormat)
NO_MORE_S = 0.2  # what an encoder adds to nothing: three frames of AAC


def seconds(audio: bytes, form: str) -> float:
    """How long a file sounds, as libav reads it."""
    with av.open(
        BytesIO(audio), "r", format={"pcm": "s16le", "opus": "ogg"}.get(form, form)
    ) as file:
        samples = sum(frame.samples for frame in file.decode(audio=0))
        return float(samples / file.streams.audio[0].rate)


@pytest.mark.parametrize("more", [{}, {"speed": 1.5, "loudness_lufs": -20}], ids=["", "rendered"])
@pytest.mark.parametrize("form", FORMATS)
def test_a_whole_answer_says_it_and_is_a_file_without_sound(
    toy_server: httpx.Client, form: str, more: dict[str, Any]
) -> None:
    for path in ("/tts", "/v1/audio/speech"):
        wanted = EMPTY | more | {"response_format": form, "stream": False}
        answer = toy_server.post(path, json=wanted)
        assert answer.status_code == 200, answer.text
        assert answer.headers["x-finish-reason"] == "empty"
        assert (answer.headers["x-frames"], answer.headers["x-audio-ms"]) == ("0", "0")
        if answer.content:
            assert seconds(answer.content, form) <= NO_MORE_S


@pytest.mark.parametrize("form", FORMATS)
def test_a_stream_ends_in_order_and_its_report_says_it(toy_server: httpx.Client, form: str) -> None:
    answer = toy_server.post("/tts", json=EMPTY | {"response_format": form, "stream": True})
    assert answer.status_code == 200
    if answer.content and form != "wav":  # whose length a stream does not know
        assert seconds(answer.content, form) <= NO_MORE_S
    report = report_of(toy_server, answer)
    assert (report["finish_reason"], report["frames"], report["audio_s"]) == ("empty", 0, 0.0)
    assert [one["finish_reason"] for one in report["utterances"]] == ["empty"]
    again = toy_server.get(path_of(answer, "/audio"))
    assert (again.status_code, again.headers["x-finish-reason"]) == (200, "empty")


def test_events_of_an_empty_speech_end_with_that_reason(toy_server: httpx.Client) -> None:
    answer = toy_server.post("/v1/audio/speech", json=EMPTY | {"stream_format": "sse"})
    last = events_of(answer)[-1]
    assert (last["type"], last["finish_reason"]) == ("speech.audio.done", "empty")


def test_a_response_over_a_websocket_that_is_empty_ends_with_that_reason(
    toy_server: httpx.Client,
) -> None:
    with live(toy_server) as session:
        done = session.say("Hello there. You too.", **AT_ONCE)
    assert (done["finish_reason"], done["audio_bytes"], session.sound) == ("empty", 0, b"")


def test_of_several_sentences_the_report_says_which(toy_server: httpx.Client) -> None:
    """With a trace, whose rows are those of the tokens that were kept: the stop, too."""
    wanted = {"input": "Hello there. [pause:0.2s] You.", "stream": False, "trace": True} | AT_ONCE
    answer = toy_server.post("/tts", json=wanted)
    report = report_of(toy_server, answer)
    spoken = [one for one in report["utterances"] if one["phonemes"]]
    assert [one["finish_reason"] for one in spoken] == ["empty", "empty"]
    assert [len(one["tokens"]) for one in spoken] == [1, 1]
    assert [len(one["scores"]) for one in spoken] == [1, 1]
    assert answer.headers["x-finish-reason"] == "empty"
