"""Listeners that request speech and record when each byte of it arrives.

One reads as fast as audio arrives and plays from the first byte on, without a buffer; a client with
a buffer would hear fewer gaps, later.
"""

import asyncio
import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

import httpx2
import numpy as np

AUDIBLE = 10 ** (-50 / 20)
"""Relative to full scale: the first sample above it is the first audible one."""
BYTES_A_SAMPLE = 2
GAP_S = 0.001
"""Shorter gaps are jitter of timers."""
FIRST_AUDIO_MS = 600
"""Target of the 95th percentile of the time to the first sound."""

Arrivals = Sequence[tuple[float, int]]
"""Time in seconds and number of bytes of each received chunk."""


@dataclass(frozen=True)
class ReceivedSpeech:
    """A response."""

    status: int  # HTTP status; 0 without a response
    id: str = ""  # its ``x-request-id``
    headers: Mapping[str, str] = field(default_factory=dict)  # with names in lower case
    rate_hz: int = 24_000  # sample rate of the audio
    sent_s: float = 0.0  # when the request was sent, by `perf_counter`
    arrivals: Arrivals = ()  # of the audio, in seconds since ``sent_s``
    sound: bytes = b""  # the audio, 16 bits a sample; or the body of an error
    broke: str | None = None  # what interrupted it; None if it is complete

    @property
    def error(self) -> str | None:
        """What went wrong; None if it is complete."""
        if self.ok:
            return None
        return self.broke or f"{self.status}: {self.sound[:200].decode(errors='replace')}"

    @property
    def ok(self) -> bool:
        """Whether it is complete and no error."""
        return self.status == 200 and self.broke is None

    @property
    def audio_s(self) -> float:
        """Length of the audio in seconds."""
        return len(self.sound) / BYTES_A_SAMPLE / self.rate_hz

    @property
    def wall_s(self) -> float:
        """Seconds to the last byte."""
        return self.arrivals[-1][0] if self.arrivals else 0.0

    @property
    def first_audio_s(self) -> float | None:
        """Seconds to the arrival of the first sample over -50 dBFS; None if there is none."""
        samples = np.frombuffer(self.sound, "<i2")
        (loud,) = np.nonzero(np.abs(samples.astype(np.int32)) > AUDIBLE * 2**15)
        if not len(loud):
            return None
        came = np.cumsum([count for _, count in self.arrivals])
        holder = np.searchsorted(came, (int(loud[0]) + 1) * BYTES_A_SAMPLE)
        return self.arrivals[int(holder)][0]

    @property
    def underrun_s(self) -> float:
        """Total length of the gaps in playback, in seconds."""
        return underrun_s(self.arrivals, BYTES_A_SAMPLE * self.rate_hz)

    @property
    def sound_sha256(self) -> str:
        """Hexadecimal SHA-256 of the audio."""
        return hashlib.sha256(self.sound).hexdigest()


def underrun_s(arrivals: Arrivals, bytes_a_second: float) -> float:
    """Return the total time that playback from the first byte on has no data, in seconds."""
    return sum(length_s for _, length_s in gaps(arrivals, bytes_a_second))


def gaps(arrivals: Arrivals, bytes_a_second: float) -> list[tuple[float, float]]:
    """Return the gaps in playback from the first byte on.

    Of each how much was played before it, and how long it is; in seconds.
    """
    found: list[tuple[float, float]] = []
    lasts_until_s = arrivals[0][0] if arrivals else 0.0
    played_s = 0.0
    for at_s, count in arrivals:
        if at_s > lasts_until_s:
            found.append((played_s, at_s - lasts_until_s))
        played_s += count / bytes_a_second
        lasts_until_s = max(lasts_until_s, at_s) + count / bytes_a_second
    return found


async def receive(
    client: httpx2.AsyncClient, text: str, *, stream: bool = True, **fields: Any
) -> ReceivedSpeech:
    """Request speech as PCM and receive all of it; cancelling the call disconnects."""
    body = {"input": text, "response_format": "pcm", "stream": stream} | fields
    sent_s = perf_counter()
    arrivals: list[tuple[float, int]] = []
    sound = bytearray()
    broke = None
    try:
        async with client.stream("POST", "/v1/audio/speech", json=body) as answer:
            try:
                async for part in answer.aiter_raw():
                    arrivals.append((perf_counter() - sent_s, len(part)))
                    sound += part
            except httpx2.TransportError as error:
                broke = type(error).__name__
    except httpx2.TransportError as error:
        return ReceivedSpeech(0, sent_s=sent_s, broke=type(error).__name__)
    return ReceivedSpeech(
        answer.status_code,
        answer.headers.get("x-request-id", ""),
        {name.lower(): value for name, value in answer.headers.items()},
        int(answer.headers.get("x-sample-rate", "24000")),
        sent_s,
        tuple(arrivals),
        bytes(sound),
        broke,
    )


