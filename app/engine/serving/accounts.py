"""What became of all jobs: counted, logged, and told to their readers."""

import logging
from collections import Counter

from app.engine.errors import EngineNotReady, SpeechError
from app.engine.interface import Replay
from app.engine.job import FinishReason, SpeechResult
from app.engine.serving.metrics import EngineMetrics
from app.engine.serving.ticket import Ticket

log = logging.getLogger(__name__)


class Accounts:
    """Every ticket that was lined up ends here, once. Any thread may call.

    Attributes:
        finished: How many jobs ended for which reason; a replay is no job.
    """

    def __init__(self, metrics: EngineMetrics) -> None:
        """Begin with no jobs.

        Args:
            metrics: Where what was measured of a job goes.
        """
        self._metrics = metrics
        self.finished: Counter[FinishReason] = Counter()

    def refused(self, ticket: Ticket, error: SpeechError) -> None:
        """Tell a reader why its job does not begin."""
        if ticket.close():
            log.info("job %s: refused (%s)", ticket.job_id, error.code)
            ticket.send(error)

    def ended(self, ticket: Ticket, reason: FinishReason, error: SpeechError | None = None) -> None:
        """Account for a ticket that ended without a result.

        Args:
            ticket: Which one.
            reason: Why it ended.
            error: What its reader is told; None where it has left, or the service shuts down.
        """
        if not ticket.close():
            return
        self.finished[reason] += 1
        self._metrics.jobs.labels(reason).inc()
        log.info("job %s: %s%s", ticket.job_id, reason, f" ({error.code})" if error else "")
        ticket.send(error or EngineNotReady("not ready: it is shutting down", retry_after_s=5))

    def spoken(self, ticket: Ticket, result: SpeechResult) -> None:
        """Account for a ticket whose last chunk is about to be given."""
        if not ticket.close():
            return
        if isinstance(ticket.work, Replay):
            log.info("job %s: job %s heard again", ticket.job_id, result.job_id)
            return
        timings = result.timings
        work_s = timings.total_s - timings.queue_s
        self.finished[result.finish_reason] += 1
        self._measure(result)
        log.info(
            "job %s: %s, seed %d, %.2f s of audio, %.2f s in the queue, %.2f s of work",
            *(result.job_id, result.finish_reason, result.seed, result.audio_s),
            *(timings.queue_s, work_s),
        )

    def _measure(self, result: SpeechResult) -> None:
        metrics, timings = self._metrics, result.timings
        metrics.jobs.labels(result.finish_reason).inc()
        metrics.backtracks.inc(result.backtracks)
        metrics.queue_s.observe(timings.queue_s)
        metrics.audio_s.inc(result.audio_s)
        # That of level 0 is shared by all jobs of a step, and counted there.
        for stage in ("text", "nar", "codec"):
            metrics.stage_s.labels(stage).inc(getattr(timings, f"{stage}_s"))
        if result.audio_s:
            metrics.first_audio_s.observe(timings.first_audio_s)
            metrics.real_time_factor.observe(result.real_time_factor)
            metrics.underrun_s.inc(timings.underrun_s)
            metrics.continuous.labels("no" if timings.underrun_s else "yes").inc()
