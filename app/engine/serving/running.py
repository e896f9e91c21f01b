"""One job in the engine: what its reader and the workers know of it.

A job is first planned (its text is read), then it waits for the workers, then it runs. Each of the
three who work on it writes a part of its own: its reader (`ChunkReader`), the AR thread (`ArWork`)
and the audio thread (`AudioWork`).
"""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from time import monotonic

from app.engine.admission.cost_model import CostModel
from app.engine.admission.playback import Playback
from app.engine.admission.streams import Stream
from app.engine.admission.text_pace import KnownText, TextPace
from app.engine.core import AudioChunk, Plan, Progress, SpeechJob, SpeechResult
from app.engine.errors import DeadlineExceeded, SpeechError
from app.engine.results import FinishReason
from app.engine.serving.ar_work import ArWork
from app.engine.serving.audio_work import AudioWork
from app.engine.serving.reader import ChunkReader


class SpeechStream(AsyncIterator[AudioChunk]):
    """The chunks of a speech, for one reader, the last with its result.

    The job pauses while its reader takes no chunks. A reader that forwards them calls `leave` if
    its own client stops reading.
    """

    plan: Plan | None = None  # None before its text is read, and for a replay

    @property
    def progress(self) -> Progress:
        """How far its level 0 is."""
        return Progress()

    @property
    def waits_for_text(self) -> bool:
        """Whether all is spoken of a text of which more is to come."""
        return False

    @property
    def runs_out_s(self) -> float:
        """When its audio so far is played, by `time.monotonic`."""
        return 0.0

    def leave(self) -> None:
        """Cancel what is not done; it stops at its next frame."""
        raise NotImplementedError

    async def aclose(self) -> None:
        """Leave; for `contextlib.aclosing`."""
        self.leave()


