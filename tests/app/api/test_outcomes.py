"""What becomes of a speech on each wire, and of the service: others notice nothing of it.

Its client leaves, reads nothing or cancels; it fails, or there is no place for it. On each wire its
slot is free again, its report tells what happened, and another speech of the same time is whole.
"""

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any

import httpx
import pytest

from app.main import create_app
from app.settings import Settings
from tests.app.tools.serving import free_port, served, until
from tests.app.tools.wires import STREAMED, WIRES, SocketClient, Wire, own_socket
from tests.fakes import FakeBackend, fake_engine

TEXT = "wait for this speech of one sentence"
OTHER = "wait for the other speech"
SECOND_BYTES = 2 * 24_000
FRAMES_BEFORE = 12  # of both speeches
LONG_FRAMES = 400
FAILED = {"generation_failed", "cut off"}  # after some sound an answer of HTTP can only be cut off
TOLD_OF_A_FAILURE = {
    "break": FAILED | {"speak: the speech could not be made: RuntimeError; the log says more"},
    "mute": {"generation_failed", "speak: muted on purpose"},
}
SLOWLY_READ = ("/tts", "ElevenLabs", "socket", "ElevenLabs' socket", "Wyoming")
TOLD_OF_NO_PLACE = {
    "engine_busy",
    "speak: 1 requests are waiting, and no more may, or no more of yours",
}


class ServiceAmidSpeech:
    """A service in which another client's speech is being made."""

    def __init__(self, chunk_s: float, chosen: Settings) -> None:
        self.speaking = FakeBackend(chunk_s)
        self.frame_bytes = round(chunk_s * SECOND_BYTES)
        self.port = chosen.wyoming_port or 0
        self.engine = fake_engine(
            self.speaking,
            slots=chosen.slots,
            max_queue=chosen.max_queue,
            stall_timeout_s=chosen.stall_timeout_s,
        )
        self.app = create_app(chosen, self.engine)

    def speak(self, text: str) -> bytes:
        """Return a whole speech of another client."""
        wanted = {"input": text, "response_format": "pcm"}
        answer = httpx.post(f"{self.client.base_url}/tts", json=wanted, timeout=60)
        assert answer.status_code == 200, answer.text
        return answer.content

    def submit(self, text: str) -> "Future[bytes]":
        """Have another client ask for a speech."""
        return self._asking.submit(self.speak, text)

    @contextmanager
    def running(self) -> Iterator["ServiceAmidSpeech"]:
        with served(self.app) as self.client, ThreadPoolExecutor() as self._asking:
            self.other = self.submit(OTHER)
            until(lambda: self.engine.status.running == 1)
            yield self
            self.speaking.let(10_000)
            assert len(self.other.result()) == self.frame_bytes * len(OTHER)
            until(lambda: not self.engine.status.running)
            assert self.speak("next")

    def report(self) -> dict[str, Any]:
        """Return the report of the speech that is not the other's."""
        path = f"/v1/audio/speech/{self.speaking.spoken[1].split('.')[0]}"
        until(lambda: self.client.get(path).status_code == 200)
        report: dict[str, Any] = self.client.get(path).json()
        return report

    def frames(self) -> int:
        """Return how many frames were made of the speech that is not the other's."""
        return self.speaking.frames_made.get(self.speaking.spoken[1], 0)


@contextmanager
def service(chunk_s: float = 0.1, **settings: Any) -> Iterator[ServiceAmidSpeech]:
    chosen = Settings(**{"wyoming_port": free_port(), "slots": 2} | settings)
    with ServiceAmidSpeech(chunk_s, chosen).running() as one:
        yield one


def each(names: dict[str, Wire]) -> pytest.MarkDecorator:
    slow = pytest.mark.slow
    cases = [
        pytest.param(wire, id=name, marks=slow if name == "command line" else ())
        for name, wire in names.items()
    ]
    return pytest.mark.parametrize("wire", cases)


@each(WIRES)
def test_of_a_client_who_leaves_no_further_frame_is_made(wire: Wire) -> None:
    with service() as one:
        with wire(one.client, one.port, TEXT) as client:
            until(lambda: len(one.speaking.spoken) == 2)
            one.speaking.let(FRAMES_BEFORE)
            client.hear()
            until(lambda: sum(one.speaking.frames_made.values()) == FRAMES_BEFORE)
        until(lambda: one.engine.status.running == 1)
        before = one.frames()
        one.speaking.let(10_000)
        one.other.result()
        assert one.frames() <= before + 1 < len(TEXT)
        assert one.engine.finished == {"cancelled": 1, "stop": 1}
        report = one.report()
        assert (report["finish_reason"], report["error"]) == ("cancelled", None)


@each(WIRES)
@pytest.mark.parametrize("stage", ["break", "mute"])
def test_a_speech_that_fails_is_told_and_fails_alone(wire: Wire, stage: str) -> None:
    with service() as one, wire(one.client, one.port, f"{TEXT} {stage}") as client:
        until(lambda: len(one.speaking.spoken) == 2)
        one.speaking.let(10_000)
        told = client.ending()
        assert told in TOLD_OF_A_FAILURE[stage]
        report = one.report()
        assert (report["finish_reason"], report["error"]["code"]) == ("error", "generation_failed")
        assert report["codes_sha256"] is None


@each(WIRES)
def test_a_speech_for_which_there_is_no_place_is_refused_in_its_own_way(wire: Wire) -> None:
    with service(slots=1, max_queue=1) as one:
        queued = one.submit("queued")
        until(lambda: one.engine.status.queued == 1)
        with wire(one.client, one.port, TEXT) as client:
            told = client.ending()
        assert told in TOLD_OF_NO_PLACE
        one.speaking.let(10_000)
        assert len(queued.result()) == one.frame_bytes * len("queued")
        assert len(one.speaking.spoken) == 2


@pytest.mark.slow
@each({name: STREAMED[name] for name in SLOWLY_READ})
def test_a_client_who_reads_nothing_is_dropped_after_a_time(wire: Wire) -> None:
    with service(chunk_s=5.0, stall_timeout_s=0.5) as one:
        with wire(one.client, one.port, "x" * LONG_FRAMES):
            until(lambda: one.engine.finished.get("cancelled"))
            assert one.frames() < LONG_FRAMES
        report = one.report()
        assert report["finish_reason"] == "cancelled"
        if isinstance(wire, partial):  # HTTP; a session that is dropped is told as one that left
            assert report["error"]["code"] == "reader_stalled"


def test_a_client_who_cancels_hears_no_more_and_may_go_on() -> None:
    with service() as one, own_socket(one.client, one.port, TEXT) as client:
        assert isinstance(client, SocketClient)
        until(lambda: len(one.speaking.spoken) == 2)
        one.speaking.let(FRAMES_BEFORE)
        client.hear()
        client.cancel()
        assert client.ending() == "cancelled"
        before = one.frames()
        one.speaking.let(10_000)
        one.other.result()
        assert one.frames() <= before + 1
        assert one.report()["finish_reason"] == "cancelled"
        assert client.session.say("Again.")["finish_reason"] == "stop"
