"""What becomes of a speech on each wire, and of the service: others notice nothing of it.

Its client leaves, reads nothing or cancels; it fails, or there is no place for it. On each wire its
slot is free again, its report tells what happened, and another speech of the same time is whole.
"""

import threading
from collections import Counter
from collections.abc import Callable, Container, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import httpx
import psutil
import pytest

from app.engine.results import FinishReason
from app.main import create_app
from app.settings import Settings
from tests.app.tools.listeners import Canceller, Listener, Session, Wire
from tests.app.tools.serving import free_port, served, until
from tests.app.tools.socket_wires import WyomingClient
from tests.app.tools.wires import STREAMED, WHOLE, WIRES, HttpClient
from tests.fakes import FakeBackend, fake_engine

TEXT = "a speech of one sentence"
OTHER = "the other speech of the same time"
SECOND_BYTES = 2 * 24_000
FRAMES_BEFORE = 12  # of both speeches
ALL_FRAMES = 10_000
LONG_FRAMES = 400
# After some sound an answer of HTTP can only be cut off.
FAILED = {"generation_failed", "cut off"}
LOGGED = "the speech could not be made: RuntimeError; the log says more"
_NO_PLACE = "1 requests are waiting, and no more may, or no more of yours"
NO_PLACE = frozenset({"engine_busy", _NO_PLACE, f"speak: {_NO_PLACE}"})
PROCESS = psutil.Process()


class ServiceAmidSpeech:
    """A service in which another client's speech is being made."""

    def __init__(self, chunk_s: float, **settings: Any) -> None:
        self.port = free_port()
        chosen = Settings(**{"wyoming_port": self.port, "slots": 2, "max_queue": 4} | settings)
        self.chunk_s = chunk_s
        self.speaking = FakeBackend(
            chunk_s,
            block={"speech": "ar", "slow to read": "text"},
            fail_at={"fails in text": "text", "fails in ar": "ar", "fails in audio": "audio"},
        )
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
        assert len(answer.content) == round(self.chunk_s * SECOND_BYTES) * len(text)
        return answer.content

    def submit(self, text: str) -> "Future[bytes]":
        """Have another client ask for a speech."""
        return self._asking.submit(self.speak, text)

    @contextmanager
    def serving(self) -> Iterator["ServiceAmidSpeech"]:
        with served(self.app) as self.client, ThreadPoolExecutor() as self._asking:
            yield self

    @contextmanager
    def amid_another(self) -> Iterator[None]:
        """Have another speech begin; it is whole in the end, and a further one can be made."""
        self.speaking.forget()
        self.speaking.read_on.clear()
        self._finished = Counter(self.engine.finished)
        self.other = self.submit(OTHER)
        until(lambda: self.engine.status.running == 1)
        try:
            yield
        finally:
            self.speaking.read_on.set()
            self.speaking.let(ALL_FRAMES)
            self.other.result()
            until(lambda: not self.engine.status.running and not self.engine.status.queued)
        self.speak("next")

    @property
    def finished(self) -> Counter[FinishReason]:
        """How many speeches ended in each way since the other began."""
        return Counter(self.engine.finished) - self._finished

    def begun(self) -> None:
        """Wait until the speech has begun beside the other."""
        until(lambda: len(self.speaking.spoken) == 2)

    def report(self) -> dict[str, Any]:
        """Return the report of the speech that is not the other's."""
        path = f"/v1/audio/speech/{self.speaking.spoken[1].split('.')[0]}"
        until(lambda: self.client.get(path).status_code == 200)
        report: dict[str, Any] = self.client.get(path).json()
        assert self.client.get(f"{path}/audio").status_code == 404
        assert report["codes_sha256"] is None
        return report

    def frames(self) -> int:
        """Return how many frames were made of the speech that is not the other's."""
        return self.speaking.frames_made.get(self.speaking.spoken[1], 0)


