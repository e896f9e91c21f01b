"""Wyoming, with its own client: voices, whole texts, streamed texts, refusals."""

import asyncio
import logging
from collections.abc import Iterator

import pytest
from pydantic import ValidationError
from wyoming.audio import AudioChunk, AudioStart, AudioStop
from wyoming.client import AsyncTcpClient
from wyoming.error import Error
from wyoming.event import Event
from wyoming.info import Describe, Info
from wyoming.ping import Ping, Pong
from wyoming.tts import (
    Synthesize,
    SynthesizeChunk,
    SynthesizeStart,
    SynthesizeStop,
    SynthesizeStopped,
    SynthesizeVoice,
)

from app.main import create_app
from app.settings import Settings
from tests.app.tools.serving import free_port, served
from tests.toy.make_toy import make_speaking

VOICE = SynthesizeVoice(name="toy")


@pytest.fixture(scope="module")
def port(tmp_path_factory) -> Iterator[int]:
    """The port of a server that speaks with the toy model, which always says something."""
    number = free_port()
    settings = Settings(
        **make_speaking(tmp_path_factory.mktemp("speaking")),
        device="cpu",
        voices=str(tmp_path_factory.mktemp("voices")),
        wyoming_port=number,
        max_text_chars=40,
        log_text=True,
    )
    with served(create_app(settings)):
        yield number


def talk(port: int, *events: Event, until: str, past: str = "error") -> list[Event]:
    """Send events; return what comes up to an event of a type, or of type ``past``."""

    async def run() -> list[Event]:
        came: list[Event] = []
        async with AsyncTcpClient("127.0.0.1", port) as client:
            for event in events:
                await client.write_event(event)
            while not came or came[-1].type not in {until, past}:
                event_or_none = await asyncio.wait_for(client.read_event(), 60)
                assert event_or_none is not None, "the connection ended"
                came.append(event_or_none)
        return came

    return asyncio.run(run())


def sound(events: list[Event]) -> bytes:
    return b"".join(
        AudioChunk.from_event(one).audio for one in events if AudioChunk.is_type(one.type)
    )


@pytest.mark.slow
def test_the_voices_are_told(port) -> None:
    (event,) = talk(port, Describe().event(), until="info")
    (program,) = Info.from_event(event).tts
    assert program.supports_synthesize_streaming
    assert [voice.name for voice in program.voices] == ["toy"]
    assert program.voices[0].languages == ["en"]


def test_a_whole_text_is_spoken(port) -> None:
    events = talk(port, Synthesize("Hi.", VOICE).event(), until="audio-stop")
    assert AudioStart.is_type(events[0].type)
    assert AudioStart.from_event(events[0]).rate == 24_000
    assert AudioStop.is_type(events[-1].type)
    assert len(sound(events)) > 1000


@pytest.mark.parametrize("language", ["en_US", "en-GB", "English"])
def test_home_assistants_languages_are_taken(port, language) -> None:
    voice = SynthesizeVoice(name="toy", language=language)
    events = talk(port, Synthesize("Hi.", voice).event(), until="audio-stop")
    assert AudioStop.is_type(events[-1].type)


@pytest.mark.parametrize(("text", "heard"), [("Hi. 猫", True), ("猫", False), ("😊", False)])
def test_what_is_not_read_is_told_with_the_end_of_the_sound(port, text, heard) -> None:
    events = talk(port, Synthesize(text, VOICE).event(), until="audio-stop")
    assert AudioStart.is_type(events[0].type)
    assert events[-1].data["warnings"][0].startswith("left out, as ")
    assert bool(sound(events)) == heard


def test_a_text_in_pieces_is_spoken_once_and_its_repetition_is_not(port) -> None:
    streamed = talk(
        port,
        SynthesizeStart(voice=VOICE).event(),
        SynthesizeChunk("Hi").event(),
        SynthesizeChunk(". You.").event(),
        Synthesize("Hi. You.", VOICE).event(),
        SynthesizeStop().event(),
        until="synthesize-stopped",
    )
    assert [one.type for one in streamed].count("audio-start") == 1
    assert SynthesizeStopped.is_type(streamed[-1].type)
    assert len(sound(streamed)) > 1000


@pytest.mark.parametrize(
    "event",
    [
        Synthesize("Hi.", SynthesizeVoice(name="nobody")).event(),
        Synthesize("", VOICE).event(),
        Synthesize("a" * 41, VOICE).event(),
        Event("synthesize", {}),
    ],
)
def test_what_cannot_be_spoken_is_an_error_and_the_connection_goes_on(port, event) -> None:
    events = talk(port, event, until="audio-stop")
    assert Error.is_type(events[-1].type)
    assert Error.from_event(events[-1]).text


NOBODY = SynthesizeVoice(name="nobody")


@pytest.mark.parametrize(
    "begun",
    [
        [SynthesizeStart(voice=NOBODY).event(), SynthesizeChunk("Hi.").event()],
        [SynthesizeStart(voice=VOICE).event(), SynthesizeChunk("a" * 41).event()],
        [SynthesizeStart(voice=VOICE).event(), Event("synthesize-chunk", {"text": 5})],
    ],
)
def test_a_streamed_text_that_fails_ends_its_sound_and_is_not_spoken_again(port, begun) -> None:
    again = Synthesize("Hi.", VOICE).event()
    stop = SynthesizeStop().event()
    came = talk(port, *begun, again, stop, Describe().event(), until="info", past="none")
    assert [one.type for one in came if one.type != "audio-chunk"] == [
        "error",
        "audio-stop",
        "synthesize-stopped",
        "info",
    ]


@pytest.mark.parametrize("text", ["abc", None])
def test_a_ping_has_its_pong(port, text) -> None:
    (pong,) = talk(port, Ping(text).event(), until="pong")
    assert Pong.from_event(pong).text == text


@pytest.mark.parametrize(
    ("pieces", "meant"),
    [
        (("Good morning.", "All done."), "Good morning. All done."),
        (("Is it?", "Yes!", "Well."), "Is it? Yes! Well."),
        (('He said "no."', "Then", " he left."), 'He said "no." Then he left.'),
        (("Good ", "morning. ", "All done."), "Good morning. All done."),
        (("It is 3.", "14 or so."), "It is 3.14 or so."),
        (("See example.", "com for more."), "See example.com for more."),
        (("The U.", "S.", " is."), "The U.S. is."),
    ],
)
def test_sentences_in_pieces_without_a_space_are_apart(port, pieces, meant, caplog) -> None:
    chunks = [SynthesizeChunk(one).event() for one in pieces]
    start, stop = SynthesizeStart(voice=VOICE).event(), SynthesizeStop().event()
    with caplog.at_level(logging.INFO):
        came = talk(port, start, *chunks, stop, until="synthesize-stopped")
    assert len(sound(came)) > 1000
    assert f"said {meant!r}" in caplog.text


def test_keys_and_a_port_without_keys_do_not_go_together() -> None:
    with pytest.raises(ValidationError, match="TTS_WYOMING_PORT"):
        Settings(wyoming_port=10200, api_keys="me:a-key-that-is-long-enough")
