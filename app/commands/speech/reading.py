"""A text of any length, read aloud in this process: piece by piece, so that a book fits too."""

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing

import numpy as np

from app.commands.speech.journal import Journal, Part
from app.engine.continued import JobChain
from app.engine.engine import SpeechEngine
from app.engine.job import AudioChunk, Progress, SpeechJob, SpeechResult
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
    """A long text spoken piece by piece, and the result of all pieces as one.

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
            job: How to speak; its text is ignored.
            text: Its pieces.
            journal: Stores spoken parts, and has those of an earlier run; None stores none.
        """
        self.text = text
        self._engine, self._chain, self._journal = engine, JobChain(job), journal
        self.begun = 0
        self._stream: SpeechStream | None = None

    @property
    def progress(self) -> Progress:
        """How far the piece that is being spoken is."""
        return Progress() if self._stream is None else self._stream.progress

    async def chunks(self) -> AsyncGenerator[AudioChunk, None]:
        """Yield the audio as it is made; the last chunk is the pause that the text ends with.

        Raises:
            CommandFailed: A part cannot be stored.
            SpeechError: A piece cannot be spoken.
        """
        for number, piece in enumerate(self.text):
            self.begun = number + 1
            stored = None if self._journal is None else self._journal.get(number)
            if stored is None:
                async for chunk in self._speak(number, piece):
                    yield chunk
            else:
                self._chain.add(stored.result)
                yield AudioChunk(stored.samples, stored.sample_rate_hz)
            if self._chain.exhausted:
                break
        yield self._chain.finish(self._engine.info.sample_rate_hz)

    def result(self) -> SpeechResult:
        """Return the result of the whole text; of stored parts without their traces."""
        assert self._chain.result is not None
        return self._chain.result

    async def _speak(self, number: int, piece: str) -> AsyncIterator[AudioChunk]:
        """Yield the audio of a piece, and store it."""
        spoken: list[AudioChunk] = []
        self._stream = self._engine.submit(self._chain.next_job(piece))
        async with aclosing(self._stream) as stream:
            async for chunk in stream:
                spoken.append(chunk)
                yield chunk
        result = spoken[-1].result
        assert result is not None  # the last chunk has it
        self._chain.add(result)
        if self._journal is not None and result.utterances:
            samples = np.concatenate([chunk.samples for chunk in spoken])
            self._journal.put(number, Part(samples, spoken[0].sample_rate_hz, result))