def leaves(service: ServiceAmidSpeech, client: Listener) -> None:
    """Wait for some sound, which is no more than a frame behind what is made."""
    service.begun()
    service.speaking.let(FRAMES_BEFORE)
    client.hear()
    until(lambda: sum(service.speaking.frames_made.values()) == FRAMES_BEFORE)


def waits(service: ServiceAmidSpeech, client: Listener) -> None:
    until(lambda: service.engine.status.queued == 1)


def cancels(service: ServiceAmidSpeech, client: Listener) -> None:
    leaves(service, client)
    assert isinstance(client, Canceller)
    client.cancel()
    assert client.ending() in {"cancelled", "whole"}  # ElevenLabs has no word for it


def fails(service: ServiceAmidSpeech, client: Listener) -> None:
    service.begun()
    service.speaking.let(ALL_FRAMES)


def stalls(service: ServiceAmidSpeech, client: Listener) -> None:
    """Read nothing, until the service gives up and closes the connection with what is unread.

    A WebSocket is closed later, when a ping behind all that is unread is not answered.
    """
    until(lambda: service.finished["cancelled"])
    if isinstance(client, HttpClient | WyomingClient):
        until(lambda: not any(one.raddr == client.address for one in PROCESS.net_connections()))


def is_told(service: ServiceAmidSpeech, client: Listener) -> None:
    """Do nothing: what it is told is read."""


@dataclass(frozen=True)
class Fate:
    """What becomes of a speech.

    Args:
        act: What happens while its client is there.
        text: What is to be spoken.
        told: What its client may be told; nothing if it has left.
        reason: Why it ended, in its report.
        code: Of the error there.
        begins: Whether it is ever sampled.
        frames: How many of it are made, if that is known.
        settings: Of the service.
        crowd: What yet another client has wanted before it.
        chunk_s: Of a frame of speech.
    """

    act: Callable[[ServiceAmidSpeech, Listener], None]
    text: str = TEXT
    told: frozenset[str] = frozenset()
    reason: FinishReason | None = "cancelled"
    code: str | None = None
    begins: bool = True
    frames: int | None = None
    settings: tuple[tuple[str, Any], ...] = ()
    crowd: str = ""
    chunk_s: float = 0.1


def failing(part: str, said: str, **more: Any) -> Fate:
    """A speech that fails in a part, for which the command line has words."""
    told = FAILED | {said, f"speak: {said}"}
    return Fate(
        fails, f"{TEXT} fails in {part}", frozenset(told), "error", "generation_failed", **more
    )


FATES = {
    "leaves": Fate(leaves),
    "leaves while it waits": Fate(waits, begins=False, settings=(("slots", 1),)),
    "leaves while its text is read": Fate(waits, "slow to read", begins=False),
    "cancels": Fate(cancels),
    "stalls": Fate(
        stalls, "x" * LONG_FRAMES, settings=(("stall_timeout_s", 0.2),), chunk_s=5.0
    ),
    "fails in text": replace(failing("text", LOGGED), act=is_told, reason=None, begins=False),
    "fails in ar": failing("ar", LOGGED, frames=2),
    "fails in audio": failing("audio", "muted on purpose"),
    "is refused": Fate(
        is_told, told=NO_PLACE, reason=None, begins=False, crowd="a speech that waits",
        settings=(("slots", 1), ("max_queue", 1)),
    ),
}  # fmt: skip
SOME: dict[str, Container[str]] = {
    "cancels": ("socket", "ElevenLabs' context", "nari"),
    "stalls": ("/tts", "ElevenLabs", "socket", "ElevenLabs' socket", "Wyoming"),
    "leaves while it waits": [*WHOLE, *STREAMED],
    "leaves while its text is read": [*WHOLE, *STREAMED],
    "fails in text": [*WHOLE, *STREAMED],
}
"""Wires on which it can be, or, with a program that takes a second to start, needs to be tried."""
CASES = [
    pytest.param(
        wire, FATES[fate], id=f"{fate}, {name}",
        marks=pytest.mark.slow if fate == "stalls" or name == "command line" else (),
    )
    for fate in FATES
    for name, wire in WIRES.items()
    if name in SOME.get(fate, WIRES)
]  # fmt: skip

