"""Listeners that request sentences and record when audio arrives."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass, field
from time import perf_counter

from app.commands.errors import CommandError
from app.engine.errors import SpeechError

_GAP_S = 0.001  # shorter gaps are timer jitter

Listen = Callable[[str, int], AsyncGenerator[float, None]]
"""Yields the seconds of audio in each chunk as it arrives, for a text and a seed."""


@dataclass
class ListenerResult:
    """One request of a listener who starts playback at the first chunk.

    Attributes:
        error: Error message; None if the speech completed.
        first_s: Seconds to the first chunk.
        wall_s: Seconds to the last chunk.
        audio_s: Seconds of audio.
        underrun_s: Seconds without audio to play after the first chunk.
    """

    error: str | None = None
    first_s: float = 0.0
    wall_s: float = 0.0
    audio_s: float = 0.0
    underrun_s: float = 0.0


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
    listen: Listen, sentences: Sequence[str], at_once: int, requests: int
) -> LoadResult:
    """Run concurrent listeners with a number of requests each, and return the figures."""
    results: list[ListenerResult] = []

    async def client(number: int) -> None:
        for turn in range(requests):
            seed = number * requests + turn
            results.append(await listen_once(listen, sentences[seed % len(sentences)], seed))

    began_s = perf_counter()
    await asyncio.gather(*(client(number) for number in range(at_once)))
    return _figures(results, at_once, perf_counter() - began_s)


async def listen_once(listen: Listen, text: str, seed: int) -> ListenerResult:
    """Request a sentence and record its timing."""
    result, began_s, lasts_until_s = ListenerResult(), perf_counter(), 0.0
    try:
        async for audio_s in listen(text, seed):
            now_s = perf_counter() - began_s
            if not result.audio_s:
                result.first_s = lasts_until_s = now_s
            result.underrun_s += max(0.0, now_s - lasts_until_s)
            lasts_until_s = max(lasts_until_s, now_s) + audio_s
            result.audio_s += audio_s
            result.wall_s = now_s
    except (SpeechError, CommandError, OSError) as error:
        result.error = str(error) or type(error).__name__
    return result


def _figures(results: Sequence[ListenerResult], at_once: int, wall_s: float) -> LoadResult:
    """Aggregate the results of all requests."""
    import numpy as np

    good = [one for one in results if one.error is None and one.audio_s]
    errors = tuple(one.error or "no sound" for one in results if one not in good)
    if not good:
        return LoadResult(at_once, len(results), len(results), errors=errors)
    factors = np.percentile([one.wall_s / one.audio_s for one in good], [50, 95]).tolist()
    first_ms = np.percentile([1000 * one.first_s for one in good], [50, 95]).tolist()
    return LoadResult(
        at_once,
        requests=len(results),
        failed=len(results) - len(good),
        audio_s_a_second=sum(one.audio_s for one in good) / wall_s,
        real_time_factor_p50=factors[0],
        real_time_factor_p95=factors[1],
        first_audio_p50_ms=first_ms[0],
        first_audio_p95_ms=first_ms[1],
        with_gaps=sum(one.underrun_s > _GAP_S for one in good),
        errors=errors,
    )
