"""ElevenLabs' WebSockets for agents: contexts, their ends, barge-in, and their clock."""

import json
from base64 import b64decode
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import httpx
import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

from tests.app.tools.live_client import keep_on, refused, serving, url_of
from tests.fakes import FakeBackend

MULTI = "multi-stream-input?output_format=pcm_24000&auto_mode=true"
Message = dict[str, Any]


@contextmanager
def opened(client: httpx.Client, path: str = MULTI) -> Iterator[ClientConnection]:
    with connect(url_of(client, f"/v1/text-to-speech/default/{path}"), proxy=None) as socket:
        yield socket


def send(socket: ClientConnection, **fields: Any) -> None:
    socket.send(json.dumps(fields))


def received(socket: ClientConnection) -> Message:
    message: Message = json.loads(socket.recv(timeout=60))
    return message


def spoken(socket: ClientConnection, finals: int = 1) -> dict[str, bytes]:
    """Return the sound of each context, once so many of them have ended."""
    sound: dict[str, bytes] = {}
    while finals:
        message = received(socket)
        if message.get("isFinal"):
            sound.setdefault(message["contextId"], b"")
            finals -= 1
        else:
            name = message["contextId"]
            sound[name] = sound.get(name, b"") + b64decode(message["audio"])
    return sound


def test_what_pipecat_sends_for_two_turns(streaming) -> None:
    """Recorded from pipecat-ai 1.14, whose keep alive may come before a context is opened."""
    with opened(streaming) as socket:
        for turn in ("one", "two"):
            send(socket, text="")
            send(socket, text=" ", context_id=turn, voice_settings={"speed": 1.0})
            send(socket, text="Hello there. ", context_id=turn)
            send(socket, text="", context_id=turn)
            send(socket, text="You. ", context_id=turn)
            send(socket, context_id=turn, flush=True)
            send(socket, context_id=turn, close_context=True)
            sound = spoken(socket)
            assert [*sound] == [turn]
            assert len(sound[turn]) == 2 * 2400 * len("Hello there.You.")


def test_what_livekit_sends_for_two_texts_at_once(streaming) -> None:
    """Recorded from livekit-plugins-elevenlabs 1.8.9: it flushes each sentence, then nothing."""
    query = "&inactivity_timeout=180&apply_text_normalization=auto&sync_alignment=true"
    with opened(streaming, MULTI + query) as socket:
        for name in ("a", "b"):
            send(socket, text=" ", voice_settings={}, context_id=name)
            send(socket, text="Hello there. ", context_id=name, flush=True)
            send(socket, text="", context_id=name, flush=True)
            send(socket, context_id=name, close_context=True)
        sound = spoken(socket, finals=2)
        assert {name: len(one) for name, one in sound.items()} == dict.fromkeys(
            ("a", "b"), 2 * 2400 * len("Hello there.")
        )


def test_a_sentence_is_spoken_at_once_in_auto_mode_and_after_the_next_letter_otherwise(
    streaming,
) -> None:
    with opened(streaming) as socket:
        send(socket, text="Hello. ", context_id="a")
        assert received(socket)["audio"]
    with opened(streaming, MULTI.replace("true", "false")) as socket:
        send(socket, text="Hello. ", context_id="a")
        with pytest.raises(TimeoutError):
            socket.recv(timeout=0.5)
        send(socket, text="You", context_id="a")
        assert received(socket)["audio"]


def test_a_flushed_context_is_spoken_to_its_end_and_closed_again_it_is_not() -> None:
    speaking = FakeBackend(0.1, block={"wait": "ar"})
    with serving(speaking) as (client, _), opened(client) as socket:
        send(socket, text="wait", context_id="a", flush=True)
        send(socket, context_id="a", close_context=True)
        speaking.let(1)
        assert received(socket)["audio"]
        send(socket, context_id="a", close_context=True)
        assert received(socket)["isFinal"]
        speaking.let(100)