Services = Callable[[float, tuple[tuple[str, Any], ...]], ServiceAmidSpeech]


@pytest.fixture(scope="module")
def services() -> Iterator[Services]:
    """Give the service of some settings, which serves all cases of them."""
    with ExitStack() as stack:

        @cache
        def service(chunk_s: float, settings: tuple[tuple[str, Any], ...]) -> ServiceAmidSpeech:
            made = ServiceAmidSpeech(chunk_s, **dict(settings))
            return stack.enter_context(made.serving())

        yield service


@pytest.mark.parametrize(("wire", "fate"), CASES)
def test_a_speech_ends_in_its_own_way_and_others_are_whole(
    services: Services, wire: Wire, fate: Fate
) -> None:
    service = services(fate.chunk_s, fate.settings)
    with service.amid_another():
        if fate.crowd:
            crowd = service.submit(fate.crowd)
            until(lambda: service.client.get("/health").json()["queued"] == 1)
        with wire(service.client, service.port, fate.text) as client:
            fate.act(service, client)
            told = client.ending() if fate.told else ""
            assert not fate.told or told in fate.told
            if fate.crowd and isinstance(client, HttpClient):
                assert int(client.header("retry-after")) >= 1
            goes_on = isinstance(client, Session) and (fate.code or fate.act is cancels)
            if isinstance(client, Session) and goes_on:
                assert client.again("next") == "whole"
        if (reason := fate.reason) is not None:
            until(lambda: service.finished[reason] == 1)
        if fate.begins:
            check_what_was_made(service, fate)
            report = check_report(service, fate, client)
            if wire is WIRES["/tts"] and isinstance(client, HttpClient) and told == "cut off":
                assert len(client.sound) == round(report["audio_s"] * SECOND_BYTES)
        else:
            until(lambda: service.engine.status.queued == bool(fate.crowd))
    if fate.crowd:
        crowd.result()
    if not fate.begins:
        others = 2 + bool(fate.crowd) + bool(goes_on)  # at least the other, and that at the end
        assert len(service.speaking.spoken) == others


def check_what_was_made(service: ServiceAmidSpeech, fate: Fate) -> None:
    """See that no frame more is made of it than the one under way."""
    until(lambda: service.engine.status.running <= 1)
    before = service.frames()
    service.speaking.let(ALL_FRAMES)
    service.other.result()
    if fate.reason == "cancelled":
        assert service.frames() <= before + 1 < len(fate.text)
    assert service.finished["stop"] >= 1


def check_report(service: ServiceAmidSpeech, fate: Fate, client: Listener) -> dict[str, Any]:
    report = service.report()
    code = fate.code
    if fate.act is stalls and isinstance(client, HttpClient):
        code = "reader_stalled"  # a session that is dropped is told as one that left
    assert report["finish_reason"] == fate.reason
    assert (report["error"] or {}).get("code") == code
    assert report["request"]["input"].startswith(fate.text)
    if isinstance(client, HttpClient):  # a session counts the sentences that were spoken whole
        assert fate.frames in {None, report["frames"]}
    return report


@pytest.mark.slow
def test_clients_of_all_wires_who_leave_at_random_leave_no_job_and_no_thread() -> None:
    threads = threading.active_count()
    wires = [*WHOLE.values(), *STREAMED.values()]
    with ServiceAmidSpeech(0.05, slots=4, max_queue=64).serving() as service:

        def leave(number: int) -> None:
            wire = wires[number % len(wires)]
            with wire(service.client, service.port, "x" * 30) as client:
                if number % 3:
                    client.hear()

        with ThreadPoolExecutor(2 * len(wires)) as leaving:
            for left in [leaving.submit(leave, number) for number in range(2 * len(wires))]:
                left.result()
        until(lambda: not service.engine.status.running and not service.engine.status.queued)
        service.speak("next")
    until(lambda: threading.active_count() <= threads)  # those of the pool end in their own time
