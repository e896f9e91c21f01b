"""A job of the engine, and its result. Loads without torch."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Annotated, Any, ClassVar, Final, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray
from pydantic import ConfigDict, Field, GetCoreSchemaHandler, ValidationInfo
from pydantic_core import CoreSchema, core_schema

from samplers.ar.backtrack import Backtrack
from samplers.knobs.params import SamplingParams

FinishReason = Literal["stop", "aligned", "length", "stuck", "empty", "cancelled", "error"]
"""Why a speech or an utterance ended, the gravest last. `aligned`: the model went on behind the end
of the text, and the alignment ended it; `empty`: the stop was sampled before any frame."""

STOPPED: Final[frozenset[FinishReason]] = frozenset({"stop", "empty"})
"""The finish reasons of an utterance that drew its stop."""


def gravest(*reasons: FinishReason) -> FinishReason:
    """Return the one of several that is reported."""
    return max(reasons, key=get_args(FinishReason).index)


NarPlan = Literal["chunks", "whole", "windows"]
"""How much of an utterance the NAR levels are sampled from at a time.

`chunks`, for models whose frames see no later block, give the codes of the whole; `windows` do not.
"""


class StoredArray:
    """How pydantic writes an array: into the list in the context, and its place there as JSON."""

    @classmethod
    def __get_pydantic_core_schema__(cls, _: Any, __: GetCoreSchemaHandler) -> CoreSchema:
        """Return the schema of an array of any shape."""
        return core_schema.with_info_plain_validator_function(
            cls._read,
            serialization=core_schema.plain_serializer_function_ser_schema(cls._add, info_arg=True),
        )

    @staticmethod
    def _read(place: int, info: "ValidationInfo[list[NDArray[Any]]]") -> NDArray[Any]:
        return info.context[place]

    @staticmethod
    def _add(array: NDArray[Any], info: "core_schema.SerializationInfo[list[NDArray[Any]]]") -> int:
        info.context.append(array)
        return len(info.context) - 1


Array = Annotated[NDArray[Any], StoredArray]

Samples = NDArray[np.float32]
"""``[N]`` in [-1, 1], mono."""

Codes = Annotated[NDArray[np.int16], StoredArray]
"""``[T, K]``."""


SampleRate = Literal[8000, 16000, 22050, 24000, 32000, 44100, 48000]
"""Samples a second that a request may ask for."""

Unreadable = Literal["skip", "refuse"]
"""What becomes of letters and signs that no voice reads: they are left out, or refused."""

Thoughts = Literal["skip", "speak"]
"""What becomes of the parts of a text that a model marks as its reasoning."""

USUAL_PHONEME_S: Final = 0.08
"""Usual seconds of speech a phoneme symbol: speech has 10 to 15 phonemes a second."""

TraceColumns = Mapping[str, Array]
"""Each of `samplers.ar.trace.FIELDS` -> ``[N, ...]``, one entry a token sampled."""


Timestamps = Literal["none", "word", "phoneme"]
"""Whose times are told."""


@dataclass(frozen=True, slots=True)
class PhonemeTimes:
    """When a phoneme is heard."""

    phoneme: Annotated[str, Field(description="With its stress and length marks.")]
    start_s: float
    end_s: float | None


@dataclass(frozen=True, slots=True)
class WordTimes:
    """When a word is heard, in the audio that was sent."""

    utterance: Annotated[int, Field(description="Number of its utterance, from 0.")]
    index: Annotated[int, Field(description="Its number in the utterance, from 0.")]
    word: Annotated[str, Field(description="As it was written, with its punctuation.")]
    spoken: Annotated[str, Field(description="The words that are spoken for it: normalised.")]
    start_s: float
    end_s: Annotated[
        float | None, Field(description="Null while it is not known; it is then told later.")
    ]
    missing: Annotated[
        bool,
        Field(
            description="Whether the sound lacks it; the times are then those where it should be."
        ),
    ]
    phonemes: Annotated[
        tuple[PhonemeTimes, ...] | None,
        Field(description="Those that have begun; null unless `timestamps` is `phoneme`."),
    ]
    voice: Annotated[str, Field(exclude=True)] = ""

    @property
    def shown(self) -> str:
        """The word as captions show it: inline phonemes without their brackets."""
        return self.word.replace("[[", "").replace("]]", "")

    def at_speed(self, speed: float) -> "WordTimes":
        """Return the same at a speed of the playback, rounded to 0.1 ms; its own are at speed 1."""
        phonemes = self.phonemes and tuple(
            replace(one, start_s=round(one.start_s / speed, 4), end_s=_played(one.end_s, speed))
            for one in self.phonemes
        )
        end_s = _played(self.end_s, speed)
        start_s = round(self.start_s / speed, 4)
        return replace(self, start_s=start_s, end_s=end_s, phonemes=phonemes)


def _played(at_s: float | None, speed: float) -> float | None:
    return None if at_s is None else round(at_s / speed, 4)


@dataclass(frozen=True, slots=True)
class Resume:
    """The beginning of an earlier take, which another goes on from."""

    utterances: "tuple[UtteranceResult, ...]"  # those that are kept, the last one as far as it is
    whole: int  # how many of them are kept whole, with their ends
    lookahead_words: int = 0  # with which they were drawn

    @property
    def frames(self) -> int:
        """How many frames are kept."""
        return sum(len(one.codes) for one in self.utterances)


@dataclass(frozen=True, slots=True)
class OutputOptions:
    """How the audio of a speech is played; the engine counts with its speed alone."""

    speed: float = 1.0  # the tempo; audio at less than 1 is longer than the speech
    loudness_lufs: float | None = None  # by ITU-R BS.1770; None: as it is
    sample_rate: SampleRate | None = None  # in Hz; None: the format's, or the model's


@dataclass(frozen=True, slots=True)
class ReadingOptions:
    """How a text is read."""

    language: str | None = None  # None: the voice's
    # What is spoken for words; goes before the entries of dictionaries.
    pronunciations: Mapping[str, str] = field(default_factory=dict)
    dictionaries: tuple[str, ...] = ()  # the operator's pronunciation dictionaries to use, in order
    unreadable: Unreadable | None = None  # None: as the operator's settings have it
    thoughts: Thoughts = "skip"  # the parts of `<think>` and the like


@dataclass(frozen=True, slots=True)
class ReportOptions:
    """What is told of a speech beside its audio."""

    trace: bool = False
    top_logprobs: int = 0  # how many of the likeliest codes the trace tells for each token
    timestamps: Timestamps = "none"
    codes: bool = False


@dataclass(frozen=True, slots=True)
class SpeechPart:
    """Which part of a speech a job speaks: by default all of it.

    Attributes:
        before: The result of earlier jobs of the same speech, which this job continues: its
            utterances are numbered after theirs, and they count for the limit, the context and the
            pauses. None: the job begins a speech.
        more: Whether a later job may continue it: a pause that the text asks for at its end is
            then left to that job, as `pause_owed_s` of the result.
        is_open: Whether its text is the beginning of one that is still being written: more of it
            comes.
        kept: What is not sampled but taken from an earlier take of the same text; None: nothing.
    """

    before: "SpeechResult | None" = None
    more: bool = False
    is_open: bool = False
    kept: Resume | None = None


@dataclass(frozen=True, slots=True)
class SpeechJob:
    """One request: what to say and how."""

    id: str  # unique among all jobs
    text: str
    params: SamplingParams  # as the caller set them; the planner resolves the rest
    voice: str | None = None  # name of a voice; None: the model's default
    # Longest speech without pauses, in seconds at the rates that the text asks for; None: by the
    # length of the text.
    max_duration_s: float | None = None
    # Short id of the key; empty where no keys are required. Decides which uploaded voices the job
    # can use.
    owner: str = ""
    priority: int = 0  # jobs of smaller priority begin first
    # Whose share of rows, places and stored responses it takes: the owner, or the address where
    # no keys are required.
    client: str = ""
    output: OutputOptions = OutputOptions()
    # Whether the audio is played while it is made. Otherwise it is sent whole, and streams that
    # are played go first.
    played: bool = True
    reading: ReadingOptions = ReadingOptions()
    report: ReportOptions = ReportOptions()
    part: SpeechPart = SpeechPart()


@dataclass(frozen=True, slots=True)
class Timings:
    """Durations of a job in seconds; the stages need not add up to the total."""

    queue_s: Annotated[
        float, Field(description="From its submission to its first step, without `text_s`.")
    ]
    text_s: Annotated[float, Field(description="Conversion of the text to phonemes.")]
    ar_s: Annotated[float, Field(description="Steps of level 0 that it took part in.")]
    nar_s: Annotated[float, Field(description="The NAR levels.")]
    codec_s: Annotated[float, Field(description="The codec.")]
    total_s: Annotated[float, Field(description="From its submission to its end.")]
    first_audio_s: Annotated[
        float, Field(description="From its submission to its first audio.")
    ] = 0.0
    underrun_s: Annotated[
        float, Field(description="Stalls of a stream's playback that begins with the first audio.")
    ] = 0.0
    unwritten_s: Annotated[
        float, Field(description="Gaps in it while the text was not written yet; no stalls.")
    ] = 0.0

    def __add__(self, other: "Timings") -> "Timings":
        """Return the sums; that of the first audio is that of the first that has any."""
        both = Timings(
            *(getattr(self, one.name) + getattr(other, one.name) for one in fields(self))
        )
        return replace(both, first_audio_s=self.first_audio_s or other.first_audio_s)


@dataclass(frozen=True, slots=True)
class RankedTake:
    """One of several complete sequences of an utterance."""

    score: Annotated[float, Field(description="Its score in nats a code; see docs/samplers.md.")]
    frames: Annotated[int, Field(description="How many frames it has.")]
    finish_reason: Annotated[FinishReason, Field(description="Why it ended.")]
    kept: Annotated[bool, Field(description="Whether it is the one that was chosen.")]


@dataclass(frozen=True, slots=True)
class SamplerMemory:
    """What the sampler of level 0 knew at each length of an utterance, beside its codes."""

    mu: Array  # ``[T + 1]`` float32 bits, mirostat's state
    last_act: Array  # ``[T + 1]`` int64, the frame at which entropix last acted


def _every_field(schema: dict[str, Any]) -> None:
    """Describe a result as it is written: each field is there, also those with a default here."""
    schema["required"] = list(schema["properties"])
    for one in schema["properties"].values():
        one.pop("default", None)


@dataclass(frozen=True, slots=True, kw_only=True)
class UtteranceInfo:
    """How an utterance was read, and where it is in the audio that was sent."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(json_schema_extra=_every_field)

    voice: Annotated[
        str | None,
        Field(
            description="Who speaks it, where the text names them; null is the voice of the"
            " request."
        ),
    ] = None
    rate: Annotated[
        float, Field(description="Its tempo, where the text asks for one; otherwise 1.")
    ] = 1.0
    text: Annotated[
        str, Field(description="Its words, normalised: numbers and abbreviations written out.")
    ] = ""
    phonemes: Annotated[
        str, Field(description="What the model spoke; empty if it is only a pause.")
    ] = ""
    start_s: Annotated[
        float,
        Field(
            description="Where it begins in the audio sent; trims, pauses, `rate` and `speed` are"
            " counted."
        ),
    ] = 0.0
    duration_s: Annotated[
        float, Field(description="How long it sounds, without the pause after it.")
    ] = 0.0
    trimmed_s: Annotated[
        float,
        Field(
            description="Silence that was cut off at its beginning: frame n of its codes is heard"
            " at start_s - trimmed_s + n * frame_s."
        ),
    ] = 0.0
    frame_s: Annotated[float, Field(description="How long a frame of its codes sounds.")] = 0.0
    words: Annotated[
        tuple[WordTimes, ...] | None,
        Field(description="When each word is heard; null without `timestamps`."),
    ] = None
    sound_after_s: Annotated[
        float | None,
        Field(
            description="Sound after its last word, by the alignment: some 0.15 s are its last"
            " consonant and its echo. Null where the alignment was not followed:"
            " `alignment_stop_frames`, `backtrack_repeat_frames`."
        ),
    ] = None


