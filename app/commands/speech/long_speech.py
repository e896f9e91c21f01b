"""Speech of a text of any length: one job a piece, so that memory does not grow with the text."""

import hashlib
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from dataclasses import replace
from functools import reduce
from itertools import chain
from operator import add

import numpy as np

from app.commands.speech.journal import Journal, Part
from app.engine.engine import SpeechEngine
from app.engine.job import (
    GRAVITY,
    AudioChunk,
    Progress,
    SpeechJob,
    SpeechResult,
    SpokenUtterance,
)
from app.engine.serving.ticket import SpeechStream
from models.text.characters import check
from models.text.incremental.text import pieces


def split_pieces(text: str) -> list[str]:
    """Split a text into the pieces that are spoken one after the other, mostly sentences.

    Raises:
        TextError: The text is empty or holds characters that are not text.
    """
    check(text, max_chars=len(text))
    return pieces(text)


class LongSpeech:
    """Speaks the pieces of a text in order, each as a job that continues the one before.

    All jobs have one seed, so their codes and samples are those of one job with the whole text.

    Attributes:
        pieces: The text.
        begun: Number of pieces that have been started.
    """

    def __init__(
        self,
        engine: SpeechEngine,
        job: SpeechJob,
        pieces: Sequence[str],
        journal: Journal | None = None,
    ) -> None:
        """Initialise without starting a job.

        Args:
            engine: An engine that is ready.
            job: The template of all jobs; its text is ignored.
            pieces: The text, as `split_pieces` returns it.
            journal: Stores finished parts, and supplies those of an interrupted run.
        """
        self.pieces = pieces
        self._engine, self._job, self._journal = engine, job, journal
        self.begun = 0
        self._spoken: list[SpeechResult] = []
        self._stream: SpeechStream | None = None

    @property
    def progress(self) -> Progress:
        """Progress of the current piece."""
        return Progress() if self._stream is None else self._stream.progress

    async def chunks(self) -> AsyncGenerator[AudioChunk, None]:
        """Yield the audio as it comes; the last chunk is the pause that ends the text.

        Raises:
            CommandFailed: A part cannot be stored.
            SpeechError: A piece cannot be spoken.
        """
        for number, piece in enumerate(self.pieces):
            self.begun = number + 1
            kept = None if self._journal is None else self._journal.get(number)
            if kept is None:
                async for chunk in self._speak(number, piece):
                    yield chunk
            else:
                self._spoken.append(kept.result)
                yield AudioChunk(kept.samples, kept.sample_rate_hz)
            if not self._spoken[-1].utterances:
                break  # the speech has reached max_duration_s
        yield self._ending()

    def result(self) -> SpeechResult:
        """Return the result of the whole text; parts from the journal have no trace."""
        digest = hashlib.sha256()
        for spoken in self._utterances():
            digest.update(spoken.codes.astype("<i2").tobytes())
        return replace(self._so_far(), codes_sha256=digest.hexdigest(), pause_owed_s=0.0)

    async def _speak(self, number: int, piece: str) -> AsyncIterator[AudioChunk]:
        """Yield the audio of a piece and store it in the journal."""
        job = replace(self._job, text=piece, more=True)
        if self._spoken:
            seed = {"seed": self._spoken[0].seed}
            params = self._job.params.model_copy(update=seed)
            job = replace(job, params=params, before=self._so_far())
        chunks: list[AudioChunk] = []
        self._stream = self._engine.submit(job)
        async with aclosing(self._stream) as stream:
            async for chunk in stream:
                chunks.append(chunk)
                yield chunk
        result = chunks[-1].result
        assert result is not None  # the last chunk has it
        self._spoken.append(result)
        if self._journal is not None and result.utterances:
            samples = np.concatenate([chunk.samples for chunk in chunks])
            self._journal.put(number, Part(samples, chunks[0].sample_rate_hz, result))

    def _so_far(self) -> SpeechResult:
        """Return all results as one; `SpeechResult.then` would hash all codes each time."""
        spoken = self._spoken
        return replace(
            spoken[-1],
            job_id=self._job.id,
            finish_reason=max((one.finish_reason for one in spoken), key=GRAVITY.index),
            frames=sum(one.frames for one in spoken),
            audio_s=sum(one.audio_s for one in spoken),
            timings=reduce(add, (one.timings for one in spoken)),
            utterances=self._utterances(),
        )

    def _utterances(self) -> tuple[SpokenUtterance, ...]:
        return tuple(chain.from_iterable(one.utterances for one in self._spoken))

    def _ending(self) -> AudioChunk:
        """Return the pause that the text ends with, often empty."""
        last = self._spoken[-1]
        asked = bool(last.utterances) and last.utterances[-1].pause_after_s is not None
        rate_hz = self._engine.info.sample_rate_hz
        samples = round(last.pause_owed_s * rate_hz) if asked else 0
        self._spoken[-1] = replace(last, audio_s=last.audio_s + samples / rate_hz)
        return AudioChunk(np.zeros(samples, np.float32), rate_hz)