@pytest.mark.parametrize("flush", [True, False])
def test_closing_the_socket_ends_every_context_first(streaming, flush) -> None:
    with opened(streaming) as socket:
        for name in ("a", "b"):
            send(socket, text="Hello", context_id=name, flush=flush)
        send(socket, close_socket=True)
        sound = spoken(socket, finals=2)
        assert {len(one) for one in sound.values()} == {2 * 2400 * 5 * flush}
        with pytest.raises(ConnectionClosed):
            socket.recv(timeout=60)
    assert socket.close_code == 1000


REFUSED: list[tuple[Message | str | bytes, str | None]] = [
    ("no json", None),
    (b"bytes", None),
    ({"text": 3, "context_id": "a"}, None),
    ({"text": "[" * 200_000, "context_id": "a"}, None),
    ({"text": "Hi. ", "context_id": "a", "voice_settings": {"speed": 9}}, None),
    ({"text": "x" * 5000, "context_id": "a"}, "a"),
    ({"text": "break. ", "context_id": "a", "flush": True}, "a"),
]


@pytest.mark.parametrize(("message", "context"), REFUSED)
def test_what_is_refused_or_fails_ends_no_other_context(streaming, message, context) -> None:
    with opened(streaming) as socket:
        send(socket, text="wait", context_id="other")
        socket.send(json.dumps(message) if isinstance(message, dict) else message)
        while not (error := received(socket)).get("error"):
            assert error["contextId"] == "a"
        assert error.get("contextId") == context
        assert error["message"]
        if context is not None:
            assert received(socket) == {"audio": None, "isFinal": True, "contextId": "a"}
        send(socket, text="Hi. ", context_id="next")
        send(socket, context_id="next", flush=True)
        send(socket, context_id="next", close_context=True)
        assert len(spoken(socket)["next"]) == 2 * 2400 * len("Hi.")


def test_there_are_only_five_contexts_at_once(streaming) -> None:
    with opened(streaming) as socket:
        for number in range(6):
            send(socket, text=" ", context_id=f"{number}")
        assert received(socket)["contextId"] == "5"
        assert received(socket)["isFinal"]
        send(socket, context_id="0", close_context=True)
        assert received(socket) == {"audio": None, "isFinal": True, "contextId": "0"}
        send(socket, text="Hi. ", context_id="5", flush=True)
        assert received(socket)["audio"]


SINGLE = "stream-input?output_format=pcm_24000"


@pytest.mark.parametrize(
    ("path", "message"),
    [
        (SINGLE, {"text": " "}),
        (SINGLE, {"text": " ", "voice_settings": {"speed": 1.0}}),
        (SINGLE, {"text": " ... "}),
        (MULTI, {"text": " ", "context_id": "a"}),
        (MULTI, {"text": "", "context_id": "a"}),
        (MULTI, {"text": ""}),
        (MULTI, {"context_id": "a", "flush": True}),
        (MULTI, {"context_id": "a", "close_context": True}),
    ],
)
def test_text_that_says_nothing_keeps_no_socket_open_and_is_no_work(
    impatient, path, message
) -> None:
    with opened(impatient, path) as socket:
        with pytest.raises(ConnectionClosed):
            keep_on(lambda: send(socket, **message))
        assert socket.close_code == 1008


def test_a_context_to_which_nothing_is_added_ends_and_the_others_go_on() -> None:
    with serving(FakeBackend(0.1), idle_timeout_s=0.5) as (client, _), opened(client) as socket:
        send(socket, text="Hello. ", context_id="left")
        ended = False
        while not ended:  # for less than the time limit of a test
            send(socket, text="a", context_id="kept")
            with suppress(TimeoutError):
                message = json.loads(socket.recv(timeout=0.05))
                ended = message["contextId"] == "left" and bool(message.get("isFinal"))
        send(socket, context_id="kept", flush=True)
        assert received(socket)["contextId"] == "kept"


def test_a_socket_is_a_session_and_has_no_place_beyond_the_limit() -> None:
    with serving(FakeBackend(0.1), max_sessions=1) as (client, _), opened(client):
        for path in (SINGLE, MULTI):
            assert (
                refused(client, f"/v1/text-to-speech/default/{path}", subprotocols=None)[0] == 503
            )