@dataclass(frozen=True, slots=True)
class UtteranceResult(UtteranceInfo):
    """The result of one utterance; its times are those at speed 1."""

    codes: Codes  # ``[T, K]`` int16
    finish_reason: FinishReason
    # Seconds of silence that the text asks for after it; None: `pause_s`.
    pause_after_s: float | None = None
    # None unless the job asked for it; empty for an utterance that is only a pause.
    trace: TraceColumns | None = None
    backtracks: tuple[Backtrack, ...] = ()
    takes: tuple[RankedTake, ...] = ()  # all complete sequences, if there were several
    # Of the sampler, if it has one beside the codes and the take was the only one.
    memory: SamplerMemory | None = None
    # The frames from which on more of its text was known, a word each: `text_lookahead_words`
    growths: tuple[int, ...] = ()

    def at_speed(self, speed: float) -> "UtteranceResult":
        """Return the same with the times at a speed of the playback."""
        return replace(
            self,
            start_s=round(self.start_s / speed, 6),
            duration_s=round(self.duration_s / speed, 6),
            trimmed_s=round(self.trimmed_s / speed, 6),
            frame_s=self.frame_s / speed,
            sound_after_s=_played(self.sound_after_s, speed),
            words=self.words and tuple(one.at_speed(speed) for one in self.words),
        )

    def kept(self, frames: int) -> "UtteranceResult":
        """Return its first frames, as they were before any later one was sampled."""
        # A backtrack counts if a frame that is kept was sampled after it, and so do those before
        # it.
        last = max((n for n, one in enumerate(self.backtracks) if one.kept < frames), default=-1)
        return replace(
            self,
            codes=self.codes[:frames],
            backtracks=self.backtracks[: last + 1],
            growths=tuple(frame for frame in self.growths if frame < frames),
            trace=None,
            takes=(),
            words=None,
            sound_after_s=None,
        )


