"""vLLM-Omni's protocol on the path of ours."""

import json
from base64 import b64decode
from collections.abc import Iterator
from io import BytesIO
from typing import Any

import httpx
import pytest
import soundfile
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

from tests.app.tools.live_client import live, url_of


@pytest.fixture
def socket(streaming: httpx.Client) -> Iterator[ClientConnection]:
    with connect(url_of(streaming)) as connection:
        assert json.loads(connection.recv(timeout=60))["type"] == "session.created"
        yield connection


def send(socket: ClientConnection, kind: str, **fields: Any) -> None:
    socket.send(json.dumps({"type": kind, **fields}))


def until(socket: ClientConnection, kind: str) -> tuple[list[dict[str, Any]], bytes]:
    """Return the messages up to one of a kind, and the sound between them."""
    messages, sound = list[dict[str, Any]](), b""
    while not messages or messages[-1]["type"] != kind:
        came = socket.recv(timeout=60)
        if isinstance(came, bytes):
            sound += came
        else:
            messages.append(json.loads(came))
    return messages, sound


def say(
    socket: ClientConnection, *pieces: str, **config: Any
) -> tuple[list[dict[str, Any]], bytes]:
    if config:
        send(socket, "session.config", **config)
    for piece in pieces:
        send(socket, "input.text", text=piece)
    send(socket, "input.done")
    return until(socket, "session.done")


def test_a_text_is_a_whole_wav_unless_another_format_is_asked_for(socket) -> None:
    messages, sound = say(socket, "Hello ", "there.", voice="default", language="en")
    place = {"utterance_index": 0, "sentence_index": 0}
    assert messages == [
        {"type": "audio.start", **place, "sentence_text": "Hello there.", "format": "wav"},
        {"type": "audio.done", **place, "total_bytes": len(sound), "error": False},
        {"type": "session.done", "utterance_index": 0, "total_sentences": 1},
    ]
    samples, rate_hz = soundfile.read(BytesIO(sound))
    assert (len(samples), rate_hz) == ((len(sound) - 44) // 2, 24_000)


def test_sound_that_is_streamed_comes_in_frames_after_its_format(socket) -> None:
    config = {"response_format": "pcm", "stream_audio": True, "task_type": "CustomVoice"}
    messages, sound = say(socket, "Hello there. ", "We won.", **config, max_new_tokens=2048)
    assert (messages[0]["sample_rate"], messages[0]["channels"]) == (24_000, 1)
    assert messages[1]["total_bytes"] == len(sound) > 1000


def test_words_have_their_times_in_the_last_chunk(socket) -> None:
    config = {"response_format": "pcm", "stream_audio": True, "word_timestamps": True}
    messages, sound = say(socket, "Hello there.", **config)
    chunks = [one for one in messages if one["type"] == "audio.chunk"]
    assert not sound
    assert [one["chunk_id"] for one in chunks] == list(range(len(chunks)))
    assert all(one["timestamps"] is None for one in chunks[:-1])
    assert isinstance(chunks[-1]["timestamps"], list)
    spoken = b"".join(b64decode(one["audio_b64"]) for one in chunks)
    assert messages[-2]["total_bytes"] == len(spoken)
    assert chunks[-1]["chunk_end_ms"] == round(len(spoken) / 48)


def test_a_configuration_holds_for_further_texts_until_another_comes(socket) -> None:
    say(socket, "One.", response_format="pcm")
    assert say(socket, "Two.")[0][0]["format"] == "pcm"
    messages, _ = say(socket, "Three.", response_format="mp3", speaker="default")
    assert [messages[0][name] for name in ("utterance_index", "format")] == [2, "mp3"]
    assert say(socket)[0] == [{"type": "session.done", "utterance_index": 3, "total_sentences": 0}]
    send(socket, "session.close")
    with pytest.raises(ConnectionClosed):
        socket.recv(timeout=60)
    assert socket.close_code == 1000


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"voice": "nobody"}, "nobody"),
        ({"model": "bark"}, "bark"),
        ({"stream_audio": True}, "response_format"),
        ({"word_timestamps": True}, "stream_audio"),
        ({"task_type": "Base"}, "task_type"),
        ({"ref_audio": "data:audio/wav;base64,"}, "docs/voices.md"),
        ({"speed": 9}, "speed"),
    ],
)
def test_a_first_configuration_that_cannot_be_is_told_and_ends_the_session(
    socket, config: dict[str, Any], said: str
) -> None:
    send(socket, "session.config", **config)
    error = json.loads(socket.recv(timeout=60))
    assert error["type"] == "error"
    assert said in error["message"]
    with pytest.raises(ConnectionClosed):
        socket.recv(timeout=60)


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        ("session.config", {"voice": "nobody"}),
        ("input.text", {"text": 5}),
        ("input.audio", {}),
        ("response.create", {}),
    ],
)
def test_what_is_refused_later_leaves_the_session_as_it_was(
    socket, kind: str, fields: dict[str, Any]
) -> None:
    send(socket, "session.config", response_format="pcm")
    send(socket, kind, **fields)
    assert json.loads(socket.recv(timeout=60))["type"] == "error"
    assert say(socket, "Hi.")[0][0]["format"] == "pcm"


def test_our_own_protocol_is_spoken_where_their_word_is_in_a_text(streaming) -> None:
    with live(streaming) as session:
        assert session.say("A session.config is JSON.")["finish_reason"] == "stop"
