"""Render a speech as requested: speed, loudness and sample rate, then the bytes of one file.

In a pool, so that no other client waits.
"""

from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import TypeVar

from app.audio.containers import open_container
from app.audio.delivery import Delivery, FileOptions, split_portions
from app.audio.render_pool import RenderPool
from app.engine.results import Samples

_T = TypeVar("_T")


class Renderer:
    """Writes one audio file, whole or streamed: a portion of samples is a step in the pool.

    Where a step takes no time it is made at once. Arguments as of `Delivery`; each call is to be
    awaited before the next.
    """

    def __init__(
        self,
        steps: tuple[RenderPool, str],
        output: FileOptions,
        sample_rate_hz: int,
        likely_lufs: float | None = None,
        *,
        whole: bool = False,
    ) -> None:
        self._pool, self._client = steps
        self._model_rate_hz = sample_rate_hz
        self._rate_hz = output.rate_hz(sample_rate_hz)
        self._delivery = Delivery(output, sample_rate_hz, likely_lufs, whole=whole)
        self._container = open_container(output.form, self._rate_hz, whole=whole)
        plain = output.speed == 1 and output.loudness_lufs is None
        same = plain and self._rate_hz == sample_rate_hz
        self._instant = same and output.form in {"wav", "pcm"} and not whole
        self._samples = 0

    @property
    def audio_s(self) -> float:
        """Seconds of sound written so far."""
        return self._samples / self._rate_hz

    async def push(self, samples: Samples) -> AsyncIterator[bytes]:
        """Render samples ``[N]``; yield the bytes that are complete after each portion."""
        for portion in split_portions(samples, self._model_rate_hz):
            yield await self._run(partial(self._pushed, portion))

    async def close(self) -> bytes:
        """Return the remaining bytes; nothing may be pushed after."""
        left = map(self._written, self._delivery.close())
        parts = list[bytes]()
        while (part := await self._run(partial(next, left, None))) is not None:
            parts.append(part)
        return b"".join([*parts, await self._run(self._container.close)])

    async def _run(self, step: Callable[[], _T]) -> _T:
        return step() if self._instant else await self._pool.run(self._client, step)

    def _pushed(self, portion: Samples) -> bytes:
        return self._written(self._delivery.push(portion))

    def _written(self, samples: Samples) -> bytes:
        self._samples += len(samples)
        return self._container.push(samples)