class JobHandle(SpeechStream):
    """A job in the engine, from its submission to its end, for the workers and its reader.

    ``wake`` is called with the job when it was given up, or goes on after a pause. One that is
    not to be planned has the speech whose audio is made once more, ``replayed``.

    Attributes:
        plan: Written by the text thread: once, or with each part of a text that is still written.
        asked: The same with all of the text that there is, if more has come. Written by its reader.
        pace: Of a text that is written while it is spoken; else None. Written by its reader.
        known: How much of it is there. Written by the text thread.
        lead_until_s: When the preceding sentence's sound has been played, by `time.monotonic`.
        refusal: Why the rest of its text is not spoken. Written by the text thread.
        promised: Whether it is made in time; None before it is known. Written by who promises.
        abandoned: Why it was given up, by any thread.
    """

    def __init__(
        self,
        job_id: str,
        timeout_s: float,
        wake: Callable[["JobHandle"], None],
        *,
        client: str = "",
        played: bool = True,
        replayed: SpeechResult | None = None,
    ) -> None:
        self.id = job_id
        self.client = client
        self.playback = Playback(monotonic(), played=played)
        self.reader = ChunkReader(timeout_s)
        self.ar = ArWork()
        self.audio = AudioWork(replayed)
        self.promised: bool | None = None
        self.abandoned: FinishReason | None = None
        self.asked: SpeechJob | None = None
        self.refusal: SpeechError | None = None
        self.pace: TextPace | None = None
        self.known: KnownText | None = None
        self.lead_until_s = 0.0
        self._wake = wake
        self._closing = threading.Lock()
        self._closed = False
        self._held: list[AudioChunk] = []  # until the playback begins
        self._begun = False  # whether its playback has

    @property
    def progress(self) -> Progress:
        """How far its level 0 is."""
        return self.ar.progress

    @property
    def waits_for_text(self) -> bool:
        """Whether all is spoken of a text of which more is to come."""
        stream = self.ar.stream
        return stream is not None and stream.waits and not self.audio.is_waiting

    @property
    def runs_out_s(self) -> float:
        """When its audio so far is played; see `Playback`."""
        return self.playback.runs_out_s

    def extend(self, plan: Plan) -> None:
        """Go on with a plan of more of its text."""
        self.plan = plan
        self.refusal = None
        self._wake(self)

    def refuse(self, error: SpeechError) -> None:
        """Fail, as the rest of its text cannot be spoken."""
        self.refusal = error
        self._wake(self)

    @property
    def is_replay(self) -> bool:
        """Whether the audio of an earlier speech is made once more."""
        return self.audio.replayed is not None

    @property
    def rows(self) -> int:
        """How many rows of the batch it takes; a replay takes none."""
        return 0 if self.plan is None else self.plan.rows

    @property
    def priority(self) -> int:
        """Of waiting jobs, those with the smallest number run first."""
        return 0 if self.plan is None else self.plan.job.priority

    @property
    def paused(self) -> bool:
        """Whether it waits for its reader, who has too much unread audio."""
        return self.reader.paused_s > 0

    def abandon(self, reason: FinishReason) -> None:
        """Give the job up: the workers drop it at the next step or chunk."""
        self.abandoned = reason
        self._wake(self)

    def close(self) -> bool:
        """Mark the job as ended; True on the first call only."""
        with self._closing:
            first = not self._closed
            self._closed = True
            return first

    def send(self, item: AudioChunk | SpeechError) -> None:
        """Send a chunk or an error to the reader.

        Chunks are held until the playback begins: see `Playback.prebuffer_s`.
        """
        if isinstance(item, AudioChunk):
            if item.result is not None:
                self.playback.begin()
            if self.playback.first_s is None:
                self._held.append(item)
                return
            self.send_held()
            # After the last chunk there is nothing left to pause.
            self.reader.count(item, may_pause=item.result is None)
        self._put([item])

    @property
    def is_held(self) -> bool:
        """Whether audio waits for its playback to begin."""
        return bool(self._held) and self.playback.first_s is None

    @property
    def begins(self) -> bool:
        """Whether audio that waits for its playback may be played now."""
        return self.is_held and self.playback.may_begin

    def send_held(self) -> None:
        """Send what was held before the playback began."""
        for held in self._held:
            self.reader.count(held)
        self._put(self._held)
        self._held = []

    def _put(self, items: Sequence[AudioChunk | SpeechError]) -> None:
        try:
            for one in items:
                self.reader.put(one)
        except RuntimeError:  # the reader's loop is closed
            self.abandoned = "cancelled"

    async def __anext__(self) -> AudioChunk:
        if self.reader.over:
            raise StopAsyncIteration
        try:
            item = await self.reader.take()
        except TimeoutError:
            self.leave("error")
            raise DeadlineExceeded("the request took longer than this server allows") from None
        except asyncio.CancelledError:
            self.leave()
            raise
        if isinstance(item, SpeechError):
            self.reader.over = True
            raise item
        self.reader.over = item.result is not None
        unread_s = self.reader.mark_read(item)
        if unread_s is not None:
            self.playback.put_off(unread_s)
            self._wake(self)
        return item

    def leave(self, reason: FinishReason = "cancelled") -> None:
        """Give the job up for its reader, unless that has read all."""
        if not self.reader.over:
            self.reader.over = True
            self.abandon(reason)

    @property
    def has_work(self) -> bool:
        """Whether the audio thread has something to do for it."""
        if self.abandoned is not None:
            return True
        return self.audio.is_waiting and not self.paused

    @property
    def urgency(self) -> tuple[bool, int, float]:
        """Sort key, the least first: abandoned, priority, when audio is due."""
        return self.abandoned is None, self.priority, self.playback.due_s

    @property
    def gives_way(self) -> bool:
        """Whether others go first: it is not promised in time, or has less priority than usual."""
        return self.playback.gives_way or self.priority > 0

    @property
    def usual(self) -> bool:
        """Whether its cost tells what others cost."""
        return self.plan is not None and self.plan.usual

    @property
    def cost(self) -> float:
        """Seconds of work that a second of its audio takes; 0 before that is known."""
        return self.ar.cost.each + self.audio.cost.each if self.audio.progress.is_known else 0.0

    def count_step(self, work_s: float, frame_rate_hz: float) -> None:
        """Note its share of the time of a step; the AR thread does."""
        self.playback.worked_s += work_s
        self.ar.count_step(work_s, frame_rate_hz, self.audio.cost)

    def count_audio(self, capacity: CostModel, work_s: float, audio_s: float) -> None:
        """Note what so many seconds of its audio cost; the audio thread does."""
        work_s = self.audio.count(work_s, audio_s)
        if self.usual:
            capacity.note_audio(work_s, audio_s)
        first_s = self.playback.first_s
        if not self._begun and first_s is not None:
            self._begun = True
            if (
                self.ar.started_idle and self.usual and self.pace is None
            ):  # else it waited for words
                capacity.note_start(max(0.0, first_s - self.ar.admitted_s))

    def stream(self, capacity: CostModel) -> Stream:
        """Return its audio as admission counts it; what is held for its playback is ahead of it."""
        playback = self.playback
        progress = self.audio.progress
        usual = capacity.cost
        begun = playback.first_s is not None
        coming = max(0, progress.made - 1)
        next_s = 0.0  # in how many seconds its next audio comes; 0 after its early chunks
        if coming < len(progress.first_chunks):
            elapsed_s = 0.0 if progress.first_s is None else monotonic() - progress.first_s
            frames = progress.first_chunks[coming].frames
            next_s = max(0.0, capacity.chunk_s(frames) - elapsed_s)
        return Stream(
            playback.lead_s if begun else playback.audio_s,
            playback.left_s,
            progress.first_s is not None,
            next_s,
            1.0 if self.usual or not usual else max(1.0, self.cost / usual),
            self.client,
            self.ar.slow,
            progress.made > 0 or bool(self.promised),
            bool(self.promised),
        )
