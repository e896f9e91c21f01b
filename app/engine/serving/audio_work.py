"""What the audio thread has of a job."""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from time import monotonic

from app.engine.admission.cost_model import SHORT_S, MovingCost
from app.engine.admission.playback import Playback
from app.engine.core import AudioChunk, Plan, SpeechResult
from app.engine.interface import AudioStream, FirstChunk
from app.engine.messages import ArMessage, JobFailed
from app.engine.model import AudioPart

KNOWN_AFTER = 3
"""Chunks of audio after which the cost of a stream is known."""


@dataclass(frozen=True, slots=True)
class AudioProgress:
    """How far a job's audio is, for other threads."""

    # The first chunks of its utterances; see `AudioStream.first_chunks`
    first_chunks: tuple[FirstChunk, ...] = ()
    made: int = 0  # how many times audio was made
    first_s: float | None = None  # when the first was, by `time.monotonic`

    @property
    def is_known(self) -> bool:
        """Whether enough was made to tell what it costs."""
        return self.made >= KNOWN_AFTER


class AudioWork:
    """What a job's audio is made of, and what it costs. The audio thread alone writes it.

    The AR thread adds to ``messages``, from which this one takes.

    Attributes:
        progress: Frozen: any thread may read it.
        stream: What makes its audio; None before its first message, and of a replay.
        replayed: The speech whose audio is made once more; None: it is made of messages.
        shared_s: Seconds of work on chunks made along with others and not asked for yet.
        cost: Any thread may read it.
    """

    def __init__(self, replayed: SpeechResult | None) -> None:
        self.messages: deque[ArMessage | JobFailed] = deque()
        self.progress = AudioProgress()
        self.stream: AudioStream | None = None
        self.replayed = replayed
        self.shared_s = 0.0
        self.cost = MovingCost(SHORT_S)
        self._chunks: deque[Iterator[AudioChunk]] = deque()  # the rest of each message taken
        self._ending = False  # whether an utterance ends with the message that was taken last

    @property
    def is_waiting(self) -> bool:
        """Whether there is something to make."""
        return bool(self.messages or self._chunks or self.replayed is not None)

    def begin(self, maker: AudioPart, plan: Plan | None, playback: Playback) -> None:
        """Have what makes the audio, unless it is a replay's."""
        if self.stream is None and plan is not None:
            self.stream = maker.audio_stream(plan, playback)
            self.progress = AudioProgress(self.stream.first_chunks)

    def next_chunk(self, maker: AudioPart, playback: Playback) -> AudioChunk | None:
        """Return the next chunk of audio of the current message; None at its end.

        Raises the SpeechError with which the job ends.
        """
        if not self._chunks:
            if self.replayed is not None:
                self._chunks.append(maker.replay(self.replayed, playback))
            else:
                self._push(self.messages.popleft())
        chunk = next(self._chunks[0], None)
        if chunk is None:
            self._chunks.popleft()
        return chunk

    def push_queued(self) -> None:
        """Push all that is queued of the current utterance, so that it can be batched."""
        while self.messages and self.stream is not None and not (self._chunks and self._ending):
            if self.messages[0].kind in {"failed", "started"}:
                return  # what begins with it is prepared in its turn
            self._push(self.messages.popleft())

    def _push(self, message: ArMessage | JobFailed) -> None:
        """Begin the audio of a message; raises the error with which the job ends."""
        if message.kind == "failed":
            raise message.error
        assert self.stream is not None
        self._ending = message.kind == "done"
        self._chunks.append(self.stream.push(message))

    def count(self, work_s: float, audio_s: float) -> float:
        """Note what so many seconds of audio cost; return that, with its share of other chunks."""
        work_s += self.shared_s
        self.shared_s = 0.0
        self.cost.note(work_s, audio_s)
        if audio_s:
            before = self.progress
            first_s = before.first_s or monotonic()
            self.progress = AudioProgress(before.first_chunks, before.made + 1, first_s)
        return work_s

    def close(self) -> None:
        """Release what makes the audio."""
        if self.stream is not None:
            self.stream.close()
