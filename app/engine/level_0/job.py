"""Level 0 of one job: its utterances one after the other, each from what was said before."""

import math
import sys
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from app.engine.errors import SpeechError
from app.engine.interface import Plan
from app.engine.job import (
    Backtrack,
    FinishReason,
    Progress,
    RankedTake,
    SpeechResult,
    TraceColumns,
)
from app.engine.utterance import ContextUtterance, Level0Chunk, UtteranceEnd, UtteranceInput
from models.checkpoints import SpeechModel
from models.prefix_cache import NullKey, VoiceKey
from models.text import FrontEnd, Utterance

# Generous: speech has 10 to 15 phonemes a second, so a sane utterance ends long before.
SECONDS_A_PHONEME = 0.16
SECONDS_MORE = 1.0
LONGEST_UTTERANCE_S = 60.0


class UtteranceDraw(Protocol):
    """Level 0 of one utterance while it is drawn, in whichever way."""

    finish_reason: FinishReason | None

    @property
    def error(self) -> SpeechError | None:
        """What broke, if anything did."""

    @property
    def final(self) -> int:
        """How many of the first frames will not change."""

    @property
    def backtracks(self) -> tuple[Backtrack, ...]:
        """Every time that it was taken back."""

    @property
    def trace(self) -> TraceColumns | None:
        """What was seen and done, if the piece asks for it."""

    @property
    def ranked(self) -> tuple[RankedTake, ...]:
        """All ways that it was drawn in, if there were several."""

    def __len__(self) -> int:
        """How many frames there are."""

    def codes(self, start: int = 0, end: int | None = None) -> Tensor:
        """Return ``[n]`` int64 of some of them."""


