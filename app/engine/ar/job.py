"""Level 0 of one job: its utterances one after the other, each with the context of those before."""

import math
import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from app.engine.ar.masked import MaskedUtterance
from app.engine.ar.sequence_group import SequenceOrGroup
from app.engine.ar.utterance import ArUtterance, KnownUtterance
from app.engine.errors import SpeechError
from app.engine.interface import Plan
from app.engine.job import FinishReason, Progress, SpeechResult, UtteranceResult
from app.engine.messages import ArMessage, FramesReady, UtteranceDone, UtteranceStarted
from app.engine.utterance import ContextUtterance, UtteranceSpec, ar_codes_of
from models.checkpoints.sources import SpeechModel
from models.prefix_cache import NullKey, VoiceKey
from models.stack.transformer import MAX_POSITIONS
from models.text import FrontEnd, Utterance
from models.text.tokenizer import joined

# Generous: speech has 10 to 15 phonemes a second, so a sane utterance ends long before.
SECONDS_A_PHONEME = 0.16
SECONDS_MORE = 1.0
LONGEST_UTTERANCE_S = 60.0

OnMessage = Callable[[ArMessage], None]


class ArJob:
    """State of a job's level 0. `app.engine.ar.stage.ArStage` runs it."""

    def __init__(
        self,
        speech: SpeechModel,
        front_end: FrontEnd,
        silent: Sequence[int],
        plan: Plan,
        on_message: OnMessage,
    ) -> None:
        self.plan = plan
        # The one being sampled; None between two, and before the first
        self.utterance: SequenceOrGroup | MaskedUtterance | None = None
        self.over = False
        self.error: SpeechError | None = None
        # Frames of all utterances that are ready for synthesis: final ones, but where the finer
        # levels need whole utterances only those of utterances that have ended
        self.frames = 0
        self._on_message = on_message
        self._pending = list[ArMessage]()
        self._front_end = front_end
        self._silent = silent
        self._model = speech.model
        self._block_frames = speech.model.config.block_frames
        self._frame_rate_hz = speech.codec.config.frame_rate_hz
        language = speech.model.config.languages.index(plan.language)
        self._voice = VoiceKey(plan.voice.owner, plan.voice.key, language)
        before = plan.job.before
        limit_s = plan.job.max_duration_s
        self._speaker = before.utterances[-1].voice if before and before.utterances else None
        self._frames_left: float = (  # of the sound: at the rates that the text asks for
            sys.maxsize if limit_s is None else math.ceil(limit_s * self._frame_rate_hz)
        ) - (before.sound_frames if before else 0)
        self._first = len(before.utterances) if before else 0
        self._context: deque[ContextUtterance] = deque(maxlen=plan.params.context_utterances)
        self._context.extend(self._earlier(before))
        self._number = -1
        self._ended_frames = self._sampled_frames = self._emitted = 0
        self._ended_sound_frames = 0.0
        self._streams = plan.nar == "chunks" and plan.decoder == "codec"
        self._inputs: UtteranceSpec | None = None
        self._ar_s = 0.0

    @property
    def keys(self) -> tuple[VoiceKey, NullKey]:
        """The prefix cache's keys of what its prefixes share."""
        return self._voice, NullKey(self._voice.language)

    @property
    def ready_s(self) -> float:
        """Seconds of sound of the frames that are ready for synthesis, at their rates."""
        current: float = self.frames - self._ended_frames
        if current:
            current /= self.plan.utterances[self._number].rate
        return (self._ended_sound_frames + current) / self._frame_rate_hz

    @property
    def progress(self) -> Progress:
        """The current utterance and its frames so far."""
        return Progress(max(0, self._number), len(self.plan.utterances), self._sampled_frames)

    def next_inputs(self) -> UtteranceSpec | None:
        """Go on to the next utterance that has phonemes; None if there is none.

        Pauses before it, and its own beginning, are emitted with the next finished blocks.
        """
        if not self.over and self._frames_left <= 0:  # only where earlier jobs used the limit up
            self.over = True
            self._pending.append(UtteranceDone("length", last=True, cut=True, within=False))
        traced = self.plan.job.trace
        while not self.over:
            self._number += 1
            utterance = self.plan.utterances[self._number]
            if utterance.phonemes:
                self._inputs = self._inputs_of(utterance)
                # So that the audio stage can prefill meanwhile.
                self._pending.append(UtteranceStarted(self._inputs))
                if (reason := self._kept_whole(self._inputs)) is None:
                    return self._inputs
                known = KnownUtterance(reason, self._inputs.kept, traced=traced)
                self._pending.append(self._ended(known))
            else:
                self._pending.append(self._ended(KnownUtterance("stop", traced=traced)))
        return None

    def _kept_whole(self, inputs: UtteranceSpec) -> FinishReason | None:
        """Return why an utterance ended of which no frame is sampled; None if some are."""
        kept = self.plan.job.kept
        if kept is None or inputs.kept is None:
            return None
        if inputs.utterance < kept.whole:
            return kept.utterances[inputs.utterance].finish_reason
        return "length" if len(inputs.kept.codes) >= inputs.max_frames else None

    def emit_finished_blocks(self, step_s: float) -> None:
        """After a step of so many seconds, pass on frames that became final, in whole blocks.

        With an utterance that has ended goes the rest of its frames.
        """
        if self._pending:
            for message in self._pending:
                self._on_message(message)
            self._pending.clear()
        if (utterance := self.utterance) is None:
            return
        self._ar_s += step_s
        if utterance.error is not None:
            self.fail(utterance.error)
            return
        self._sampled_frames = self._ended_frames + len(utterance)
        if utterance.finish_reason is not None:
            self.utterance = None
            self._on_message(self._ended(utterance))
            return
        final = utterance.final
        final -= final % self._block_frames
        if final > self._emitted:
            codes = utterance.ar(self._emitted, final)
            self._emitted = final
            if self._streams:
                self.frames = self._ended_frames + final
            self._on_message(FramesReady(codes))

    def fail(self, error: SpeechError) -> None:
        """End the job with an error."""
        self.over = True
        self.error = error
        self.utterance = None

    def _ended(self, utterance: ArUtterance) -> UtteranceDone:
        """Count an utterance that has ended; return what is told of it."""
        assert utterance.finish_reason is not None
        if self._inputs is not None:  # else a pause, which has no frames
            codes = utterance.ar()
            self._context.append(ContextUtterance(self._inputs.phoneme_ids, codes))
            self._ended_frames += len(codes)
            self.frames = self._sampled_frames = self._ended_frames
            sounding = len(codes) / self.plan.utterances[self._number].rate
            self._frames_left -= sounding
            self._ended_sound_frames += sounding
        # The job ends, too, if this was its last utterance or the limit is reached.
        last = self._number + 1 == len(self.plan.utterances)
        cut = not last and self._frames_left <= 0
        self.over = last or cut
        done = UtteranceDone(
            utterance.finish_reason,
            utterance.ar(self._emitted),
            self._ar_s,
            last=self.over,
            cut=cut,
            backtracks=utterance.backtracks,
            trace=utterance.trace,
            ranked=utterance.ranked,
            spoken=utterance.spoken,
            memory=utterance.memory,
        )
        # A pause that follows has none
        self._inputs = None
        self._ar_s = 0.0
        self._emitted = 0
        return done

    def _inputs_of(self, utterance: Utterance) -> UtteranceSpec:
        plan = self.plan
        config = self._model.config
        ids = self._front_end.encode(utterance.phonemes, plan.language)
        voice, prompt, said = plan.speakers[self._number]
        if utterance.voice != self._speaker:
            self._context.clear()  # of another speaker
            self._speaker = utterance.voice
        inputs = UtteranceSpec(
            ids,
            plan.params,
            plan.seed,
            self._first + self._number,
            max_frames=min(
                math.ceil(self._frames_left * utterance.rate),
                longest(len(ids), self._frame_rate_hz),
                (config.frames_a_symbol or sys.maxsize) * len(joined([said, ids])),
            ),
            prompt=prompt,
            said=said,
            language=self._voice.language,
            trace=plan.job.trace,
            top_logprobs=plan.job.top_logprobs,
            silent=self._silent,
            context=tuple(self._context),
            voice=VoiceKey(voice.owner, voice.key, self._voice.language),
            aligned=plan.job.timestamps != "none",
            kept=self._kept(),
        )
        while inputs.context and inputs.ar_positions(self._model) > MAX_POSITIONS:
            inputs = replace(inputs, context=inputs.context[1:])
        return inputs

    def _kept(self) -> UtteranceResult | None:
        """Return what an earlier take has sampled of the current utterance."""
        kept = self.plan.job.kept
        number = self._first + self._number
        if kept is None or number >= len(kept.utterances):
            return None
        spoken = kept.utterances[number]
        return spoken if len(spoken.codes) or number < kept.whole else None

    def _earlier(self, before: SpeechResult | None) -> Iterator[ContextUtterance]:
        """Yield the last utterances of earlier jobs of the same speech, as context."""
        if before is None or not (wanted := self.plan.params.context_utterances):
            return
        for spoken in [one for one in before.utterances if one.phonemes][-wanted:]:
            ids = self._front_end.encode(spoken.phonemes, self.plan.language)
            yield ContextUtterance(ids, ar_codes_of(spoken))


def longest(phonemes: int, frame_rate_hz: float) -> int:
    """Return the most frames an utterance may have: 0.16 s a phoneme and 1 s, at most 60 s."""
    seconds = SECONDS_A_PHONEME * phonemes + SECONDS_MORE
    return math.ceil(min(seconds, LONGEST_UTTERANCE_S) * frame_rate_hz)