@dataclass(frozen=True, slots=True)
class MadeBy:
    """What made a speech, of the replica that spoke it."""

    version: Annotated[str, Field(description="Of the service.")]
    model: Annotated[str, Field(description="Name of the model.")]
    model_sha256: Annotated[str, Field(description="Hash of its weights, as /ready has it.")]
    weights: Annotated[str, Field(description="Type of its weights: int8 or float32.")]
    device: Annotated[str, Field(description="Device that it ran on.")]


@dataclass(frozen=True, slots=True)
class SpeechResult:
    """The result of a job, or of several jobs that spoke one speech."""

    job_id: str
    # The gravest of all utterances: `stuck`, then `length`, then `stop`.
    finish_reason: FinishReason
    seed: int  # the same request with this seed gives the same codes
    params: SamplingParams
    voice: str
    language: str
    codes_sha256: str  # SHA-256 of all codes ``[T, K]`` in order, as little-endian int16
    frames: int  # sum of T over all utterances
    audio_s: float  # seconds of audio, pauses included
    timings: Timings
    utterances: tuple[UtteranceResult, ...] = ()
    nar: NarPlan = "chunks"  # how much of an utterance the NAR levels were sampled from at a time
    decoder: str = "codec"
    # Seconds of silence between this speech and that of a job that continues it.
    pause_owed_s: float = 0.0
    left_out: tuple[str, ...] = ()  # of the text, as it was written: nothing was spoken for it
    made_by: MadeBy | None = None  # None of a result that an earlier version stored

    @property
    def sound_frames(self) -> float:
        """How many frames its sound lasts, pauses aside: fewer than sampled if it is faster."""
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