class Level0Job:
    """A job's level 0. It keeps the account; `app.engine.level_0.job_batch` does the work.

    Attributes:
        plan: What is spoken.
        utterance: What is being drawn; None between two utterances, and before the first.
        over: Whether nothing is left to draw.
        error: What broke, if something did; it is then over.
        frames: How many sound can be made of, those of earlier utterances included; more may be
            there that are not final, or of use only at the utterance's end.
    """

    def __init__(
        self, speech: SpeechModel, plan: Plan, *, front_end: FrontEnd, silent: Tensor
    ) -> None:
        """Begin with nothing drawn.

        Args:
            speech: The model.
            plan: What to speak.
            front_end: Gives the ids of phonemes.
            silent: ``(V,)`` bool, the codes of silence.
        """
        self.plan = plan
        self.utterance: UtteranceDraw | None = None
        self.over = False
        self.error: SpeechError | None = None
        self.frames = 0
        self._front_end, self._silent = front_end, silent
        self._device = speech.model.separator.device
        self._block_frames = speech.model.config.block_frames
        self._frame_rate_hz = speech.codec.config.frame_rate_hz
        language = speech.model.config.languages.index(plan.language)
        self._voice = VoiceKey(plan.voice.owner, plan.voice.key, language)
        before, limit_s = plan.job.before, plan.job.max_duration_s
        self._frames_left = (
            sys.maxsize if limit_s is None else math.ceil(limit_s * self._frame_rate_hz)
        ) - (before.frames if before else 0)
        self._first = len(before.utterances) if before else 0
        self._said: deque[ContextUtterance] = deque(maxlen=plan.params.context_utterances)
        self._said.extend(self._said_by(before))
        self._news: list[Level0Chunk] = []
        self._number = -1
        self._frames_ended = self._drawn = 0
        self._streams = plan.nar == "chunks" and plan.decoder == "codec"
        self._inputs: UtteranceInput | None = None
        self._given = 0
        self._ar_s = 0.0

    @property
    def keys(self) -> tuple[VoiceKey, NullKey]:
        """What the shared parts of its prefixes are kept under."""
        return self._voice, NullKey(self._voice.language)

    @property
    def progress(self) -> Progress:
        """How far it is."""
        return Progress(max(0, self._number), len(self.plan.utterances), self._drawn)

    def news(self) -> Sequence[Level0Chunk]:
        """Return what became final since the last call."""
        news, self._news = self._news, []
        return news

    def next_inputs(self) -> UtteranceInput | None:
        """Return the next utterance that has something to draw; None if there is none."""
        if not self.over and self._frames_left <= 0:  # only where earlier jobs took them all
            self.over = True
            self._tell(None, UtteranceEnd("length", last=True, cut=True))
        while not self.over:
            self._number += 1
            utterance = self.plan.utterances[self._number]
            if utterance.phonemes:
                self._inputs = self._inputs_of(utterance)
                self._given, self._ar_s = 0, 0.0
                self._tell(self._number)  # so that the voice can read its prefixes meanwhile
                return self._inputs
            trace: TraceColumns | None = {} if self.plan.job.trace else None
            self._end("stop", trace=trace)
        return None

    def collect(self, step_s: float) -> None:
        """Note what the utterance has that is new, after a step that took so many seconds."""
        utterance = self.utterance
        if utterance is None:
            return
        self._ar_s += step_s
        if utterance.error is not None:
            self.fail(utterance.error)
            return
        self._drawn = self._frames_ended + len(utterance)
        if utterance.finish_reason is None:
            # Only whole blocks are of use to anybody.
            final = utterance.final - utterance.final % self._block_frames
            if final > self._given:
                self._tell(self._number, codes=utterance.codes(self._given, final))
                self._given = final
                if self._streams:
                    self.frames = self._frames_ended + final
            return
        self._close(utterance, utterance.finish_reason)

    def fail(self, error: SpeechError) -> None:
        """Let nothing follow, because something broke."""
        self.over, self.error, self.utterance = True, error, None

    def _close(self, utterance: UtteranceDraw, reason: FinishReason) -> None:
        codes = utterance.codes()
        assert self._inputs is not None
        self._said.append(ContextUtterance(self._inputs.phoneme_ids, codes))
        self._frames_ended += len(codes)
        self.frames = self._frames_ended
        self._frames_left -= len(codes)
        self.utterance = None
        self._end(
            reason,
            codes[self._given :],
            backtracks=utterance.backtracks,
            trace=utterance.trace,
            takes=utterance.ranked,
        )
        self._inputs = None

    def _end(
        self,
        reason: FinishReason,
        codes: Tensor | None = None,
        *,
        backtracks: tuple[Backtrack, ...] = (),
        trace: TraceColumns | None = None,
        takes: tuple[RankedTake, ...] = (),
    ) -> None:
        """Tell the end of an utterance, and whether it is that of the job."""
        last = self._number + 1 == len(self.plan.utterances)
        cut = not last and self._frames_left <= 0
        self.over = last or cut
        ending = UtteranceEnd(reason, self.over, cut, backtracks, trace, takes, self._ar_s)
        self._tell(self._number, ending, codes)

    def _tell(
        self, number: int | None, ending: UtteranceEnd | None = None, codes: Tensor | None = None
    ) -> None:
        if codes is None:
            codes = torch.zeros(0, dtype=torch.int64)
        # On the host: the voice has a queue of its own on a GPU.
        self._news.append(Level0Chunk(number, self._inputs, codes.cpu(), ending))

    def _inputs_of(self, utterance: Utterance) -> UtteranceInput:
        ids, plan = self._front_end.encode(utterance.phonemes), self.plan
        return UtteranceInput(
            ids,
            plan.params,
            plan.seed,
            self._first + self._number,
            max_frames=min(self._frames_left, longest(len(ids), self._frame_rate_hz)),
            prompt=plan.prompt,
            language=self._voice.language,
            trace=plan.job.trace,
            silent=self._silent,
            before=tuple(self._said),
            voice=self._voice,
        )

    def _said_by(self, before: SpeechResult | None) -> Iterator[ContextUtterance]:
        """Return the utterances of earlier jobs that the AR goes on from."""
        if before is None or not (wanted := self.plan.params.context_utterances):
            return
        for spoken in [one for one in before.utterances if one.phonemes][-wanted:]:
            codes = torch.from_numpy(spoken.codes[:, 0].astype(np.int64)).to(self._device)
            yield ContextUtterance(self._front_end.encode(spoken.phonemes), codes)


def longest(phonemes: int, frame_rate_hz: float) -> int:
    """Return how many frames an utterance may have: 0.16 s a phoneme and 1 s, at most 60 s."""
    seconds = SECONDS_A_PHONEME * phonemes + SECONDS_MORE
    return math.ceil(min(seconds, LONGEST_UTTERANCE_S) * frame_rate_hz)
