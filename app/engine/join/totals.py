"""What the utterances of a job add up to, as they end: its result."""

import hashlib
from time import monotonic

from app.engine.admission.playback import Playback
from app.engine.core import AudioChunk, Plan, SpeechResult, Timings
from app.engine.messages import UtteranceDone
from app.engine.results import FinishReason, UtteranceResult, gravest


class SpeechTotals:
    """The utterances of a job that have ended, and the work on all of them.

    ``queue_s`` is for how long the job waited.
    """

    def __init__(self, queue_s: float) -> None:
        self._queue_s = queue_s
        self._digest = hashlib.sha256()
        self._utterances: list[UtteranceResult] = []
        self._finish_reason: FinishReason = "stop"
        self._frames = 0
        self._ar_s = 0.0
        self._nar_s = 0.0
        self._codec_s = 0.0

    def add_work(self, chunk: AudioChunk) -> None:
        """Count the work on a chunk, as the decoder tells it."""
        self._nar_s += chunk.nar_s
        self._codec_s += chunk.codec_s

    def add_end(self, end: UtteranceDone) -> None:
        """Count why an utterance ended."""
        cut: list[FinishReason] = ["length"] * end.cut
        # A speech whose texts were all spoken to their ends ended as it should.
        reason: FinishReason = "stop" if end.finish_reason == "aligned" else end.finish_reason
        self._finish_reason = gravest(self._finish_reason, reason, *cut)

    def add(self, utterance: UtteranceResult, ar_s: float) -> None:
        """Count an utterance that has ended, and the steps that it took part in."""
        self._digest.update(utterance.codes.tobytes())
        self._frames += len(utterance.codes)
        self._ar_s += ar_s
        self._utterances.append(utterance)

    def result(
        self, plan: Plan, playback: Playback, *, audio_s: float, pause_owed_s: float
    ) -> SpeechResult:
        """Return the result of the job, of so many seconds of audio, as it ends."""
        return SpeechResult(
            job_id=plan.job.id,
            finish_reason=self._finish_reason,
            seed=plan.seed,
            params=plan.params,
            voice=plan.voice.name,
            language=plan.language,
            codes_sha256=self._digest.hexdigest(),
            frames=self._frames,
            audio_s=audio_s,
            timings=Timings(
                queue_s=self._queue_s,
                text_s=plan.text_s,
                ar_s=self._ar_s,
                nar_s=self._nar_s,
                codec_s=self._codec_s,
                total_s=monotonic() - playback.submitted_s,
                first_audio_s=playback.first_audio_s,
                underrun_s=playback.underrun_s if playback.played else 0.0,
                unwritten_s=playback.unwritten_s if playback.played else 0.0,
            ),
            utterances=tuple(self._utterances),
            nar=plan.nar,
            decoder=plan.decoder,
            pause_owed_s=pause_owed_s,
            left_out=plan.left_out,
            made_by=plan.made_by,
        )
