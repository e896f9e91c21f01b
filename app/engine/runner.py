"""What the engine's threads do with a ticket: read its text, run it, and account for its end."""

import logging
from collections import Counter
from collections.abc import Iterator
from time import monotonic

from app.engine.errors import EngineNotReady, GenerationFailed, ReaderStalled, SpeechError
from app.engine.job import AudioChunk, FinishReason, Progress, SpeechJob, SpeechResult
from app.engine.queue import TicketQueue
from app.engine.speaking import OnProgress, Plan, Replay, Speaking
from app.engine.ticket import Ticket

log = logging.getLogger(__name__)

_PAUSE_BEAT_S = 0.25


class Runner:
    """Takes tickets from the queue to their end; whatever happens to one happens to it alone.

    Attributes:
        finished: How many jobs ended for which reason; a replay is no job.
        beat_s: When the worker last moved, by `time.monotonic`.
        job_s: Seconds that a job takes, old ones fading: the machine may have become busier.
    """

    def __init__(self, queue: TicketQueue, stall_timeout_s: float) -> None:
        """Begin with nothing done.

        Args:
            queue: Where tickets come from.
            stall_timeout_s: Longest pause of a job whose reader does not take its sound.
        """
        self._queue = queue
        self._stall_timeout_s = stall_timeout_s
        self.finished: Counter[FinishReason] = Counter()
        self.beat_s = monotonic()
        self.job_s = 2.0  # a guess, until jobs have been measured

    def beat(self) -> None:
        """Note that the worker moves."""
        self.beat_s = monotonic()

    def read(self, speaking: Speaking, ticket: Ticket, job: SpeechJob) -> None:
        """Plan a job and line it up, or refuse it."""
        if ticket.abandoned is not None:
            if self._queue.leave(ticket):
                self.close(ticket, ticket.abandoned)
            return
        try:
            self._queue.line_up(ticket, speaking.plan(job))
        except SpeechError as error:
            refusal = error
        except Exception as error:
            refusal = _broken(ticket, error)
        else:
            return
        if self._queue.leave(ticket):
            log.info("job %s: refused (%s)", ticket.job_id, refusal.code)
            ticket.give(refusal)

    def run(self, speaking: Speaking, ticket: Ticket) -> None:
        """Give a ticket all its chunks, or the reason why not."""

        def on_progress(progress: Progress) -> bool:
            self.beat()
            ticket.progress = progress
            return ticket.abandoned is None

        self.beat()
        if ticket.abandoned is not None:
            self.close(ticket, ticket.abandoned)
            return
        started_s = monotonic()
        try:
            for chunk in _chunks(speaking, ticket, started_s, on_progress):
                self.beat()
                if ticket.abandoned is not None:
                    break
                if chunk.result is not None:
                    self._account(ticket, chunk.result, monotonic() - started_s)
                ticket.give(chunk)
                if chunk.result is not None:
                    return
                self._wait_for_reader(ticket)
        except ReaderStalled as error:
            self.close(ticket, "cancelled", error)
        except SpeechError as error:
            self.close(ticket, "error", error)
        except Exception as error:
            self.close(ticket, "error", _broken(ticket, error))
        else:
            self.close(ticket, ticket.abandoned or "cancelled")

    def _wait_for_reader(self, ticket: Ticket) -> None:
        """Pause while more sound waits than may.

        Raises:
            ReaderStalled: The pause took too long.
        """
        timeout_s = self._stall_timeout_s
        if not ticket.wait_for_room(self.beat, _PAUSE_BEAT_S, timeout_s):
            raise ReaderStalled(f"nobody took the sound for {timeout_s:g} s")

    def close(self, ticket: Ticket, reason: FinishReason, error: SpeechError | None = None) -> None:
        """Account for a ticket that ended without a result.

        Args:
            ticket: Which one.
            reason: Why it ended.
            error: What its reader is told; None where it has left, or the service shuts down.
        """
        self.finished[reason] += 1
        log.info("job %s: %s%s", ticket.job_id, reason, f" ({error.code})" if error else "")
        ticket.give(error or EngineNotReady("not ready: it is shutting down", retry_after_s=5))

    def _account(self, ticket: Ticket, result: SpeechResult, job_s: float) -> None:
        if isinstance(ticket.work, Replay):
            log.info("job %s: job %s heard again", ticket.job_id, result.job_id)
            return
        self.finished[result.finish_reason] += 1
        self.job_s += 0.3 * (job_s - self.job_s)
        log.info(
            "job %s: %s, seed %d, %.2f s of audio, %.2f s in the queue, %.2f s of work",
            *(result.job_id, result.finish_reason, result.seed, result.audio_s),
            *(result.timings.queue_s, job_s),
        )


def _chunks(
    speaking: Speaking, ticket: Ticket, started_s: float, on_progress: OnProgress
) -> Iterator[AudioChunk]:
    """Return what a ticket's work gives, begun at ``started_s``."""
    waited_s, work = started_s - ticket.submitted_s, ticket.work
    if isinstance(work, Replay):
        return speaking.replay(work, queue_s=waited_s, on_progress=on_progress)
    assert isinstance(work, Plan)  # the queue gives nobody whose text is not read
    return speaking.speak(work, queue_s=waited_s - work.text_s, on_progress=on_progress)


def _broken(ticket: Ticket, error: Exception) -> GenerationFailed:
    """Log a mistake of ours; return what its reader may know of it."""
    log.error("job %s broke", ticket.job_id, exc_info=error)
    return GenerationFailed(
        f"the speech could not be made: {type(error).__name__}; the log says more"
    )
