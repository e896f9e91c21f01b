"""A speech whose text is still being written: a job a piece, one after the other.

The pieces are sentences, split off as soon as they are certain (`models.text.incremental.text`).
Each job goes on with what the ones before spoke, under the same seed, so that all together they are
the speech of the whole text, and while the text waits for its author the engine serves others.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import replace
from time import monotonic

import numpy as np

from app.engine.engine import SpeechEngine
from app.engine.errors import EngineBusy, InvalidRequest
from app.engine.interface import Plan
from app.engine.job import AudioChunk, SpeechJob, SpeechResult
from app.engine.serving.ticket import SpeechStream
from models.text.incremental.text import GrowingText

_ASK_AGAIN_S = 0.1
_PACKET_CHARS = 512  # of which the most expensive takes 5 ms to cut


class GrowingSpeech(AsyncIterator[AudioChunk]):
    """The chunks of a speech, for its one reader; on the event loop alone.

    A chunk that ends a piece carries the result of that piece.

    Attributes:
        text: All that was appended.
        plan: Every choice that was made; None before the first piece is read.
        result: What became of all pieces so far, as one; None before the first is spoken.
        phonemes: How many symbols were read.
    """

    def __init__(
        self, engine: SpeechEngine, job: SpeechJob, *, max_text_chars: int, busy_timeout_s: float
    ) -> None:
        """Begin with no text.

        Args:
            engine: Where the pieces are spoken.
            job: How; its text is left out.
            max_text_chars: Of the whole text.
            busy_timeout_s: How long a piece may ask for a place; the first does not ask twice.
        """
        self._engine, self._job = engine, job
        self._max_text_chars, self._busy_timeout_s = max_text_chars, busy_timeout_s
        self.text = ""
        self.plan: Plan | None = None
        self.result: SpeechResult | None = None
        self.phonemes = 0
        self._growing = GrowingText()
        self._pieces: deque[str] = deque()
        self._jobs = 0
        self._ended = self._over = False
        self._changed = asyncio.Event()
        self._stream: SpeechStream | None = None

    @property
    def waits_for_text(self) -> bool:
        """Whether nothing is left to speak, and more text may come."""
        return self._stream is None and not self._pieces and not self._ended

    async def append(self, text: str) -> None:
        """Add to the text, a little at a time: the event loop is given back in between.

        Raises:
            InvalidRequest: It has ended, or is too long.
        """
        self._check_open()
        if len(self.text) + len(text) > self._max_text_chars:
            raise InvalidRequest(
                f"the text would have {len(self.text) + len(text)} characters,"
                f" at most {self._max_text_chars} fit",
                param="text",
            )
        self.text += text
        for at in range(0, len(text), _PACKET_CHARS):
            if at:
                await asyncio.sleep(0)
            self._pieces += self._growing.append(text[at : at + _PACKET_CHARS])
            self._changed.set()

    def flush(self) -> None:
        """Let what is there be spoken as if a sentence ended.

        Raises:
            InvalidRequest: The text has ended.
        """
        self._check_open()
        self._pieces += self._growing.flush()
        self._changed.set()

    def end(self) -> None:
        """Let nothing follow.

        Raises:
            InvalidRequest: The text has ended already.
        """
        self._check_open()
        self._pieces += self._growing.end()
        self._ended = True
        self._changed.set()

    async def __anext__(self) -> AudioChunk:
        if self._over:
            raise StopAsyncIteration
        if self._stream is None:
            await self._text_comes()
            if not self._pieces:
                return self._close()
            self._stream = await self._submit(self._pieces[0])
            self._pieces.popleft()
        chunk = await anext(self._stream)
        if chunk.result is not None:
            self._account(chunk.result)
        elif self.plan is None:
            self.plan = self._stream.plan
        return chunk

    async def aclose(self) -> None:
        """Stop; the job that runs stops at its next frame."""
        self._over = True
        if self._stream is not None:
            await self._stream.aclose()

    def _check_open(self) -> None:
        if self._ended:
            raise InvalidRequest("the text has ended", param="type")

    async def _text_comes(self) -> None:
        """Wait until there is a piece, or there will be none."""
        while self.waits_for_text:
            self._changed.clear()
            await self._changed.wait()

    async def _submit(self, piece: str) -> SpeechStream:
        """Hand a piece to the engine.

        Raises:
            EngineBusy: The first piece finds no place, or a later one for too long.
            EngineNotReady: The engine is not running.
        """
        self._jobs += 1
        job = replace(
            self._job,
            id=f"{self._job.id}.{self._jobs}",
            text=piece,
            before=self.result,
            more=True,
        )
        if self.result is not None:
            seed = {"seed": self.result.seed}
            job = replace(job, params=self._job.params.model_copy(update=seed))
        ends_s = monotonic() + self._busy_timeout_s
        while True:
            try:
                return self._engine.submit(job)
            except EngineBusy:
                if self.result is None or monotonic() > ends_s:
                    raise
            await asyncio.sleep(_ASK_AGAIN_S)

    def _account(self, result: SpeechResult) -> None:
        assert self._stream is not None
        plan = self._stream.plan
        assert plan is not None
        self.plan = self.plan or plan
        self.phonemes += sum(len(utterance.phonemes) for utterance in plan.utterances)
        whole = result if self.result is None else self.result.then(result)
        self.result = replace(whole, job_id=self._job.id)
        self._stream = None

    def _close(self) -> AudioChunk:
        """Give what is still owed: the pause that the text asks for at its end.

        Raises:
            InvalidRequest: There was nothing to say.
        """
        self._over = True
        result = self.result
        if result is None:
            raise InvalidRequest("there is no text to speak", param="text")
        rate_hz = self._engine.info.sample_rate_hz
        asked = bool(result.utterances) and result.utterances[-1].pause_after_s is not None
        samples = round(result.pause_owed_s * rate_hz) if asked else 0
        audio_s = result.audio_s + samples / rate_hz
        self.result = replace(result, audio_s=audio_s, pause_owed_s=0.0)
        return AudioChunk(np.zeros(samples, np.float32), rate_hz)
