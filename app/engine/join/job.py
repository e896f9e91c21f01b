"""The audio of one job: its utterances decoded and joined, and the result; or once more."""

from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import replace
from time import monotonic

import numpy as np

from app.engine.admission.playback import Playback
from app.engine.core import AudioChunk, Plan, PromptedVoice, SpeechResult, Timings
from app.engine.join.chunk_events import ChunkEvents
from app.engine.join.joiner import Joiner
from app.engine.join.open_utterance import OpenUtterance
from app.engine.join.totals import SpeechTotals
from app.engine.join.word_clock import WordClock
from app.engine.messages import ArMessage, MorePlanned, UtteranceDone
from app.engine.nar.chunks import first_chunks
from app.engine.nar.process import AudioProcess
from app.engine.nar.stage import NarStage
from app.engine.results import Samples, UtteranceCodes, UtteranceResult, WordTimes
from app.engine.utterance import UtteranceSpec, ar_codes_of
from models.checkpoints.sources import SpeechModel
from samplers.knobs.features import sequences_of

_NO_SAMPLES: Samples = np.zeros(0, np.float32)


class AudioJob:
    """Makes the audio of one job; a `app.engine.interface.AudioStream`.

    `utterance` is the one that has begun and not ended.
    """

    def __init__(
        self,
        speech: SpeechModel,
        plan: Plan,
        *,
        decoder: NarStage | AudioProcess,
        playback: Playback,
    ) -> None:
        self._speech = speech
        self._plan = plan
        self._decoder = decoder
        self._playback = playback
        params = plan.params
        block = speech.model.config.block_frames
        at_once = plan.nar == "whole" or params.level_0 == "masked" or sequences_of(params) > 1
        frame_rate_hz = speech.codec.config.frame_rate_hz
        self.first_chunks = () if at_once else first_chunks(params, block, frame_rate_hz)
        before = plan.job.part.before
        self._before_s = before.audio_s if before else 0.0
        self._rate_hz = speech.codec.config.sample_rate_hz
        self._joiner = Joiner(
            self._rate_hz, plan.params.pause_s, pending_s=before.pause_owed_s if before else 0.0
        )
        self._totals = SpeechTotals(monotonic() - playback.submitted_s - plan.text_s)
        self._events = ChunkEvents()
        self.utterance: OpenUtterance | None = None
        self._rate = 1.0  # the tempo of the utterance that has begun last
        self._first = len(before.utterances) if before else 0
        self._number = self._first  # of the utterance

    def close(self) -> None:
        """Cancel the utterance that has begun and not ended."""
        if self.utterance is not None:
            self.utterance.decoder.close()

    def push(self, message: ArMessage) -> Iterator[AudioChunk]:
        """Take what level 0 tells of an utterance, and yield the audio that is final with it.

        Frames are handed on to the decoder at once, those of the next utterance only when the
        iterators before are exhausted. The last chunk of the job carries its result.
        """
        if message.kind == "planned":
            self._extend(message)
            return iter(())
        if message.kind == "started":
            number = self._number - self._first
            decoder = self._decoder.begin(message.inputs)
            self.utterance = OpenUtterance(decoder, message.inputs.places, self._new_clock(number))
            self._rate = self._plan.utterances[number].rate
        elif self.utterance is not None:  # else a pause, which has no codes
            self.utterance.feed(message)
        end = message if message.kind == "done" else None
        return self._audio(end, () if self.utterance is None else self.utterance.decoder)

    def _extend(self, more: MorePlanned) -> None:
        """Go on with more of the text; what was aligned holds in it, too."""
        self._plan = replace(
            self._plan,
            utterances=more.utterances,
            left_out=more.left_out,
            speakers=tuple(map(PromptedVoice, more.voices)),
            words=more.words,
            lengths=more.lengths,
        )
        number = self._number - self._first
        if self.utterance is not None and (clock := self._new_clock(number)) is not None:
            self.utterance.restart(clock, more.utterances[number], more.lengths[number])

    def _audio(
        self, end: UtteranceDone | None, sounds: Iterable[AudioChunk]
    ) -> Iterator[AudioChunk]:
        """Yield the audio of what an utterance is decoded to so far, and of its end."""
        chunk = AudioChunk(_NO_SAMPLES, self._rate_hz)
        for decoded in sounds:
            if len(chunk.samples):
                yield self._filled(chunk)
            chunk = decoded
            self._join(chunk)
        if end is not None:
            rest = self._end_utterance(end)
            chunk.samples = np.concatenate([chunk.samples, rest])
        last = end is not None and end.last
        if last or len(chunk.samples):
            yield self._filled(chunk, last=last)

    def _join(self, chunk: AudioChunk) -> None:
        """Put the job's sound in place of an utterance's, and note what the decoder tells of it."""
        chunk.samples = self._joiner.push(chunk.samples, self._rate)
        self._totals.add_work(chunk)
        utterance = self.utterance
        assert utterance is not None
        assert chunk.decoded is not None
        utterance.codes.append(chunk.decoded)
        if self._plan.job.report.codes and len(chunk.decoded):
            self._events.add_codes(UtteranceCodes(self._number, chunk.decoded))
        if utterance.clock is not None and chunk.alignment is not None:
            number = self._number - self._first
            utterance.align(
                chunk.alignment, self._plan.utterances[number], self._plan.lengths[number]
            )
            self._tell_words(utterance.clock)

    def _end_utterance(self, end: UtteranceDone) -> Samples:
        """Note the result of an utterance and return the last samples ``[N]`` of its sound."""
        self._totals.add_end(end)
        if not end.in_plan:
            return _NO_SAMPLES
        planned = self._plan.utterances[self._number - self._first]
        # After a cut nothing is spoken that the pause could lead to.
        pause_after_s = None if end.cut else planned.pause_after_s
        codes = np.zeros((0, self._speech.model.config.levels), np.int16)
        clock = None
        if self.utterance is not None:
            codes = np.concatenate(self.utterance.codes).astype("<i2")
            clock = self.utterance.clock
            self.utterance.decoder.close()
        self.utterance = None
        joiner = self._joiner
        rate_hz = self._rate_hz
        rest = joiner.finish(pause_after_s, last=end.last and not self._plan.job.part.more)
        end_s = self._before_s + joiner.end / rate_hz
        words: tuple[WordTimes, ...] | None = None
        if self._plan.words:
            words = () if clock is None else self._tell_words(clock, end_s)
        self._totals.add(
            UtteranceResult(
                codes,
                end.finish_reason,
                pause_after_s=pause_after_s,
                trace=end.trace,
                backtracks=end.backtracks,
                phonemes=planned.phonemes,
                takes=end.ranked,
                text=planned.text,
                start_s=self._before_s + joiner.begin / rate_hz,
                duration_s=(joiner.end - joiner.begin) / rate_hz,
                trimmed_s=joiner.trimmed / rate_hz,
                frame_s=self._frame_s,
                rate=planned.rate,
                words=words,
                sound_after_s=self._sound_after_s(end.spoken),
                memory=end.memory,
                growths=end.growths,
                voice=planned.voice,
            ),
            end.ar_s,
        )
        self._number += 1
        return rest

    def _sound_after_s(self, spoken: int | None) -> float | None:
        """Return for how long the utterance sounds behind its last word, at frame ``spoken``."""
        head = self._speech.model.config.alignment
        if spoken is None or head is None:
            return None
        joiner = self._joiner
        spoken_s = (spoken + head.lead_frames) * self._frame_s
        sound_s = (joiner.end - joiner.begin + joiner.trimmed) / self._rate_hz
        return round(max(0.0, sound_s - spoken_s), 4)

    def _new_clock(self, number: int) -> WordClock | None:
        """Return the clock of an utterance of the plan, if timestamps are asked for."""
        plan = self._plan
        head = self._speech.model.config.alignment
        if head is None or not plan.words:
            return None
        return WordClock(
            plan.words[number],
            plan.utterances[number].phonemes,
            plan.lengths[number],
            lead_frames=head.lead_frames,
            with_phonemes=plan.job.report.timestamps == "phoneme",
            voice=plan.speakers[number].voice.name,
        )

    def _tell_words(self, clock: WordClock, end_s: float | None = None) -> tuple[WordTimes, ...]:
        """Return the words that have begun, all if their sound ends; what is new is told next."""
        joiner = self._joiner
        rate_hz = self._rate_hz
        if end_s is None and not joiner.sounding:
            return ()
        start_s = self._before_s + joiner.begin / rate_hz
        trimmed_s = joiner.trimmed / rate_hz
        words = clock.words(self._number, start_s, trimmed_s, self._frame_s, end_s)
        self._events.add_words(words)
        return words

    @property
    def _frame_s(self) -> float:
        """How long a frame of the utterance sounds."""
        return 1.0 / (self._speech.codec.config.frame_rate_hz * self._rate)

    def _filled(self, chunk: AudioChunk, *, last: bool = False) -> AudioChunk:
        """Return a chunk with all that is to be told now."""
        self._playback.add(len(chunk.samples) / self._rate_hz)
        self._events.move_to(chunk)
        chunk.result = None
        if last:
            chunk.result = self._totals.result(
                self._plan,
                self._playback,
                audio_s=self._joiner.samples / self._rate_hz,
                pause_owed_s=self._joiner.pending_s,
            )
        return chunk


