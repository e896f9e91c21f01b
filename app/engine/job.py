"""A job of the engine, and its result. Loads without torch."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from samplers.knobs.params import SamplingParams

FinishReason = Literal["stop", "length", "stuck", "empty", "cancelled", "error"]
"""Why a speech or an utterance ended; `empty`: the stop was drawn before any frame."""

GRAVITY: Final[tuple[FinishReason, ...]] = (
    "stop",
    "length",
    "stuck",
    "empty",
    "cancelled",
    "error",
)
"""The finish reasons, the gravest last: of several, the gravest is reported."""

STOPPED: Final[frozenset[FinishReason]] = frozenset({"stop", "empty"})
"""The finish reasons of an utterance that drew its stop."""

NarPlan = Literal["chunks", "whole", "windows"]
"""How much of an utterance the finer levels are drawn from at a time.

`chunks`, for models whose frames see no later block, give the codes of the whole; `windows` do not.
"""

Samples = NDArray[np.float32]
"""``[N]`` in [-1, 1], mono."""

Codes = NDArray[np.int16]
"""``[T, K]``."""


USUAL_PHONEME_S: Final = 0.08
"""Usual seconds of speech a phoneme symbol: speech has 10 to 15 phonemes a second."""

TraceColumns = Mapping[str, NDArray[Any]]
"""Field of `samplers.ar.trace.Record` -> ``[N, ...]``, one entry a token drawn."""


Timestamps = Literal["none", "word", "phoneme"]
"""Whose times are told."""


@dataclass(frozen=True, slots=True)
class PhonemeTiming:
    """When a phoneme is heard, stress and length marks included; see `WordTiming`."""

    phoneme: str
    start_s: float
    end_s: float | None


@dataclass(frozen=True, slots=True)
class WordTiming:
    """When a word is heard, in the speech at speed 1.

    Args:
        word: As it was written, with its punctuation.
        end_s: When it ends; None while that is not known.
        missing: Whether the sound lacks it: the times are then those where it should be.
        phonemes: Its own, as far as they have begun; None if they were not asked for.
        spoken: The normalised words that are spoken for it.
    """

    utterance: int
    index: int
    word: str
    start_s: float
    end_s: float | None
    missing: bool = False
    phonemes: tuple[PhonemeTiming, ...] | None = None
    voice: str = ""
    spoken: str = ""


@dataclass(frozen=True, slots=True)
class KeptTake:
    """The beginning of an earlier take, which another goes on from.

    Args:
        utterances: Those that are kept, the last one as far as it is.
        whole: How many of them are kept whole, with their ends.
    """

    utterances: "tuple[SpokenUtterance, ...]"
    whole: int

    @property
    def frames(self) -> int:
        """How many frames are kept."""
        return sum(len(one.codes) for one in self.utterances)


@dataclass(frozen=True, slots=True)
class SpeechJob:
    """One request: what to say and how.

    Args:
        id: Unique among all jobs.
        params: The request itself, which is a `SamplingParams`; never copied field by field.
        voice: Name of a voice; None: the model's default.
        language: None: the voice's.
        max_duration_s: Longest speech without pauses, in seconds at the rates that the text asks
            for; None: by the length of the text.
        top_logprobs: How many of the likeliest codes the trace tells for each token.
        before: The result of earlier jobs of the same speech, which this job continues: its
            utterances are numbered after theirs, and they count for the limit, the context and the
            pauses. None: the job begins a speech.
        more: Whether a later job may continue it: a pause that the text asks for at its end is then
            left to that job, as `pause_owed_s` of the result.
        owner: Short id of the key; empty where no keys are required. Decides which uploaded voices
            the job can use.
        priority: Jobs of smaller priority begin first.
        asker: Whose share of rows, places and stored responses it takes: the owner, or the address
            where no keys are required.
        speed: The tempo of its playback; audio at less than 1 is longer than the speech.
        played: Whether the audio is played while it is made. Otherwise it is sent whole, and
            streams that are played go first.
        kept: What is not drawn but taken from an earlier take of the same text; None: nothing.
        pronunciations: What is spoken for words; goes before the entries of dictionaries.
        dictionaries: The operator's pronunciation dictionaries to use, in order.
    """

    id: str
    text: str
    params: SamplingParams
    voice: str | None = None
    language: str | None = None
    max_duration_s: float | None = None
    trace: bool = False
    top_logprobs: int = 0
    before: "SpeechResult | None" = None
    more: bool = False
    owner: str = ""
    priority: int = 0
    asker: str = ""
    speed: float = 1.0
    played: bool = True
    timestamps: Timestamps = "none"
    kept: KeptTake | None = None
    codes: bool = False
    pronunciations: Mapping[str, str] = field(default_factory=dict)
    dictionaries: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Timings:
    """Durations of a job in seconds; the stages need not add up to the total.

    Args:
        queue_s: From its submission to its first step, without `text_s`.
        ar_s: Steps of level 0 that it took part in.
        underrun_s: Stalls of a playback that begins with the first audio.
    """

    queue_s: float
    text_s: float
    ar_s: float
    nar_s: float
    codec_s: float
    total_s: float
    first_audio_s: float = 0.0
    underrun_s: float = 0.0

    def __add__(self, other: "Timings") -> "Timings":
        """Return the sums; that of the first audio is that of the first that has any."""
        both = Timings(
            *(getattr(self, one.name) + getattr(other, one.name) for one in fields(self))
        )
        return replace(both, first_audio_s=self.first_audio_s or other.first_audio_s)


BacktrackCause = Literal["loop", "silence", "sequence"]


@dataclass(frozen=True, slots=True)
class Backtrack:
    """One time that backtracking removed frames of an utterance.

    Args:
        cause: What was detected: a loop, too long a silence, or a sequence of `ban_sequences`.
        kept: How many of them were kept.
        code: The code of level 0 that followed those, which is penalised there now.
    """

    cause: BacktrackCause
    frames: int
    kept: int
    code: int


@dataclass(frozen=True, slots=True)
class RankedTake:
    """One of several complete hypotheses of an utterance.

    Args:
        score: Its score in nats a code: see `samplers.ranking` for `best_of`, `samplers.ops.beam`
            for beams.
    """

    score: float
    frames: int
    finish_reason: FinishReason
    kept: bool


@dataclass(frozen=True, slots=True)
class SamplerMemory:
    """What the sampler of level 0 knew at each length of an utterance, beside its codes.

    Args:
        mu: ``[T + 1]`` float32 bits, mirostat's state.
        last_act: ``[T + 1]`` int64, the frame at which entropix last acted.
    """

    mu: NDArray[np.float32]
    last_act: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class SpokenUtterance:
    """The result of one utterance.

    Args:
        codes: ``[T, K]`` int16.
        pause_after_s: Seconds of silence that the text asks for after it; None: `pause_s`.
        trace: None unless the job asked for it; empty for an utterance that is only a pause.
        phonemes: What was spoken; empty for an utterance that is only a pause.
        takes: All complete hypotheses, if there were several.
        text: Its words, normalised.
        start_s: Where it begins in the speech at speed 1, in seconds.
        duration_s: For how long it sounds, the pause after it not counted.
        trimmed_s: Seconds of silence that were cut off before its beginning.
        memory: Of the sampler, if it has one beside the codes and the take was the only one.
        voice: Who spoke it, as the text named them; None: the voice of the request.
        rate: Its tempo, as the text asked for; the times tell the sound at that tempo.
    """

    codes: Codes
    finish_reason: FinishReason
    pause_after_s: float | None = None
    trace: TraceColumns | None = None
    backtracks: tuple[Backtrack, ...] = ()
    phonemes: str = ""
    takes: tuple[RankedTake, ...] = ()
    text: str = ""
    start_s: float = 0.0
    duration_s: float = 0.0
    trimmed_s: float = 0.0
    frame_s: float = 0.0
    words: tuple[WordTiming, ...] | None = None
    memory: SamplerMemory | None = None
    voice: str | None = None
    rate: float = 1.0

    def kept(self, frames: int) -> "SpokenUtterance":
        """Return its first frames, as they were before any later one was drawn."""
        # A backtrack counts if a frame that is kept was drawn after it, and so do those before it.
        last = max((n for n, one in enumerate(self.backtracks) if one.kept < frames), default=-1)
        return replace(
            self,
            codes=self.codes[:frames],
            backtracks=self.backtracks[: last + 1],
            trace=None,
            takes=(),
            words=None,
        )


@dataclass(frozen=True, slots=True)
class SpeechResult:
    """The result of a job, or of several jobs that spoke one speech.

    Args:
        finish_reason: The gravest of all utterances: `stuck`, then `length`, then `stop`.
        seed: The same request with this seed gives the same codes.
        codes_sha256: SHA-256 of all codes ``[T, K]`` in order, as little-endian int16.
        frames: Sum of T over all utterances.
        audio_s: Seconds of audio, pauses included.
        nar: How much of an utterance the finer levels were drawn from at a time.
        pause_owed_s: Seconds of silence between this speech and that of a job that continues it.
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
    def sound_frames(self) -> float:
        """How many frames its sound lasts, pauses aside: fewer than were drawn if it is faster."""
        return sum(len(one.codes) / one.rate for one in self.utterances)

    @property
    def backtracks(self) -> int:
        """How many times backtracking removed frames."""
        return sum(len(utterance.backtracks) for utterance in self.utterances)

    @property
    def real_time_factor(self) -> float:
        """Seconds of work a second of audio; under 1 is faster than real time."""
        return (self.timings.total_s - self.timings.queue_s) / max(self.audio_s, 1e-9)


@dataclass(frozen=True, slots=True)
class UtteranceCodes:
    """Successive codes ``[T, K]`` of an utterance, all levels, with its number in the speech."""

    utterance: int
    codes: Codes


@dataclass(frozen=True, slots=True)
class AudioChunk:
    """Successive samples ``[N]`` of a job; the last chunk of a job carries its result.

    With timestamps also the words of which more is known than the chunks before told; what begins
    in its samples is among them, or was told before. Of a job that asks for codes, those that were
    decoded since the chunk before.
    """

    samples: Samples
    sample_rate_hz: int
    result: SpeechResult | None = None
    words: tuple[WordTiming, ...] = ()
    codes: tuple[UtteranceCodes, ...] = ()


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a job is: the index of the utterance being drawn, of how many, and frames so far."""

    utterance: int = 0
    utterances: int = 0
    frames: int = 0
