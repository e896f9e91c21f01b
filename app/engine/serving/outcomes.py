"""How jobs ended: told to their readers, the log and the metrics."""

import logging
from collections import Counter

from app.engine.core import SpeechResult
from app.engine.errors import EngineNotReady, SpeechError
from app.engine.results import FinishReason
from app.engine.serving.metrics import EngineMetrics
from app.engine.serving.running import JobHandle

log = logging.getLogger(__name__)


class JobLog:
    """Records how each job ended; of several calls for one job, the first counts. Any thread."""

    def __init__(self, metrics: EngineMetrics) -> None:
        self._metrics = metrics
        self.finished: Counter[FinishReason] = Counter()  # without replays

    def refused(self, job: JobHandle, error: SpeechError) -> None:
        """Record that a job was refused, and give its reader the error."""
        if job.close():
            log.info("job %s: refused (%s)", job.id, error.code)
            job.send(error)

    def ended(self, job: JobHandle, reason: FinishReason, error: SpeechError | None = None) -> None:
        """Record that a job ended without a result, and give its reader the error.

        There is none if the reader has left, or the engine stops.
        """
        if not job.close():
            return
        self.finished[reason] += 1
        self._metrics.jobs.labels(reason).inc()
        log.info("job %s: %s%s", job.id, reason, f" ({error.code})" if error else "")
        job.send(error or EngineNotReady("not ready: it is shutting down", retry_after_s=5))

    def completed(self, job: JobHandle, result: SpeechResult) -> None:
        """Record the result of a job, before its reader gets the last chunk."""
        if not job.close():
            return
        if job.is_replay:
            log.info("job %s: replay of job %s", job.id, result.job_id)
            return
        timings = result.timings
        work_s = timings.total_s - timings.queue_s
        self.finished[result.finish_reason] += 1
        self._measure(result, played=job.playback.played)
        log.info(
            "job %s: %s, seed %d, %.2f s of audio, %.2f s in the queue, %.2f s of work, "
            "%.2f s stalled",
            *(result.job_id, result.finish_reason, result.seed, result.audio_s),
            *(timings.queue_s, work_s, timings.underrun_s),
        )

    def _measure(self, result: SpeechResult, *, played: bool) -> None:
        metrics = self._metrics
        timings = result.timings
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
        if result.audio_s and played:  # of what is sent whole nobody hears a gap
            metrics.underrun_s.inc(timings.underrun_s)
            metrics.continuous.labels("no" if timings.underrun_s else "yes").inc()
