"""The sound of one job: its utterances voiced, joined, and the account of it."""

import hashlib
from collections.abc import Iterator
from time import monotonic

import numpy as np

from app.engine.interface import Plan
from app.engine.job import (
    GRAVITY,
    AudioChunk,
    FinishReason,
    Samples,
    SpeechResult,
    SpokenUtterance,
    Timings,
)
from app.engine.playback import Playback
from app.engine.sound.joiner import Joiner
from app.engine.sound.local import SoundDecoder, UtteranceStream
from app.engine.utterance import Level0Chunk, UtteranceEnd
from models.checkpoints import SpeechModel

_NOTHING: Samples = np.zeros(0, np.float32)


class SoundJob:
    """A job while sound is made of it. One thread only, but not that of level 0."""

    def __init__(
        self, speech: SpeechModel, plan: Plan, *, voice: SoundDecoder, playback: Playback
    ) -> None:
        """Begin with no sound; the time until now was spent waiting.

        Args:
            speech: The model.
            plan: What is spoken.
            voice: Makes sound of the utterances.
            playback: Told of every chunk.
        """
        self._speech, self._plan, self._voice = speech, plan, voice
        self._playback = playback
        self._queue_s = monotonic() - playback.submitted_s - plan.text_s
        before = plan.job.before
        self._rate_hz = speech.codec.config.sample_rate_hz
        self._joiner = Joiner(
            self._rate_hz, plan.params.pause_s, owed_s=before.pause_owed_s if before else 0.0
        )
        self._digest = hashlib.sha256()
        self._spoken: list[SpokenUtterance] = []
        self._finish_reason: FinishReason = "stop"
        self._frames = 0
        self._ar_s = self._nar_s = self._codec_s = 0.0
        self._voiced: UtteranceStream | None = None

    def close(self) -> None:
        """Forget an utterance that has begun and not ended."""
        if self._voiced is not None:
            self._voiced.drop()

    def push(self, drawn: Level0Chunk) -> Iterator[AudioChunk]:
        """Take what level 0 gives next and yield the sound that is now certain.

        The last chunk of the job has its result.

        Raises:
            GenerationFailed: The samples are no numbers.
        """
        held = _NOTHING
        for samples in self._sounds(drawn):
            if len(held):
                yield self._chunk(held)
            held = self._joiner.push(samples)
        if drawn.ending is not None:
            self._account(drawn, drawn.ending)
            held = np.concatenate([held, self._join(drawn, drawn.ending)])
            if drawn.ending.last:
                yield self._chunk(held, last=True)
                return
        if len(held):
            yield self._chunk(held)

    def _sounds(self, drawn: Level0Chunk) -> Iterator[Samples]:
        """Yield the samples of an utterance, a chunk at a time; a pause has none."""
        if drawn.inputs is None:
            return
        if self._voiced is None:
            self._voiced = self._voice.begin(drawn.inputs)
        yield from self._voiced.push(drawn.codes, ended=drawn.ending is not None)

    def _account(self, drawn: Level0Chunk, ending: UtteranceEnd) -> None:
        """Note what became of an utterance."""
        self._note(ending.finish_reason)
        if ending.cut:
            self._note("length")
        if drawn.utterance is None:
            return
        utterance = self._plan.utterances[drawn.utterance]
        # The pause after what was cut led to what is not spoken.
        pause_after_s = None if ending.cut else utterance.pause_after_s
        if (voiced := self._voiced) is None:
            codes = np.zeros((0, self._speech.model.config.levels), np.int16)
        else:
            codes = voiced.codes.cpu().numpy().astype("<i2")
            self._nar_s += voiced.nar_s
            self._codec_s += voiced.codec_s
        self._voiced = None
        self._digest.update(codes.tobytes())
        self._frames += len(codes)
        self._ar_s += ending.ar_s
        self._spoken.append(
            SpokenUtterance(
                codes,
                ending.finish_reason,
                pause_after_s=pause_after_s,
                trace=ending.trace,
                backtracks=ending.backtracks,
                phonemes=utterance.phonemes,
                takes=ending.takes,
            )
        )

    def _join(self, drawn: Level0Chunk, ending: UtteranceEnd) -> Samples:
        """Return the end of an utterance's sound."""
        if drawn.utterance is None:
            return _NOTHING
        last = ending.last and not self._plan.job.more
        return self._joiner.finish(self._spoken[-1].pause_after_s, last=last)

    def _chunk(self, samples: Samples, *, last: bool = False) -> AudioChunk:
        self._playback.give(len(samples) / self._rate_hz)
        return AudioChunk(samples, self._rate_hz, self._result() if last else None)

    def _note(self, reason: FinishReason) -> None:
        """Take an utterance's finish reason for the job's, if it is graver."""
        self._finish_reason = max(self._finish_reason, reason, key=GRAVITY.index)

    def _result(self) -> SpeechResult:
        plan, playback = self._plan, self._playback
        return SpeechResult(
            job_id=plan.job.id,
            finish_reason=self._finish_reason,
            seed=plan.seed,
            params=plan.params,
            voice=plan.voice.name,
            language=plan.language,
            codes_sha256=self._digest.hexdigest(),
            frames=self._frames,
            audio_s=self._joiner.given / self._rate_hz,
            timings=Timings(
                queue_s=self._queue_s,
                text_s=plan.text_s,
                ar_s=self._ar_s,
                nar_s=self._nar_s,
                codec_s=self._codec_s,
                total_s=monotonic() - playback.submitted_s,
                first_audio_s=playback.first_audio_s,
                underrun_s=playback.underrun_s,
                expected_first_audio_s=playback.expected_first_s or 0.0,
            ),
            utterances=tuple(self._spoken),
            nar=plan.nar,
            decoder=plan.decoder,
            pause_owed_s=self._joiner.owed_s,
        )
