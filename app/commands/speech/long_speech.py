"""Speech of a text of any length: one job a piece, so that memory does not grow with the text."""

from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import aclosing, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, NoReturn

import numpy as np

from app.commands.errors import CommandFailed
from app.commands.speech.journal import Journal
from app.engine.core import AudioChunk, Plan, Progress, SpeechJob, SpeechResult, Unreadable
from app.engine.engine import SpeechEngine
from app.engine.errors import SpeechError
from app.engine.growing import JobChain
from app.engine.model import LoadedModel
from app.engine.serving.running import SpeechStream
from app.settings import Settings
from models.text.characters import check_text
from models.text.incremental.text import pieces

if TYPE_CHECKING:
    from tqdm import tqdm


def split_pieces(text: str, *, thoughts: bool = False) -> list[str]:
    """Split a text into the pieces that are spoken one after the other, mostly sentences."""
    check_text(text, max_chars=len(text))
    return pieces(text, thoughts=thoughts)


def line_of(text: str, read: Sequence[str]) -> int:
    """Return the line of a text, from 1, in which the last of its first pieces begins."""
    at = 0
    for piece in read:
        words = [word for word in piece.split() if word[0] not in "[<"] or piece.split()[:1]
        found = text.find(words[0], at) if words else -1
        at = max(at, found)
        last = at
        at += len(words[0]) if found >= 0 else 0
    return text.count("\n", 0, last) + 1


class LongSpeechEngine(SpeechEngine):
    """An engine that speaks each job piece by piece."""

    journal: Journal | None = None  # where finished parts are kept
    progress: "tqdm[NoReturn] | None" = None  # of the words
    pieces: Sequence[str] = ()  # of the only text that is spoken; empty: it is split
    failure: CommandFailed | None = None  # why it could not be kept

    def __init__(self, load: Callable[[], LoadedModel], settings: Settings) -> None:
        super().__init__(load, settings)
        self.begins_s: list[float] = []  # where each piece begins in the sound, at speed 1

    @property
    def unreadable(self) -> Unreadable:
        """What becomes of what the voice does not read, unless a request says."""
        return self._settings.unreadable

    def submit(self, job: SpeechJob) -> SpeechStream:
        """Return the chunks of a job, whose pieces are queued one after the other."""
        return LongSpeech(self, super().submit, job)


class LongSpeech(SpeechStream):
    """Speaks the pieces of a text in order, each as a job that continues the one before.

    All jobs have one seed, so their codes and samples are those of one job with the whole text.
    """

    def __init__(
        self,
        engine: LongSpeechEngine,
        submit: Callable[[SpeechJob], SpeechStream],
        job: SpeechJob,
    ) -> None:
        thoughts = job.reading.thoughts == "speak"
        self._pieces = engine.pieces or split_pieces(job.text, thoughts=thoughts)
        self._engine = engine
        self._submit = submit
        self._journal = engine.journal
        self._progress = engine.progress
        self._sampled = Progress()  # of the last piece
        self._whole = job
        self._chain = JobChain(job)
        self._stream: SpeechStream | None = None
        self._chunks = self._speak()

    async def __anext__(self) -> AudioChunk:
        return await anext(self._chunks)

    @property
    def progress(self) -> Progress:
        """How far the level 0 of the last piece is."""
        return self._sampled

    def leave(self) -> None:
        """Cancel the job of the current piece."""
        if self._stream is not None:
            self._stream.leave()

    async def _speak(self) -> AsyncGenerator[AudioChunk, None]:
        """Yield the audio as it comes; the last chunk is the pause that ends the text."""
        if (self._whole.reading.unreadable or self._engine.unreadable) == "refuse":
            # Before anything is spoken.
            for number, piece in enumerate(self._pieces):
                with self._named(number):
                    part = replace(self._whole.part, more=True)
                    await self._engine.read(replace(self._whole, text=piece, part=part))
        for number, piece in enumerate(self._pieces):
            words = len(piece.split())
            before = self._chain.result
            begin_s = before.audio_s + before.pause_owed_s if before else 0.0
            self._engine.begins_s.append(begin_s)
            stored = None if self._journal is None else self._journal.get(number)
            spoken = self._spoken(number, piece) if stored is None else self._restored(*stored)
            async with aclosing(spoken):
                async for chunk in spoken:
                    yield chunk
            if self._progress is not None:
                self._progress.initial += words if stored else 0  # they took no time
                self._progress.update(words)
            if self._chain.exhausted:
                break
        result = self._chain.result
        assert result is not None
        if not self._chain.exhausted and not any(one.phonemes for one in result.utterances):
            await self._engine.read(self._whole)  # which says why there is nothing to speak
        pause = self._chain.finish(self._engine.info.sample_rate_hz)
        yield replace(pause, result=self._chain.result)

    async def _spoken(self, number: int, piece: str) -> AsyncGenerator[AudioChunk, None]:
        """Yield the audio of a piece and store it in the journal."""
        chunks: list[AudioChunk] = []
        # What is sent whole is kept in the journal's file, in place of memory.
        live = self._journal is None or self._whole.played
        self._stream = self._submit(self._chain.next_job(piece))
        with self._named(number):
            async with aclosing(self._stream) as stream:
                async for chunk in stream:
                    self.plan = self.plan or stream.plan
                    self._sampled = stream.progress
                    chunks.append(chunk)
                    if live:
                        yield replace(chunk, result=None)
        result = chunks[-1].result
        rate_hz = chunks[0].sample_rate_hz
        assert result is not None  # the last chunk has it
        self._chain.add(result)
        if self._journal is not None:
            samples = np.concatenate([chunk.samples for chunk in chunks])
            if result.utterances:
                try:
                    samples = self._journal.put(number, samples, result)
                except CommandFailed as failure:
                    self._engine.failure = failure
                    raise
            if not live:
                yield AudioChunk(samples, rate_hz)

    @contextmanager
    def _named(self, number: int) -> Iterator[None]:
        """Have an error name the sentence, and the line in which it begins."""
        try:
            yield
        except SpeechError as error:
            if len(self._pieces) > 1:
                line = line_of(self._whole.text, self._pieces[: number + 1])
                error.message = f"sentence {number + 1}, line {line}: {error.message}"
            raise

    async def _restored(
        self, samples: np.ndarray[tuple[int], np.dtype[np.float32]], result: SpeechResult
    ) -> AsyncGenerator[AudioChunk, None]:
        """Yield a part that an interrupted run has spoken."""
        self._chain.add(result)
        self.plan = self.plan or Plan(
            self._whole,
            result.params,
            result.seed,
            self._engine.voices.speaker(result.voice, self._whole.owner),
            result.language,
            (),
            0.0,
        )
        yield AudioChunk(samples, self._engine.info.sample_rate_hz)
