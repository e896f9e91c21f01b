"""Level 0 of one job: its utterances one after the other, each with the context of those before."""

import math
import sys
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Sequence

from app.engine.ar.masked import MaskedUtterance
from app.engine.ar.sequence import ArSequence
from app.engine.ar.sequence_group import SequenceOrGroup
from app.engine.ar.spec_builder import SpecBuilder
from app.engine.ar.utterance import ArUtterance, KnownUtterance
from app.engine.core import Plan, Progress
from app.engine.errors import SpeechError
from app.engine.messages import (
    ArMessage,
    FramesReady,
    MorePlanned,
    UtteranceDone,
    UtteranceStarted,
)
from app.engine.results import FinishReason
from app.engine.utterance import TextGrowth, UtteranceSpec
from models.checkpoints.sources import SpeechModel
from models.prefix_cache import NullKey, VoiceKey
from models.text import FrontEnd

OnMessage = Callable[[ArMessage], None]


class FrameCount:
    """The frames of a job's level 0.

    Attributes:
        left: How many its sound may still have, at the rates that the text asks for.
        ready: Those that are ready for synthesis, of all utterances: final ones, but where the
            NAR levels need whole utterances only those of utterances that have ended.
        sampled: Those of all utterances, final or not.
        ended: Those of utterances that have ended.
        emitted: Those of the current utterance that were passed on.
    """

    def __init__(self, plan: Plan, frame_rate_hz: float) -> None:
        self._frame_rate_hz = frame_rate_hz
        limit_s = plan.job.max_duration_s
        before = plan.job.part.before
        whole = sys.maxsize if limit_s is None else math.ceil(limit_s * frame_rate_hz)
        self._whole: float = whole
        self.left: float = whole - (before.sound_frames if before else 0)
        self.ready = 0
        self.sampled = 0
        self.ended = 0
        self.emitted = 0
        self._ended_sound = 0.0  # frames that the sound of those that have ended lasts

    def extend(self, plan: Plan) -> None:
        """Count with the limit of a plan of more of the text."""
        limit_s = plan.job.max_duration_s
        if limit_s is not None:
            whole = math.ceil(limit_s * self._frame_rate_hz)
            self.left += whole - self._whole
            self._whole = whole

    def end(self, frames: int, rate: float) -> None:
        """Count an utterance that has ended, at its tempo."""
        self.ended += frames
        self.ready = self.sampled = self.ended
        self.left -= frames / rate
        self._ended_sound += frames / rate

    def ready_s(self, rate: float) -> float:
        """Return the seconds of sound of what is ready; ``rate`` is the current utterance's."""
        current: float = self.ready - self.ended
        if current:
            current /= rate
        return (self._ended_sound + current) / self._frame_rate_hz


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
        self._on_message = on_message
        self._pending = list[ArMessage]()
        self._specs = SpecBuilder(speech, front_end, silent, plan)
        self._count = FrameCount(plan, speech.codec.config.frame_rate_hz)
        self._block_frames = speech.model.config.block_frames
        self._streams = plan.nar == "chunks" and plan.decoder == "codec"
        self._number = -1
        # Inputs of the utterance, with more and more of its text; none of a pause
        self._versions: list[UtteranceSpec] = []
        self._grown = 0  # growths of the text that the sound knows of
        # Those that level 0 has not come to
        self.later = deque[UtteranceSpec]()
        self._ar_s = 0.0

    @property
    def keys(self) -> tuple[VoiceKey, NullKey]:
        """The prefix cache's keys of what its prefixes share."""
        voice = self._specs.voice
        return voice, NullKey(voice.language)

    @property
    def frames(self) -> int:
        """Frames of all utterances that are ready for synthesis; see `FrameCount`."""
        return self._count.ready

    @property
    def ready_s(self) -> float:
        """Seconds of sound of the frames that are ready for synthesis, at their rates."""
        utterances = self.plan.utterances
        return self._count.ready_s(utterances[self._number].rate if utterances else 1.0)

    @property
    def progress(self) -> Progress:
        """The current utterance and its frames so far."""
        return Progress(max(0, self._number), len(self.plan.utterances), self._count.sampled)

    @property
    def waits(self) -> bool:
        """Whether nothing can be sampled before more of its text is known."""
        if self.over or not self.plan.job.part.is_open:
            return False
        if self.utterance is None:
            return self._number + 1 >= len(self.plan.utterances)
        return isinstance(self.utterance, ArSequence) and self.utterance.waits

    def extend(self, plan: Plan) -> None:
        """Go on with a plan of more of the text; what is sampled holds in it, too."""
        self.plan = plan
        self._specs.extend(plan)
        self._count.extend(plan)
        voices = tuple(one.voice for one in plan.speakers)
        more = MorePlanned(plan.utterances, plan.left_out, voices, plan.words, plan.lengths)
        self._pending.append(more)
        if self._versions:
            later = self._specs.later(self._number, len(self._versions))
            self._versions += later
            self.later += later

    def next_inputs(self) -> UtteranceSpec | None:
        """Go on to the next utterance that has phonemes; None if there is none.

        Pauses before it, and its own beginning, are emitted with the next finished blocks.
        """
        if not self.over and self._count.left <= 0:  # only where earlier jobs used the limit up
            self.over = True
            self._pending.append(UtteranceDone("length", last=True, cut=True, in_plan=False))
        traced = self.plan.job.report.trace
        while not self.over:
            if self._number + 1 >= len(self.plan.utterances):
                if not self.plan.job.part.is_open:  # and the end of the text had no words
                    self.over = True
                    self._pending.append(UtteranceDone("stop", last=True, in_plan=False))
                return None
            self._number += 1
            utterance = self.plan.utterances[self._number]
            if utterance.phonemes:
                self._versions = self._specs.build(self._number, self._count.left)
                inputs, *later = self._versions
                self.later = deque(later)
                # So that the audio stage can prefill meanwhile.
                self._pending.append(UtteranceStarted(inputs))
                if (reason := self._kept_whole(inputs)) is None:
                    return inputs
                known = KnownUtterance(reason, inputs.kept, traced=traced)
                self._pending.append(self._ended(known))
            else:
                self._pending.append(self._ended(KnownUtterance("stop", traced=traced)))
        return None

    def _kept_whole(self, inputs: UtteranceSpec) -> FinishReason | None:
        """Return why an utterance ended of which no frame is sampled; None if some are."""
        kept = self.plan.job.part.kept
        if kept is None or inputs.kept is None:
            return None
        if inputs.utterance < kept.whole:
            return kept.utterances[inputs.utterance].finish_reason
        return "length" if len(inputs.kept.codes) >= self._versions[-1].max_frames else None

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
        count = self._count
        count.sampled = count.ended + len(utterance)
        if utterance.finish_reason is not None:
            self.utterance = None
            self._on_message(self._ended(utterance))
            return
        final = utterance.final
        final -= final % self._block_frames
        if final > count.emitted:
            codes = utterance.ar_codes(count.emitted, final)
            count.emitted = final
            if self._streams:
                count.ready = count.ended + final
            self._on_message(FramesReady(codes, self._growths(utterance, final)))

    def _growths(self, utterance: ArUtterance, end: int) -> tuple[TextGrowth, ...]:
        """Return the growths that frames before one were drawn with, but those returned before."""
        if not utterance.growths:
            return ()
        since = self._grown
        frames = [frame for frame in utterance.growths[since:] if frame < end]
        self._grown += len(frames)
        later = self._versions[since + 1 : self._grown + 1]
        return tuple(
            TextGrowth(frame, inputs.phoneme_ids, inputs.begins)
            for frame, inputs in zip(frames, later, strict=True)
        )

    def fail(self, error: SpeechError) -> None:
        """End the job with an error."""
        self.over = True
        self.error = error
        self.utterance = None

    def _ended(self, utterance: ArUtterance) -> UtteranceDone:
        """Count an utterance that has ended; return what is told of it."""
        assert utterance.finish_reason is not None
        codes = utterance.ar_codes()
        if self._versions:  # else a pause, which has no frames
            self._specs.end(self._versions[-1], codes)
            self._count.end(len(codes), self.plan.utterances[self._number].rate)
        # The job ends, too, if this was its last utterance or the limit is reached.
        last = self._number + 1 == len(self.plan.utterances) and not self.plan.job.part.is_open
        cut = not last and self._count.left <= 0
        self.over = last or cut
        done = UtteranceDone(
            utterance.finish_reason,
            codes[self._count.emitted :],
            self._growths(utterance, len(codes)),
            tuple(utterance.growths[: bisect_left(utterance.growths, len(codes))]),
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
        self._versions = []
        self._grown = 0
        self._ar_s = 0.0
        self._count.emitted = 0
        return done
