"""A text of any length, read aloud in this process: piece by piece, so that a book fits too."""

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


def pieces_of(text: str) -> list[str]:
    """Return a text in the pieces that are spoken one after the other: sentences, mostly.

    Raises:
        TextError: It is empty, or holds what no text does.
    """
    check(text, max_chars=len(text))
    return pieces(text)


class Reading:
    """One reading of a text: its sound in order, and what became of it.

    Each piece goes on with what those before it spoke, under one seed, so that all together they
    are the speech of the whole text.

    Attributes:
        text: Its pieces.
        begun: How many pieces were begun.
    """

    def __init__(
        self,
        engine: SpeechEngine,
        job: SpeechJob,
        text: Sequence[str],
        journal: Journal | None = None,
    ) -> None:
        """Begin with nothing spoken.

        Args:
            engine: Is ready.
            job: How to speak; its text is left out.
            text: Its pieces.
            journal: Where spoken parts are kept, and come from; None keeps none.
        """
        self.text = text
        self._engine, self._job, self._journal = engine, job, journal
        self.begun = 0
        self._spoken: list[SpeechResult] = []
        self._stream: SpeechStream | None = None

    @property
    def progress(self) -> Progress:
        """How far the piece that is being spoken is."""
        return Progress() if self._stream is None else self._stream.progress

    async def chunks(self) -> AsyncGenerator[AudioChunk, None]:
        """Yield the sound as it comes; the last chunk has the pause that the text ends with.

        Raises:
            CommandFailed: A part cannot be kept.
            SpeechError: A piece cannot be spoken.
        """
        for number, piece in enumerate(self.text):
            self.begun = number + 1
            kept = None if self._journal is None else self._journal.get(number)
            if kept is None:
                async for chunk in self._speak(number, piece):
                    yield chunk
            else:
                self._spoken.append(kept.result)
                yield AudioChunk(kept.samples, kept.sample_rate_hz)
            if not self._spoken[-1].utterances:
                break  # nothing is left of the longest speech that was asked for
        yield self._ending()

    def result(self) -> SpeechResult:
        """Return what became of the whole text; of parts that were kept, without their traces."""
        digest = hashlib.sha256()
        for spoken in self._utterances():
            digest.update(spoken.codes.astype("<i2").tobytes())
        return replace(self._so_far(), codes_sha256=digest.hexdigest(), pause_owed_s=0.0)

    async def _speak(self, number: int, piece: str) -> AsyncIterator[AudioChunk]:
        """Yield the sound of a piece, and keep it."""
        job = replace(self._job, text=piece, more=True)
        if self._spoken:
            seed = {"seed": self._spoken[0].seed}
            params = self._job.params.model_copy(update=seed)
            job = replace(job, params=params, before=self._so_far())
        said: list[AudioChunk] = []
        self._stream = self._engine.submit(job)
        async with aclosing(self._stream) as stream:
            async for chunk in stream:
                said.append(chunk)
                yield chunk
        result = said[-1].result
        assert result is not None  # the last chunk has it
        self._spoken.append(result)
        if self._journal is not None and result.utterances:
            samples = np.concatenate([chunk.samples for chunk in said])
            self._journal.put(number, Part(samples, said[0].sample_rate_hz, result))

    def _so_far(self) -> SpeechResult:
        """Return what was spoken as one; `SpeechResult.then` would hash all codes each time."""
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
        """Return the pause that the text ends with."""
        last = self._spoken[-1]
        asked = bool(last.utterances) and last.utterances[-1].pause_after_s is not None
        rate_hz = self._engine.info.sample_rate_hz
        samples = round(last.pause_owed_s * rate_hz) if asked else 0
        self._spoken[-1] = replace(last, audio_s=last.audio_s + samples / rate_hz)
        return AudioChunk(np.zeros(samples, np.float32), rate_hz)
