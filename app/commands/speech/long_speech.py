"""Speech of a text of any length: one job a piece, so that memory does not grow with the text."""

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing

import numpy as np

from app.commands.speech.journal import Journal, Part
from app.engine.continued import JobChain
from app.engine.engine import SpeechEngine
from app.engine.job import AudioChunk, Progress, SpeechJob, SpeechResult
from app.engine.serving.running import SpeechStream
from models.text.characters import check
from models.text.incremental.text import pieces


def split_pieces(text: str) -> list[str]:
    """Split a text into the pieces that are spoken one after the other, mostly sentences."""
    check(text, max_chars=len(text))
    return pieces(text)


class LongSpeech:
    """Speaks the pieces of a text in order, each as a job that continues the one before.

    All jobs have one seed, so their codes and samples are those of one job with the whole text.

    Attributes:
        pieces: The text.
        begun: Number of pieces that have been started.
        restored: How many of the first of them an interrupted run had spoken.
    """

    def __init__(
        self,
        engine: SpeechEngine,
        job: SpeechJob,
        pieces: Sequence[str],
        journal: Journal | None = None,
    ) -> None:
        self.pieces = pieces
        self._engine, self._chain, self._journal = engine, JobChain(job), journal
        self.begun = self.restored = 0
        self._stream: SpeechStream | None = None

    @property
    def progress(self) -> Progress:
        """Progress of the current piece."""
        return Progress() if self._stream is None else self._stream.progress

    async def chunks(self) -> AsyncGenerator[AudioChunk, None]:
        """Yield the audio as it comes; the last chunk is the pause that ends the text."""
        for number, piece in enumerate(self.pieces):
            self.begun = number + 1
            stored = None if self._journal is None else self._journal.get(number)
            if stored is None:
                async for chunk in self._speak(number, piece):
                    yield chunk
            else:
                self._chain.add(stored.result)
                self.restored = self.begun
                yield AudioChunk(stored.samples, stored.sample_rate_hz)
            if self._chain.exhausted:
                break
        yield self._chain.finish(self._engine.info.sample_rate_hz)

    def result(self) -> SpeechResult:
        """Return the result of the whole text; parts from the journal have no trace."""
        assert self._chain.result is not None
        return self._chain.result

    async def _speak(self, number: int, piece: str) -> AsyncIterator[AudioChunk]:
        """Yield the audio of a piece and store it in the journal."""
        chunks: list[AudioChunk] = []
        self._stream = self._engine.submit(self._chain.next_job(piece))
        async with aclosing(self._stream) as stream:
            async for chunk in stream:
                chunks.append(chunk)
                yield chunk
        result = chunks[-1].result
        assert result is not None  # the last chunk has it
        self._chain.add(result)
        if self._journal is not None and result.utterances:
            samples = np.concatenate([chunk.samples for chunk in chunks])
            self._journal.put(number, Part(samples, chunks[0].sample_rate_hz, result))
