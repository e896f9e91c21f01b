"""A speech over HTTP while it is made: its container, and what happens on the way.

That its sound is that of the whole is said by `test_ways`.
"""

import json
import struct
from io import BytesIO

import numpy as np
import pytest
import soundfile

from app.api.speech.answer import StreamedSpeech
from app.main import create_app
from app.settings import Settings
from tests.app.tools.answers import report_of
from tests.app.tools.live_client import live, serving
from tests.app.tools.serving import served, until
from tests.fakes import FakeBackend
from tests.toy.make_toy import make

HELLO = {"input": "Hello there. [pause:0.2s] This is it.", "max_duration_s": 1.2, "seed": 3}
WAV_HEAD_BYTES = 44


@pytest.mark.slow
def test_a_streamed_wav_is_one_container_of_unknown_length(toy_server):
    streamed = toy_server.post("/tts", json=HELLO | {"stream": True})
    assert streamed.content.count(b"RIFF") == streamed.content.count(b"WAVE") == 1
    assert struct.unpack("<I", streamed.content[4:8]) == (0xFFFFFFFF,)
    assert streamed.content[36:44] == b"data" + struct.pack("<I", 0xFFFFFFFF)
    samples, rate_hz = soundfile.read(BytesIO(streamed.content), dtype="int16")
    whole, _ = soundfile.read(BytesIO(toy_server.post("/tts", json=HELLO).content), dtype="int16")
    assert (rate_hz, streamed.headers["x-sample-rate"]) == (24_000, "24000")
    np.testing.assert_array_equal(samples, whole)


def test_what_is_known_comes_before_the_sound_and_the_rest_by_the_id(toy_server):
    with toy_server.stream("POST", "/tts", json=HELLO | {"stream": True}) as answer:
        headers = answer.headers
        assert (headers["x-seed"], headers["x-voice"]) == ("3", "toy")
        assert float(headers["x-ttfa-ms"]) > 0
        sent = len(answer.read())
    report = report_of(toy_server, answer)
    assert report["error"] is None
    assert report["finish_reason"] in {"stop", "length"}
    assert round(report["audio_s"] * 24_000) == (sent - WAV_HEAD_BYTES) / 2


def test_the_first_chunk_is_sent_while_the_rest_is_not_made_yet():
    speaking = FakeBackend(chunk_s=0.1, block={"wait": "ar"})
    with serving(speaking) as (client, _):
        speaking.let(1)
        with client.stream("POST", "/tts", json={"input": "wait", "stream": True}) as answer:
            chunks = answer.iter_raw()
            first = next(chunks)
            assert speaking.frames_made[answer.headers["x-request-id"]] == 1
            speaking.let(3)
            rest = b"".join(chunks)
        assert len(first) + len(rest) == WAV_HEAD_BYTES + 2 * 4 * 2400


def test_an_answer_that_fails_before_it_is_sent_leaves_no_job_behind(monkeypatch):
    monkeypatch.setattr(StreamedSpeech, "__call__", None)
    speaking = FakeBackend(chunk_s=0.1, block={"wait": "ar"})
    with serving(speaking) as (client, engine):
        speaking.let(1)
        answer = client.post("/tts", json={"input": "wait for me", "stream": True})
        assert answer.status_code == 500
        until(lambda: engine.finished == {"cancelled": 1})


def test_a_client_that_takes_its_time_gets_everything():
    speaking = FakeBackend(chunk_s=5.0)
    text = "x" * 100
    with serving(speaking) as (client, engine):
        with client.stream("POST", "/tts", json={"input": text, "stream": True}) as answer:
            until(lambda: any(one.reader.paused_s for one in engine._queue.running))
            assert sum(map(len, answer.iter_raw())) == WAV_HEAD_BYTES + 2 * 24_000 * 5 * len(text)
        assert engine.finished == {"stop": 1}


@pytest.mark.slow
def test_a_stream_is_led_by_what_is_on_the_voices_card_on_either_wire(tmp_path):
    folder = make(tmp_path / "toy")
    knobs = {"max_duration_s": 1.2, "seed": 3, "loudness_lufs": -38}
    text = "Hello there. [pause:0.2s] This is it."
    sounds = []
    for likely_lufs in (None, -10.0, -25.0):
        card = {"language": "en", "speech_lufs": likely_lufs}
        (folder / "voices" / "toy.json").write_text(json.dumps(card))
        settings = Settings(model=str(folder), device="cpu", voices=str(tmp_path / "uploads"))
        with served(create_app(settings)) as client, live(client) as session:
            wanted = knobs | {"input": text, "response_format": "pcm", "stream": True}
            streamed = client.post("/tts", json=wanted).content
            session.say(text, **knobs)
            assert session.sound == streamed
            sounds.append(np.abs(np.frombuffer(streamed, "<i2").astype(float)).mean())
    assert sounds[1] != sounds[0]
    assert sounds[2] > 1.5 * sounds[1]  # thought quiet, so made loud