def replay(
    result: SpeechResult,
    decoder: NarStage | AudioProcess,
    playback: Playback,
    sample_rate_hz: int,
) -> Iterator[AudioChunk]:
    """Yield the audio of a speech once more: the same samples, the last chunk with the result."""
    queue_s = monotonic() - playback.submitted_s
    joiner = Joiner(sample_rate_hz, result.params.pause_s)

    def chunk(samples: Samples, result: SpeechResult | None = None) -> AudioChunk:
        playback.add(len(samples) / sample_rate_hz)
        return AudioChunk(samples, sample_rate_hz, result)

    for number, utterance in enumerate(result.utterances):
        samples = _NO_SAMPLES
        known = UtteranceSpec.known(utterance)
        with closing(decoder.begin(known, utterance.codes.shape[1])) as sounds:
            sounds.feed(ar_codes_of(utterance), True)
            for decoded in sounds:
                if len(samples):
                    yield chunk(samples)
                samples = joiner.push(decoded.samples, utterance.rate)
        last = number + 1 == len(result.utterances)
        samples = np.concatenate([samples, joiner.finish(utterance.pause_after_s, last=last)])
        total_s = monotonic() - playback.submitted_s
        timings = Timings(queue_s, 0.0, 0.0, 0.0, total_s - queue_s, total_s)
        yield chunk(samples, replace(result, timings=timings) if last else None)
