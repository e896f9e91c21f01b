"""What AR tells the audio stage of a job, in order: frozen, as another thread reads it.

An utterance is `UtteranceStarted`, unless it is a pause, then its frames are `FramesReady` as they
become final, then it is `UtteranceDone`. A job whose AR fails ends with `JobFailed`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import torch
from torch import Tensor

from app.engine.errors import SpeechError
from app.engine.results import FinishReason, RankedTake, SamplerMemory, TraceColumns
from app.engine.utterance import TextGrowth, UtteranceSpec
from models.text import Utterance
from models.text.words import WordSpan
from models.voices.voice import Voice
from samplers.ar.backtrack import Backtrack


def _no_codes() -> Tensor:
    return torch.zeros(0, dtype=torch.int64)


@dataclass(frozen=True, slots=True)
class UtteranceStarted:
    """An utterance begins: what it is conditioned on can be prefilled."""

    kind: ClassVar[Literal["started"]] = "started"
    inputs: UtteranceSpec


@dataclass(frozen=True, slots=True)
class FramesReady:
    """Frames of the utterance that are final, whole blocks."""

    kind: ClassVar[Literal["frames"]] = "frames"
    codes: Tensor  # ``[n]`` int64 on the host
    grown: tuple[TextGrowth, ...] = ()  # of its text, up to the last of the frames


@dataclass(frozen=True, slots=True)
class UtteranceDone:
    """The utterance has ended; a pause only ends."""

    kind: ClassVar[Literal["done"]] = "done"
    finish_reason: FinishReason
    # ``[n]`` int64 on the host: the frames that were not ready before
    codes: Tensor = field(default_factory=_no_codes)
    grown: tuple[TextGrowth, ...] = ()  # of its text, up to the last of the frames
    growths: tuple[int, ...] = ()  # the frames of all of them
    ar_s: float = 0.0  # seconds of the steps that it took part in
    last: bool = False  # whether the job ends with it
    cut: bool = False  # whether the job's limit left no room for the utterances after it
    # False: it only ends the job, and stands for no utterance of the plan. The limit was used up
    # before the first one, or the end of an open text had no words
    in_plan: bool = True
    backtracks: tuple[Backtrack, ...] = ()
    trace: TraceColumns | None = None  # of every token, if it was asked for
    ranked: tuple[RankedTake, ...] = ()  # each sequence, if several were sampled to their ends
    # The first frame behind the text, by the alignment, if it was followed
    spoken: int | None = None
    memory: SamplerMemory | None = None  # of the sampler, if it has one that is worth keeping


@dataclass(frozen=True, slots=True)
class MorePlanned:
    """More of the text is known; what is told before it holds for these utterances, too."""

    kind: ClassVar[Literal["planned"]] = "planned"
    utterances: tuple[Utterance, ...]  # of all of the text so far
    left_out: tuple[str, ...] = ()  # of it, as it was written
    # Of each utterance: who speaks it, and with timestamps its words and what its symbols stand for
    voices: tuple[Voice, ...] = ()
    words: tuple[tuple[WordSpan, ...], ...] = ()
    lengths: tuple[Sequence[int], ...] = ()


@dataclass(frozen=True, slots=True)
class JobFailed:
    """The job ends with an error."""

    kind: ClassVar[Literal["failed"]] = "failed"
    error: SpeechError


ArMessage = UtteranceStarted | FramesReady | UtteranceDone | MorePlanned
"""What AR tells of an utterance."""
