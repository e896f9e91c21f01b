"""Speech made of several jobs: each continues from what the jobs before it spoke."""

import asyncio
import hashlib
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import replace
from time import monotonic

import numpy as np

from app.engine.admission.text_pace import TextPace
from app.engine.core import AudioChunk, Plan, SpeechJob, SpeechResult
from app.engine.engine import SpeechEngine
from app.engine.errors import EngineBusy, InvalidRequest
from app.engine.results import gravest
from app.engine.serving.running import SpeechStream
from models.text.front_end import MOST_LISTED
from models.text.incremental.text import GrowingText

_RETRY_S = 0.1
_PACKET_CHARS = 512  # of which the most expensive takes 5 ms to cut


class JobChain:
    """The jobs of one speech, a job a piece of its text, and their results as one.

    All jobs use one seed, and each gets the result of those before it, so that together they are
    the speech of the whole text.
    """

    def __init__(self, job: SpeechJob) -> None:
        self._job = job
        self._codes_sha256 = hashlib.sha256()
        self._added = 0
        self.result: SpeechResult | None = None  # of all jobs so far, as one; None before the first
        self.exhausted = False  # whether the last job spoke nothing: `max_duration_s` is used up

    def next_job(self, text: str, *, is_open: bool = False) -> SpeechJob:
        """Return the job that speaks the next piece of the text, or its beginning."""
        params = self._job.params
        if self.result is not None:
            params = params.model_copy(update={"seed": self.result.seed})
        return replace(
            self._job,
            id=f"{self._job.id}.{self._added + 1}",
            text=text,
            params=params,
            part=replace(self._job.part, before=self.result, more=True, is_open=is_open),
        )

    def add(self, result: SpeechResult) -> SpeechResult:
        """Add the result of the next job; return what of it counts."""
        self._added += 1
        self.exhausted = not result.utterances
        silent = not any(one.phonemes or one.pause_after_s for one in result.utterances)
        if silent and not self.exhausted:  # a piece without a word: as if it was not there
            result = replace(result, utterances=())
        for utterance in result.utterances:
            self._codes_sha256.update(utterance.codes.astype("<i2").tobytes())
        whole = result
        if self.result is not None:
            whole = _joined(self.result, result, exhausted=self.exhausted)
        self.result = replace(
            whole, job_id=self._job.id, codes_sha256=self._codes_sha256.hexdigest()
        )
        return result

    def finish(self, sample_rate_hz: int) -> AudioChunk:
        """Return the pause that the text ends with, often no samples, after at least one job."""
        result = self.result
        assert result is not None
        paused = bool(result.utterances) and result.utterances[-1].pause_after_s is not None
        samples = round(result.pause_owed_s * sample_rate_hz) if paused else 0
        audio_s = result.audio_s + samples / sample_rate_hz
        self.result = replace(result, audio_s=audio_s, pause_owed_s=0.0)
        return AudioChunk(np.zeros(samples, np.float32), sample_rate_hz)


def _joined(before: SpeechResult, later: SpeechResult, *, exhausted: bool) -> SpeechResult:
    """Return the results of two successive jobs as one, with the `codes_sha256` of the later."""
    utterances = before.utterances + later.utterances
    if exhausted and utterances:  # `max_duration_s` was used up: no sound follows the pause
        utterances = (*utterances[:-1], replace(utterances[-1], pause_after_s=None))
    return replace(
        later,
        finish_reason=gravest(before.finish_reason, later.finish_reason),
        frames=before.frames + later.frames,
        audio_s=before.audio_s + later.audio_s,
        timings=before.timings + later.timings,
        utterances=utterances,
        left_out=tuple(dict.fromkeys(before.left_out + later.left_out))[:MOST_LISTED],
    )