class Alignment(NamedTuple):
    """Where some successive frames are in the text."""

    path: NDArray[np.int64]  # ``[n]``, the index of each frame's phoneme id; the begin mark is 0
    logprobs: NDArray[np.float32]  # ``[n]``, the log-probability of each frame's code in nats
    # ``[n]``, how often the text had grown that the path is in
    growths: NDArray[np.int64]


@dataclass(slots=True)
class AudioChunk:
    """Successive samples ``[N]``: of an utterance as it is decoded, then of its job as it is heard.

    The last chunk of a job carries its result. With timestamps also the words of which more is
    known than the chunks before told; what begins in its samples is among them, or was told before.
    Of a job that asks for codes, those that were decoded since the chunk before.
    """

    samples: Samples
    sample_rate_hz: int
    result: SpeechResult | None = None
    words: tuple[WordTimes, ...] = ()
    codes: tuple[UtteranceCodes, ...] = ()
    # What the decoder tells its job of the frames that it made the samples of:
    decoded: Codes | None = None  # ``[n, K]``, all their levels
    alignment: Alignment | None = None  # None if it was not asked for
    nar_s: float = 0.0  # seconds of work
    codec_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a job is: the index of its current utterance, of how many, and frames so far."""

    utterance: int = 0
    utterances: int = 0
    frames: int = 0
