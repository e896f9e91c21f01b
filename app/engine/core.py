"""The nouns of the engine: what is asked, planned, sent and told of a speech, in this order.

`SpeechJob` is a request as the engine has it. `Plan` is what the text thread makes of it, a list of
utterances. The AR tells of each in messages (`app.engine.messages`): what it is conditioned on
(`UtteranceSpec` in `app.engine.utterance`), its frames, its end. `AudioChunk` is what is made of
them. The last one has the `SpeechResult`, with an `UtteranceResult` each
(`app.engine.results`). All but the chunks are frozen. Loads without torch.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Annotated, Final, Literal, NamedTuple

from pydantic import Field

from app.engine.results import (
    Alignment,
    Codes,
    FinishReason,
    Samples,
    Timestamps,
    UtteranceCodes,
    UtteranceResult,
    WordTimes,
)
from samplers.knobs.params import SamplingParams

if TYPE_CHECKING:  # torch
    from torch import Tensor

    from models.text import Utterance
    from models.text.words import WordSpan
    from models.voices.voice import Voice

NarPlan = Literal["chunks", "whole", "windows"]
"""How much of an utterance the NAR levels are sampled from at a time.

`chunks`, for models whose frames see no later block, give the codes of the whole; `windows` do not.
"""


SampleRate = Literal[8000, 16000, 22050, 24000, 32000, 44100, 48000]
"""Samples a second that a request may ask for."""


Unreadable = Literal["skip", "refuse"]
"""What becomes of letters and signs that no voice reads: they are left out, or refused."""


Thoughts = Literal["skip", "speak"]
"""What becomes of the parts of a text that a model marks as its reasoning."""


USUAL_PHONEME_S: Final = 0.08
"""Usual seconds of speech a phoneme symbol: speech has 10 to 15 phonemes a second."""


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
class MadeBy:
    """What made a speech, of the replica that spoke it."""

    version: Annotated[str, Field(description="Of the service.")]
    model: Annotated[str, Field(description="Name of the model.")]
    model_sha256: Annotated[str, Field(description="Hash of its weights, as /ready has it.")]
    weights: Annotated[str, Field(description="Type of its weights: int8 or float32.")]
    device: Annotated[str, Field(description="Device that it ran on.")]


class PromptedVoice(NamedTuple):
    """A voice as a model hears it."""

    voice: "Voice"
    prompt: "Tensor | None" = None  # codes ``[Tp, K]``
    said: Sequence[int] = ()  # ids of what the prompt says, where the model reads that


@dataclass(frozen=True, slots=True)
class Plan:
    """A job that was checked and resolved: every choice is made that the caller left open."""

    job: SpeechJob
    params: SamplingParams  # resolved: every knob has a value
    seed: int
    voice: "Voice"
    language: str
    utterances: "tuple[Utterance, ...]"  # the text, split and converted to phonemes
    text_s: float  # seconds that this took
    rows: int = 1  # rows of the batch that level 0 takes
    usual: bool = True  # whether its cost tells what others cost
    nar: NarPlan = "chunks"  # how much of an utterance the NAR levels sample at a time
    decoder: str = "codec"  # what makes samples of codes: `codec` or `vocos`
    # Of each utterance, its words with their phonemes; empty without timestamps.
    words: "tuple[tuple[WordSpan, ...], ...]" = ()
    # Of each utterance, how many symbols each phoneme id stands for; likewise.
    lengths: tuple[Sequence[int], ...] = ()
    speakers: tuple[
        PromptedVoice, ...
    ] = ()  # of each utterance: that voice, or one that the text names
    left_out: tuple[str, ...] = ()  # of the text, as it was written: nothing is spoken for it
    made_by: MadeBy | None = None
    pages: int = 0  # of keys and values that it takes at most, where they lie in pages

    @property
    def only_voice(self) -> tuple[str | None, str] | None:
        """Owner and key of its voice; None if its text names others."""
        if any(one.voice is not None for one in self.utterances):
            return None
        return self.voice.owner, self.voice.key


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a job is: the index of its current utterance, of how many, and frames so far."""

    utterance: int = 0
    utterances: int = 0
    frames: int = 0


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
