"""Listeners that request speech and record when each byte of it arrives.

One reads as fast as audio arrives and plays from the first byte on, without a buffer; a client with
a buffer would hear fewer gaps, later.
"""

import asyncio
import hashlib
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

Arrivals = Sequence[tuple[float, int]]
"""Time in seconds and number of bytes of each received chunk."""


@dataclass(frozen=True)
class ReceivedSpeech:
    """A response."""

    status: int  # HTTP status; 0 without a response
    id: str = ""  # Its ``x-request-id``
    headers: Mapping[str, str] = field(default_factory=dict)  # With names in lower case
    rate_hz: int = 24_000  # Sample rate of the audio
    sent_s: float = 0.0  # When the request was sent, by `perf_counter`
    arrivals: Arrivals = ()  # Of the audio, in seconds since ``sent_s``
    sound: bytes = b""  # The audio, 16 bits a sample; or the body of an error
    broke: str | None = None  # What interrupted it; None if it is complete

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
    lasts_until_s, played_s = arrivals[0][0] if arrivals else 0.0, 0.0
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
    sound, broke = bytearray(), None
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
class LoadResult:
    """Figures for a number of concurrent listeners."""

    at_once: int
    requests: int
    failed: int = 0
    audio_s_a_second: float = 0.0
    real_time_factor_p50: float | None = None
    real_time_factor_p95: float | None = None
    first_audio_p50_ms: float | None = None
    first_audio_p95_ms: float | None = None
    with_gaps: int = 0
    errors: tuple[str, ...] = field(default=(), repr=False)


async def run_load(
    client: httpx2.AsyncClient, sentences: Sequence[str], at_once: int, requests: int
) -> LoadResult:
    """Run concurrent listeners with a number of requests each, and return the figures."""
    results: list[ReceivedSpeech] = []

    async def listen(number: int) -> None:
        for turn in range(requests):
            seed = number * requests + turn
            results.append(await receive(client, sentences[seed % len(sentences)], seed=seed))

    began_s = perf_counter()
    await asyncio.gather(*(listen(number) for number in range(at_once)))
    return figures(results, at_once, perf_counter() - began_s)


def figures(results: Sequence[ReceivedSpeech], at_once: int, wall_s: float) -> LoadResult:
    """Aggregate the results of all requests."""
    good = [one for one in results if one.ok and one.sound]
    errors = tuple(one.error or "no sound" for one in results if one not in good)
    if not good:
        return LoadResult(at_once, len(results), len(results), errors=errors)
    factors = np.percentile([one.wall_s / one.audio_s for one in good], [50, 95]).tolist()
    first_ms = np.percentile([1000 * one.arrivals[0][0] for one in good], [50, 95]).tolist()
    return LoadResult(
        at_once,
        requests=len(results),
        failed=len(results) - len(good),
        audio_s_a_second=sum(one.audio_s for one in good) / wall_s,
        real_time_factor_p50=factors[0],
        real_time_factor_p95=factors[1],
        first_audio_p50_ms=first_ms[0],
        first_audio_p95_ms=first_ms[1],
        with_gaps=sum(one.underrun_s > GAP_S for one in good),
        errors=errors,
    )
