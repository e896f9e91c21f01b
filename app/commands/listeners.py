"""Listeners who ask for sentences and note what they hear, and when."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass, field
from time import perf_counter

from app.commands.errors import CommandError
from app.engine.errors import SpeechError

_GAP_S = 0.001  # a shorter wait is the clock's

Listen = Callable[[str, int], AsyncGenerator[float, None]]
"""Yields the seconds of sound of each chunk of a text, spoken with a seed, as it comes."""


@dataclass
class Heard:
    """What one listener heard, who plays from the first chunk on.

    Attributes:
        error: Why it broke off; None where it came to its end.
        first_s: Seconds to the first chunk.
        wall_s: Seconds to the last.
        audio_s: Seconds of sound.
        underrun_s: Seconds for which there was nothing to play amid the sound.
    """

    error: str | None = None
    first_s: float = 0.0
    wall_s: float = 0.0
    audio_s: float = 0.0
    underrun_s: float = 0.0


@dataclass(frozen=True)
class Load:
    """The figures of so many listeners at once."""

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


async def load(listen: Listen, sentences: Sequence[str], at_once: int, requests: int) -> Load:
    """Let so many listeners ask for so many sentences each."""
    heard: list[Heard] = []

    async def client(number: int) -> None:
        for turn in range(requests):
            seed = number * requests + turn
            heard.append(await hear(listen, sentences[seed % len(sentences)], seed))

    began_s = perf_counter()
    await asyncio.gather(*(client(number) for number in range(at_once)))
    return _figures(heard, at_once, perf_counter() - began_s)


async def hear(listen: Listen, text: str, seed: int) -> Heard:
    """Listen to a sentence."""
    heard, began_s, lasts_until_s = Heard(), perf_counter(), 0.0
    try:
        async for audio_s in listen(text, seed):
            now_s = perf_counter() - began_s
            if not heard.audio_s:
                heard.first_s = lasts_until_s = now_s
            heard.underrun_s += max(0.0, now_s - lasts_until_s)
            lasts_until_s = max(lasts_until_s, now_s) + audio_s
            heard.audio_s += audio_s
            heard.wall_s = now_s
    except (SpeechError, CommandError, OSError) as error:
        heard.error = str(error) or type(error).__name__
    return heard


def _figures(heard: Sequence[Heard], at_once: int, wall_s: float) -> Load:
    """Sum up what was heard."""
    import numpy as np

    good = [one for one in heard if one.error is None and one.audio_s]
    errors = tuple(one.error or "no sound" for one in heard if one not in good)
    if not good:
        return Load(at_once, len(heard), len(heard), errors=errors)
    factors = np.percentile([one.wall_s / one.audio_s for one in good], [50, 95]).tolist()
    first_ms = np.percentile([1000 * one.first_s for one in good], [50, 95]).tolist()
    return Load(
        at_once,
        requests=len(heard),
        failed=len(heard) - len(good),
        audio_s_a_second=sum(one.audio_s for one in good) / wall_s,
        real_time_factor_p50=factors[0],
        real_time_factor_p95=factors[1],
        first_audio_p50_ms=first_ms[0],
        first_audio_p95_ms=first_ms[1],
        with_gaps=sum(one.underrun_s > _GAP_S for one in good),
        errors=errors,
    )
