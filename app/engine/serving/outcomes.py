"""How jobs end: each is counted, logged, and its reader gets the error if there is one."""

import logging
from collections import Counter

from app.engine.errors import EngineNotReady, SpeechError
from app.engine.interface import Replay
from app.engine.job import FinishReason, SpeechResult
from app.engine.serving.metrics import EngineMetrics
from app.engine.serving.ticket import Ticket

log = logging.getLogger(__name__)


class Outcomes:
    """Records how each ticket ended; of several calls for one ticket, the first counts.

    Any thread may call.

    Attributes:
        finished: How many jobs ended for which reason; replays are not counted.
    """

    def __init__(self, metrics: EngineMetrics) -> None:
        self._metrics = metrics
        self.finished: Counter[FinishReason] = Counter()

    def refused(self, ticket: Ticket, error: SpeechError) -> None:
        """Record that a job was refused, and give its reader the error."""
        if ticket.close():
            log.info("job %s: refused (%s)", ticket.job_id, error.code)
            ticket.send(error)

    def ended(self, ticket: Ticket, reason: FinishReason, error: SpeechError | None = None) -> None:
        """Record that a ticket ended without a result, and give its reader the error.

        Args:
            reason: Why it ended.
            error: None if the reader has left, or the engine stops.
        """
        if not ticket.close():
            return
        self.finished[reason] += 1
        self._metrics.jobs.labels(reason).inc()
        log.info("job %s: %s%s", ticket.job_id, reason, f" ({error.code})" if error else "")
        ticket.send(error or EngineNotReady("not ready: it is shutting down", retry_after_s=5))

    def completed(self, ticket: Ticket, result: SpeechResult) -> None:
        """Record the result of a ticket, before its reader gets the last chunk."""
        if not ticket.close():
            return
        if isinstance(ticket.work, Replay):
            log.info("job %s: replay of job %s", ticket.job_id, result.job_id)
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
        # Steps of level 0 are shared by jobs: the scheduler counts them.
        for stage in ("text", "nar", "codec"):
            metrics.stage_s.labels(stage).inc(getattr(timings, f"{stage}_s"))
        if result.audio_s:
            metrics.first_audio_s.observe(timings.first_audio_s)
            metrics.real_time_factor.observe(result.real_time_factor)
            metrics.underrun_s.inc(timings.underrun_s)
            metrics.continuous.labels("no" if timings.underrun_s else "yes").inc()