class GrowingSpeech(AsyncIterator[AudioChunk]):
    """The audio of a text that is still being written, for one reader. Event loop only.

    Each sentence is a job, submitted as soon as its end is certain
    (`models.text.incremental.text`); while the text is waited for, the engine serves others. With
    `text_lookahead_words` it is submitted with its first words, and told of more as they come:
    what is spoken is the same. Of a take that is gone on from, sentences that it has frames of are
    waited for. The last chunk of each sentence carries its result.
    """

    def __init__(
        self, engine: SpeechEngine, job: SpeechJob, *, max_text_chars: int, busy_timeout_s: float
    ) -> None:
        self._engine = engine
        self._chain = JobChain(job)
        self._max_text_chars = max_text_chars
        self._busy_timeout_s = busy_timeout_s
        self.text = ""
        self.plan: Plan | None = None  # of the first sentence; None before it was read
        self.phonemes = 0
        self._growing = GrowingText(thoughts=job.reading.thoughts == "speak")
        self._pace = TextPace()
        self._played_until_s = 0.0  # the sentences before the present one
        self._pieces: deque[str] = deque()
        self._ended = self._over = False
        self._changed = asyncio.Event()
        self._stream: SpeechStream | None = None
        self._lookahead = job.params.text_lookahead_words
        self._kept = len(job.part.kept.utterances) if job.part.kept else 0
        # The beginning of the sentence that the stream has, whose end is not known; else empty
        self._begun = ""
        self._skips = False  # whether that sentence was ended before its text

    @property
    def result(self) -> SpeechResult | None:
        """The results of all sentences so far, as one; None before the first is spoken."""
        return self._chain.result

    @property
    def ended(self) -> bool:
        """Whether nothing can be appended."""
        return self._ended

    @property
    def waits_for_text(self) -> bool:
        """Whether all text so far is spoken, and more may come."""
        if self._pieces or self._ended:
            return False
        return self._stream is None or (bool(self._begun) and self._stream.waits_for_text)

    async def append(self, text: str) -> None:
        """Add to the text, 512 characters between two turns of the event loop.

        Raises InvalidRequest if the text has ended, or is too long.
        """
        self._check_open()
        if len(self.text) + len(text) > self._max_text_chars:
            raise InvalidRequest(
                f"the text would have {len(self.text) + len(text)} characters,"
                f" at most {self._max_text_chars} fit",
                param="text",
            )
        self.text += text
        self._pace.note(len(text))
        for at in range(0, len(text), _PACKET_CHARS):
            if at:
                await asyncio.sleep(0)
            self._pieces += self._growing.append(text[at : at + _PACKET_CHARS])
            self._forward_text()

    def flush(self) -> None:
        """Speak all text so far, as if a sentence ended here."""
        self._check_open()
        self._pieces += self._growing.flush()
        self._forward_text()

    def end(self) -> None:
        """End the text: nothing can be appended."""
        self._check_open()
        self._pieces += self._growing.end()
        begun = self._pieces or self._stream is not None or self.result is not None
        if not begun and self.text.strip():  # marks alone: no sound, and a warning
            self._pieces.append(self.text)
        self._ended = True
        self._forward_text()

    async def __anext__(self) -> AudioChunk:
        if self._over:
            raise StopAsyncIteration
        if self._stream is None:
            await self._wait_for_text()
            if self._pieces:
                self._stream = await self._submit(self._chain.next_job(self._pieces[0]))
                self._pieces.popleft()
            elif self._ended:
                return self._finish()
            else:
                begun = self._begin_of_next()
                self._stream = await self._submit(self._chain.next_job(begun, is_open=True))
                self._begun = begun
                self._forward_text()  # what has come meanwhile
        chunk = await anext(self._stream)
        if chunk.result is not None:
            chunk.result = self._add(chunk.result)
        elif self.plan is None:
            self.plan = self._stream.plan
        return chunk

    async def aclose(self) -> None:
        """Stop; a job that runs is cancelled at its next frame."""
        self._over = True
        if self._stream is not None:
            await self._stream.aclose()

    def _check_open(self) -> None:
        if self._ended:
            raise InvalidRequest("the text has ended", param="type")

    def _begin_of_next(self) -> str:
        """Return the first words of the next sentence, if they are enough to begin with."""
        spoken = len(self.result.utterances) if self.result else 0
        if not self._lookahead or self._skips or spoken < self._kept:
            return ""
        begun = self._growing.open_part
        return begun if len(begun.split()) > self._lookahead else ""

    def _forward_text(self) -> None:
        """Tell the job that has the beginning of a sentence what has come of the rest."""
        self._changed.set()
        if self._skips and self._pieces:
            self._pieces.popleft()
            self._skips = False
        if not self._begun or self._stream is None:
            return
        if self._pieces:
            whole = self._chain.next_job(self._pieces.popleft())
            self._begun = ""
            self._engine.read_more(self._stream, whole)
        elif len(begun := self._growing.open_part) > len(self._begun):
            self._begun = begun
            self._engine.read_more(self._stream, self._chain.next_job(begun, is_open=True))

    async def _wait_for_text(self) -> None:
        """Wait for a sentence, or its first words, or for the end of the text."""
        while self.waits_for_text and not self._begin_of_next():
            self._changed.clear()
            await self._changed.wait()

    async def _submit(self, job: SpeechJob) -> SpeechStream:
        """Submit a sentence."""
        ends_s = monotonic() + self._busy_timeout_s
        while True:
            try:
                if job.part.is_open:
                    return self._engine.begin(job, self._pace, self._played_until_s)
                return self._engine.submit(job)
            except EngineBusy:
                if self.result is None or monotonic() > ends_s:
                    raise
            await asyncio.sleep(_RETRY_S)

    def _add(self, result: SpeechResult) -> SpeechResult:
        """Add the result of the sentence that has ended; return what of it counts."""
        assert self._stream is not None
        plan = self._stream.plan
        assert plan is not None
        self.plan = self.plan or plan
        self.phonemes += sum(len(utterance.phonemes) for utterance in plan.utterances)
        self._played_until_s = self._stream.runs_out_s
        self._stream = None
        self._skips = bool(self._begun)  # its frames were used up, or it was stuck
        self._begun = ""
        return self._chain.add(result)

    def _finish(self) -> AudioChunk:
        """Return the pause that the text ends with."""
        self._over = True
        if self.result is None:
            raise InvalidRequest("there is no text to speak", param="text")
        return self._chain.finish(self._engine.info.sample_rate_hz)
