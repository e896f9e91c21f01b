"""The bytes of a speech's file as they come, with the words whose times are final."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from functools import partial
from typing import Any

from fastapi import Request

from app.api.gate.admission import client_of
from app.audio.rendering import OutputOptions, StreamRenderer, split_portions
from app.engine.engine import SpeechEngine
from app.engine.job import SpeechJob, WordTiming


async def timed_parts(
    request: Request, engine: SpeechEngine, job: SpeechJob, output: OutputOptions
) -> AsyncGenerator[tuple[bytes, list[WordTiming]], None]:
    """Yield the bytes of a speech's file as they come, with the words that are final.

    Args:
        request: The request.
        engine: Speaks the job.
        job: With timestamps.
        output: Format and speed.

    Raises:
        SpeechError: The speech is refused or fails.
    """
    pool, client = request.app.state.render_pool, client_of(request)
    rate_hz = engine.info.sample_rate_hz
    renderer = StreamRenderer(output, rate_hz)
    final = FinalWords()
    async with aclosing(engine.submit(job)) as chunks:
        async for chunk in chunks:
            parts = [
                await pool.run(client, partial(renderer.push, portion))
                for portion in split_portions(chunk.samples, rate_hz)
            ]
            if chunk.result is not None:
                parts.append(await pool.run(client, renderer.close))
            sound = b"".join(parts)
            words = final.add(chunk.words)
            if sound or words:
                yield sound, words


class FinalWords:
    """Holds words back until their end is known; each is given once, in order."""

    def __init__(self) -> None:
        """Begin without words."""
        self._held: dict[tuple[int, int], WordTiming] = {}

    def add(self, words: Sequence[WordTiming]) -> list[WordTiming]:
        """Take words as chunks tell them; return those that will not change."""
        self._held |= {(word.utterance, word.index): word for word in words}
        ready = [key for key, word in self._held.items() if word.end_s is not None]
        return [self._held.pop(key) for key in ready]


async def timed_words(
    request: Request, engine: SpeechEngine, job: SpeechJob, output: OutputOptions
) -> AsyncGenerator[tuple[bytes, list[dict[str, Any]]], None]:
    """As `timed_parts`, with Kokoro-FastAPI's object for each word that the sound has."""
    async with aclosing(timed_parts(request, engine, job, output)) as parts:
        async for sound, words in parts:
            yield (
                sound,
                [
                    {
                        "word": word.word,
                        "start_time": round(word.start_s / job.speed, 4),
                        "end_time": round((word.end_s or word.start_s) / job.speed, 4),
                    }
                    for word in words
                    if not word.missing
                ],
            )
