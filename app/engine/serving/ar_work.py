"""What the AR thread has of a job."""

from time import monotonic

from app.engine.admission.cost_model import SHORT_S, MovingCost
from app.engine.core import Plan, Progress
from app.engine.interface import ArStream

SLOW_AFTER_S = 0.5
QUICK = 0.5
"""Seconds of work after which a stream is known to be slow, and at which cost it is no more."""


class ArWork:
    """A job's part of the batch, and what its steps cost. The AR thread alone writes it.

    Attributes:
        stream: Its level 0; None where it has no rows.
        progress: Of that, frozen: any thread may read it.
        started_idle: Whether no other stream ran when it was admitted.
        admitted_s: When that was, by `time.monotonic`.
        cost: Of its share of each step. Any thread may read it.
        sampled_s: Seconds of speech sampled so far. Any thread may read it.
        slow: Whether it could not keep up if it had the machine to itself.
    """

    def __init__(self) -> None:
        self.stream: ArStream | None = None
        self.plan: Plan | None = None  # that the stream goes by
        self.progress = Progress()
        self.started_idle = True
        self.admitted_s = 0.0
        self.cost = MovingCost(SHORT_S)
        self.sampled_s = 0.0
        self.slow = False
        self._most_frames = 0  # sampled before

    def admit(self, *, started_idle: bool) -> None:
        """Note that its work begins."""
        self.started_idle = started_idle
        self.admitted_s = monotonic()

    def count_step(self, work_s: float, frame_rate_hz: float, audio_cost: MovingCost) -> None:
        """Note its share of the time of a step; ``audio_cost`` is what its audio costs beside."""
        sampled = max(0, self.progress.frames - self._most_frames)
        self._most_frames += sampled
        self.sampled_s = self.progress.frames / frame_rate_hz
        self.cost.note(work_s, sampled / frame_rate_hz)
        each = self.cost.each + audio_cost.each
        if self.cost.work_s + audio_cost.work_s > SLOW_AFTER_S and each > 1.0:
            self.slow = True
        elif each < QUICK:
            self.slow = False
