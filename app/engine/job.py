"""A request as the engine sees it, and what it gives back. Loads without torch."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from samplers.knobs.params import SamplingParams

FinishReason = Literal["stop", "length", "stuck", "cancelled", "error"]
"""Why a speech or an utterance ended."""

GRAVITY: Final[tuple[FinishReason, ...]] = ("stop", "length", "stuck", "cancelled", "error")
"""The gravest last: of several, that one is told."""

NarPlan = Literal["chunks", "whole", "windows"]
"""How much of an utterance the finer levels draw at a time.

`chunks` give the codes of the whole, where no frame sees a later block; `windows` do not.
"""

Samples = NDArray[np.float32]
"""``[N]`` in [-1, 1], mono."""


TraceColumns = Mapping[str, NDArray[Any]]
"""``[N]`` a field of `samplers.ar.trace.Record`, one entry a token drawn."""


@dataclass(frozen=True, slots=True)
class SpeechJob:
    """One request: what to say and how.

    Args:
        id: Unique among all jobs.
        text: As the caller wrote it.
        params: The very object that the caller's request is; never copied field by field.
        voice: A voice's name; none is the model's first.
        language: None is the voice's.
        max_duration_s: Longest speech, pauses not counted; None is by the length of the text.
        trace: Whether to record what was seen and done at every token of the AR.
        before: What earlier jobs spoke of the same speech, which this one goes on with: its
            utterances are numbered after those, and the limit, the context and the pauses count
            them in. None begins a speech.
        more: Whether a later job may go on with it: a pause that the text asks for at the end is
            then owed and not given.
        owner: Who asks, as a short id of the key; empty where no keys are asked for. Decides which
            uploaded voices there are.
        priority: Who comes first when several wait: the smaller.
        asker: Whose share of rows, places and kept responses it takes: the owner, or the address
            where no keys are asked for.
        speed: How fast it will be played; at less than 1 it lasts longer than it is spoken.
    """

    id: str
    text: str
    params: SamplingParams
    voice: str | None = None
    language: str | None = None
    max_duration_s: float | None = None
    trace: bool = False
    before: "SpeechResult | None" = None
    more: bool = False
    owner: str = ""
    priority: int = 0
    asker: str = ""
    speed: float = 1.0


@dataclass(frozen=True, slots=True)
class Timings:
    """Where the seconds of a job went; the stages need not add up to the total.

    Args:
        queue_s: From its submission to its first step, reading the text left out.
        text_s: Reading the text.
        ar_s: Steps of level 0 that it took part in.
        nar_s: The finer levels.
        codec_s: The codec.
        total_s: From its submission to its end.
        first_audio_s: From its submission to its first sound.
        underrun_s: That a listener who starts at the first sound would have waited amid it.
        expected_first_audio_s: From its submission to its first sound, as forecast when its text
            was read; 0 where nothing was forecast.
    """

    queue_s: float
    text_s: float
    ar_s: float
    nar_s: float
    codec_s: float
    total_s: float
    first_audio_s: float = 0.0
    underrun_s: float = 0.0
    expected_first_audio_s: float = 0.0

    def __add__(self, other: "Timings") -> "Timings":
        """Return the seconds of both; the first sound is that of the first that has any."""
        both = Timings(
            *(getattr(self, one.name) + getattr(other, one.name) for one in fields(self))
        )
        return replace(
            both,
            first_audio_s=self.first_audio_s or other.first_audio_s,
            expected_first_audio_s=self.expected_first_audio_s or other.expected_first_audio_s,
        )


BacktrackCause = Literal["loop", "silence", "sequence"]


@dataclass(frozen=True, slots=True)
class Backtrack:
    """One time that an utterance was taken back.

    Args:
        cause: What was found: a loop, too long a silence, or a sequence of `ban_sequences`.
        frames: How many frames there were.
        kept: How many of them were kept.
        code: What had been drawn next, and is now less likely there.
    """

    cause: BacktrackCause
    frames: int
    kept: int
    code: int


@dataclass(frozen=True, slots=True)
class RankedTake:
    """One of several ways that an utterance was drawn in from beginning to end.

    Args:
        score: What it was ranked by, nats a code: see `samplers.ranking` for takes of `best_of`,
            `samplers.ops.beam` for beams.
        frames: How many it had.
        finish_reason: Why it ended.
        kept: Whether it is the one that is heard.
    """

    score: float
    frames: int
    finish_reason: FinishReason
    kept: bool


@dataclass(frozen=True, slots=True)
class SpokenUtterance:
    """What became of one piece of the text.

    Args:
        codes: ``[T, K]`` int16.
        finish_reason: Why its AR ended.
        pause_after_s: Silence that the text asks for after it; None leaves it to `pause_s`.
        trace: Only where the job asked for it; empty for an utterance that is a mere pause.
        backtracks: In order.
        phonemes: What was read; empty for a mere pause.
        takes: All ways that it was drawn in, if there were several.
    """

    codes: NDArray[np.int16]
    finish_reason: FinishReason
    pause_after_s: float | None = None
    trace: TraceColumns | None = None
    backtracks: tuple[Backtrack, ...] = ()
    phonemes: str = ""
    takes: tuple[RankedTake, ...] = ()


@dataclass(frozen=True, slots=True)
class SpeechResult:
    """What became of a job, or of several that spoke one speech.

    Args:
        job_id: The job's.
        finish_reason: Of all utterances, the gravest: `stuck`, then `length`, then `stop`.
        seed: What the caller sets to hear the same again.
        params: Every knob as it was used, presets and defaults filled in.
        voice: The voice's name.
        language: As spoken.
        codes_sha256: Of all codes ``[T, K]`` in order, as little-endian int16.
        frames: T over all utterances.
        audio_s: Seconds of sound given, pauses included.
        timings: Where the time went.
        utterances: One a piece of the text, in order.
        nar: How much the finer levels drew at a time.
        decoder: What made sound of the codes: `codec` or `vocos`.
        pause_owed_s: Silence between this and what a later job speaks of the same speech.
    """

    job_id: str
    finish_reason: FinishReason
    seed: int
    params: SamplingParams
    voice: str
    language: str
    codes_sha256: str
    frames: int
    audio_s: float
    timings: Timings
    utterances: tuple[SpokenUtterance, ...] = ()
    nar: NarPlan = "chunks"
    decoder: str = "codec"
    pause_owed_s: float = 0.0

    @property
    def backtracks(self) -> int:
        """How often an utterance was taken back."""
        return sum(len(utterance.backtracks) for utterance in self.utterances)

    @property
    def real_time_factor(self) -> float:
        """Seconds of work a second of audio; under 1 is faster than speech."""
        return (self.timings.total_s - self.timings.queue_s) / max(self.audio_s, 1e-9)


@dataclass(frozen=True, slots=True)
class AudioChunk:
    """Samples that belong together; the last chunk of a job carries its result."""

    samples: Samples
    sample_rate_hz: int
    result: SpeechResult | None = None


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a job is: frames of the utterance now being decoded, and of how many utterances."""

    utterance: int = 0
    utterances: int = 0
    frames: int = 0
