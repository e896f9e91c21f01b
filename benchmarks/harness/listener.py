"""A listener over HTTP who notes when each byte came, and plays it in mind.

It reads as fast as sound comes and plays from the first byte on, with nothing held back: whoever
keeps a buffer hears fewer gaps, later.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

import httpx
import numpy as np

AUDIBLE = 10 ** (-50 / 20)
"""Of full scale: the first sample over it is the first that is heard."""
BYTES_A_SAMPLE = 2
TIMEOUT_S = 120.0

Arrivals = Sequence[tuple[float, int]]
"""When how many bytes of sound came, in seconds."""


@dataclass(frozen=True)
class Heard:
    """One answer.

    Attributes:
        status: Of HTTP; 0 where there was no answer.
        id: Its ``x-request-id``.
        headers: In lower case.
        rate_hz: Of the sound.
        sent_s: When it was asked for, by `perf_counter`.
        arrivals: Of its sound, in seconds since then.
        sound: 16 bits a sample, as it came; of an error, its body.
        broke: What cut it off; None where it came to its end.
    """

    status: int
    id: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    rate_hz: int = 24_000
    sent_s: float = 0.0
    arrivals: Arrivals = ()
    sound: bytes = b""
    broke: str | None = None

    @property
    def ok(self) -> bool:
        """Whether it is a whole speech."""
        return self.status == 200 and self.broke is None

    @property
    def audio_s(self) -> float:
        """Seconds of sound."""
        return len(self.sound) / BYTES_A_SAMPLE / self.rate_hz

    @property
    def wall_s(self) -> float:
        """Seconds to the last byte."""
        return self.arrivals[-1][0] if self.arrivals else 0.0

    @property
    def first_audio_s(self) -> float | None:
        """Seconds to the byte that holds the first sample over -50 dBFS; None if there is none."""
        samples = np.frombuffer(self.sound, "<i2")
        (loud,) = np.nonzero(np.abs(samples.astype(np.int32)) > AUDIBLE * 2**15)
        if not len(loud):
            return None
        came = np.cumsum([count for _, count in self.arrivals])
        holder = np.searchsorted(came, (int(loud[0]) + 1) * BYTES_A_SAMPLE)
        return self.arrivals[int(holder)][0]

    @property
    def underrun_s(self) -> float:
        """Seconds of silence between the first byte and the last that were not in the sound."""
        return underrun_s(self.arrivals, BYTES_A_SAMPLE * self.rate_hz)

    @property
    def sound_sha256(self) -> str:
        """Hash of the bytes."""
        return hashlib.sha256(self.sound).hexdigest()


def underrun_s(arrivals: Arrivals, bytes_a_second: float) -> float:
    """Return for how long somebody who plays from the first byte on has nothing to play."""
    if not arrivals:
        return 0.0
    lasts_until_s, gaps_s = arrivals[0][0], 0.0
    for at_s, count in arrivals:
        gaps_s += max(0.0, at_s - lasts_until_s)
        lasts_until_s = max(lasts_until_s, at_s) + count / bytes_a_second
    return gaps_s


def listening(url: str) -> httpx.AsyncClient:
    """Return a client of a server, with a connection for each of any number of listeners."""
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
    return httpx.AsyncClient(base_url=url, timeout=TIMEOUT_S, limits=limits, trust_env=False)


async def hear(
    client: httpx.AsyncClient, text: str, *, stream: bool = True, **fields: Any
) -> Heard:
    """Ask for a speech as PCM and listen to its end; cancel the call to leave.

    Args:
        client: Of the server.
        text: What to say.
        stream: Whether it is sent while it is made.
        fields: Others of the request.
    """
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
            except httpx.TransportError as error:
                broke = type(error).__name__
    except httpx.TransportError as error:
        return Heard(0, sent_s=sent_s, broke=type(error).__name__)
    return Heard(
        answer.status_code,
        answer.headers.get("x-request-id", ""),
        {name.lower(): value for name, value in answer.headers.items()},
        int(answer.headers.get("x-sample-rate", "24000")),
        sent_s,
        tuple(arrivals),
        bytes(sound),
        broke,
    )


async def codes_sha256(client: httpx.AsyncClient, heard: Heard) -> str:
    """Return the hash of a speech's codes: of its headers, or of its report where it streamed."""
    if (whole := heard.headers.get("x-codes-sha256")) is not None:
        return whole
    report = await client.get(f"/v1/audio/speech/{heard.id}")
    return str(report.raise_for_status().json()["codes_sha256"])