@dataclass(frozen=True)
class Figures:
    """Figures of one load."""

    load: str
    requests: int
    failed: int  # requests refused or cut off
    audio_a_second: float  # seconds of audio received a second
    first_p50_ms: float  # median time to first sound of requests without a gap
    first_p95_ms: float  # 95th percentile of it
    first_p99_ms: float  # 99th percentile of it
    gaps: int  # requests with a gap in playback
    underrun_s: float  # total length of the gaps
    rtf_p50: float  # median of seconds to the last byte over seconds of audio
    rtf_p95: float  # 95th percentile of it
    late: list[dict[str, Any]]  # the `timeline` of each request with a gap
    errors: tuple[str, ...]  # what went wrong with those that failed

    @property
    def smooth(self) -> bool:
        """Whether no request failed or had a gap, and first sounds met their target."""
        return not (self.failed or self.gaps) and self.first_p95_ms < FIRST_AUDIO_MS


def figures(load: str, received: Sequence[ReceivedSpeech], audio_a_second: float) -> Figures:
    """Summarise the responses of a load."""
    good = [one for one in received if one.ok]
    began_s = min((one.sent_s for one in received), default=0.0)
    underruns_s = [one.underrun_s for one in good]
    firsts = [one.first_audio_s for one in good if one.underrun_s <= GAP_S]
    first_ms = [1000 * first for first in firsts if first is not None]
    p50, p95, p99 = percentiles(first_ms, 50, 95, 99)
    factors = percentiles([one.wall_s / one.audio_s for one in good if one.sound], 50, 95)
    return Figures(
        load=load,
        requests=len(received),
        failed=len(received) - len(good),
        audio_a_second=audio_a_second,
        first_p50_ms=p50,
        first_p95_ms=p95,
        first_p99_ms=p99,
        gaps=sum(gap_s > GAP_S for gap_s in underruns_s),
        underrun_s=sum(underruns_s),
        rtf_p50=factors[0],
        rtf_p95=factors[1],
        late=[timeline(one, began_s) for one in good if one.underrun_s > GAP_S],
        errors=tuple(one.error for one in received if one.error),
    )


def timeline(one: ReceivedSpeech, began_s: float) -> dict[str, Any]:
    """Return when a speech was sent, when its first byte came, and its `gaps`; in seconds.

    ``began_s`` is when the load began, by the clock of ``one.sent_s``.
    """
    return {
        "sent_s": one.sent_s - began_s,
        "first_s": one.arrivals[0][0],
        "gaps": gaps(one.arrivals, BYTES_A_SAMPLE * one.rate_hz),
    }


async def closed_loop(client: httpx2.AsyncClient, clients: int, inputs: Sequence[str]) -> Figures:
    """Run a number of clients, each sending sequential requests, until all texts are spoken."""
    left = iter(enumerate(inputs))
    received = list[ReceivedSpeech]()
    over_s: list[float] = []  # when each client ran out of texts

    async def listen() -> None:
        for seed, text in left:
            received.append(await receive(client, text, seed=seed))
        over_s.append(perf_counter())

    began_s = perf_counter()
    await asyncio.gather(*(listen() for _ in range(clients)))
    ended_s = min(over_s)  # afterwards not all clients were busy
    return figures(
        f"{clients} at once", received, audio_until(received, ended_s) / (ended_s - began_s)
    )


def percentiles(values: Sequence[float], *percents: float) -> list[float]:
    """Return percentiles of values; NaN if there are none."""
    return [float(np.percentile(values, one)) if values else math.nan for one in percents]


def audio_until(received: Sequence[ReceivedSpeech], ends_s: float) -> float:
    """Return the seconds of audio received until a time."""
    return sum(
        count / 2 / one.rate_hz
        for one in received
        for at_s, count in one.arrivals
        if one.ok and one.sent_s + at_s <= ends_s
    )
