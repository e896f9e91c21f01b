"""Who draws in the next step: jobs come and go between two steps of the batch."""

import math
from collections.abc import Sequence
from time import monotonic, perf_counter
from typing import Any

from app.engine.errors import SpeechError
from app.engine.interface import Batch, Level0Stream, Plan, Replay
from app.engine.serving.capacity import Capacity
from app.engine.serving.metrics import EngineMetrics
from app.engine.serving.queue import TicketQueue
from app.engine.serving.shares import RowShares, rows_of
from app.engine.serving.sound_worker import SoundWorker
from app.engine.serving.ticket import Ticket

MAX_WAITING_S = 10.0
"""Seconds of speech that may be drawn and not yet made sound of; more is of no use to anybody."""

LATE_S, AHEAD_S = 1.0, 3.0
"""While somebody's listener has less than the first before him, whoever has more than the second
waits, and so does whoever is of less priority: a step of fewer rows is quicker, and a stream that
began needs its sound first."""

_IDLE_S, _PAUSE_S = 5.0, 0.25


class Scheduler:
    """Takes jobs as rows become free, and runs the steps. `run` is a thread of its own.

    Attributes:
        beat_s: When the worker last moved, by `time.monotonic`.
    """

    def __init__(
        self,
        queue: TicketQueue,
        sound_worker: SoundWorker,
        capacity: Capacity,
        metrics: EngineMetrics,
        *,
        slots: int,
    ) -> None:
        """Begin with no jobs.

        Args:
            queue: Where jobs come from.
            sound_worker: Where what was drawn goes.
            capacity: Told what a step costs.
            metrics: Told of steps and slots.
            slots: Rows of the batch.
        """
        self._queue, self._sound_worker, self._metrics = queue, sound_worker, metrics
        self._slots, self._shares = slots, RowShares(slots)
        self._capacity, self._frame_rate_hz = capacity, math.inf
        self._drawings: dict[Ticket, Level0Stream] = {}
        self.beat_s = monotonic()

    def run(self, batch: Batch[Any], frame_rate_hz: float, idle_after_s: float = math.inf) -> None:
        """Draw until the queue is closed and no job is left, or nothing is asked for long.

        Args:
            batch: Without jobs.
            frame_rate_hz: Frames of level 0 in a second of speech.
            idle_after_s: How long that is.
        """
        self._frame_rate_hz = frame_rate_hz
        self._note_rows()
        worked_s = monotonic()
        while self._drawings or not self._queue.closed:
            self.beat_s = monotonic()
            if self._drawings or not self._queue.empty:
                worked_s = self.beat_s
            elif self.beat_s - worked_s > idle_after_s:
                return
            self._drop_abandoned(batch)
            self._take(batch)
            going = self._choose(frame_rate_hz)
            if going:
                self._step(batch, going)
            else:
                self._queue.wait(_PAUSE_S if self._drawings else min(_IDLE_S, idle_after_s))

    def sleep(self) -> None:
        """Wait until somebody lines up, or the queue is closed."""
        while self._queue.empty and not self._queue.closed:
            self.beat_s = monotonic()
            self._queue.wait(_IDLE_S)

    def fail_all(self, error: SpeechError) -> None:
        """End every job with an error: the worker broke, and its batch is lost."""
        for ticket in self._drawings:
            self._sound_worker.put(ticket, error)
        self._drawings.clear()
        self._note_rows()

    @property
    def used_rows(self) -> int:
        """How many rows jobs have reserved."""
        return sum(map(rows_of, self._drawings))

    def _note_rows(self) -> None:
        used = self.used_rows
        self._queue.free_rows = self._slots - used
        self._metrics.slots.labels("used").set(used)
        self._metrics.slots.labels("free").set(self._slots - used)

    def _take(self, batch: Batch[Any]) -> None:
        """Let all in for whom there are rows, and who would make nobody hear a gap."""
        while (ticket := self._queue.take(self._next)) is not None:
            playback = ticket.playback
            playback.hold_s = self._sound_worker.hold_s(playback.expected_s)
            self._sound_worker.begin(ticket)
            if isinstance(ticket.work, Plan):
                started_s = perf_counter()
                self._drawings[ticket] = batch.begin(ticket.work)
                self._capacity.note_admission(perf_counter() - started_s)
                self._note_rows()

    def _next(self, waiting: Sequence[Ticket]) -> Ticket | None:
        """Return who begins next; a replay takes no rows, and waits for none who does."""
        replay = next((one for one in waiting if isinstance(one.work, Replay)), None)
        if replay is not None:
            return replay
        ticket = self._shares.next(waiting, self._drawings)
        if ticket is None or not self._sound_worker.has_room_for(ticket.playback.expected_s):
            return None
        return ticket

    def _drop_abandoned(self, batch: Batch[Any]) -> None:
        for ticket in [one for one in self._drawings if one.abandoned is not None]:
            self._forget(batch, ticket)
            self._sound_worker.wake()

    def _choose(self, frame_rate_hz: float) -> list[Ticket]:
        """Return whose turn it is."""
        lead_s: dict[Ticket, float] = {}
        for ticket, drawing in self._drawings.items():
            drawn_s, playback = drawing.frames / frame_rate_hz, ticket.playback
            if ticket.paused_s or drawn_s - playback.given_s > MAX_WAITING_S:
                continue
            first_s = playback.first_s
            lead_s[ticket] = drawn_s - (0.0 if first_s is None else monotonic() - first_s)
        late = [ticket for ticket, lead in lead_s.items() if lead < LATE_S]
        if not late:
            return list(lead_s)
        foremost = min(ticket.priority for ticket in late)
        return [
            ticket
            for ticket, lead in lead_s.items()
            if lead < AHEAD_S and ticket.priority <= foremost
        ]

    def _step(self, batch: Batch[Any], going: list[Ticket]) -> None:
        started_s = perf_counter()
        drawings = [self._drawings[ticket] for ticket in going]
        frames = sum(drawing.frames for drawing in drawings)
        batch.step(drawings)
        drawn = sum(drawing.frames for drawing in drawings) - frames
        step_s = perf_counter() - started_s
        self._capacity.note_level_0(step_s, max(0, drawn) / self._frame_rate_hz)
        for ticket in going:
            self._tell(batch, ticket, self._drawings[ticket])
        self._metrics.steps.inc()
        self._metrics.tokens.inc(len(going))
        self._metrics.stage_s.labels("ar").inc(step_s)

    def _tell(self, batch: Batch[Any], ticket: Ticket, drawing: Level0Stream) -> None:
        """Hand on what a job has that is new, and let it go if that was all."""
        ticket.progress = drawing.progress
        for drawn in drawing.news():
            self._sound_worker.put(ticket, drawn)
        if drawing.error is not None:
            self._sound_worker.put(ticket, drawing.error)
        if drawing.over:
            self._forget(batch, ticket)

    def _forget(self, batch: Batch[Any], ticket: Ticket) -> None:
        batch.end(self._drawings.pop(ticket))
        self._note_rows()
