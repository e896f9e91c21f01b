"""What became of an utterance: its arrays, when it is heard, why it ended. Loads without torch."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, Final, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray
from pydantic import ConfigDict, Field, GetCoreSchemaHandler, ValidationInfo
from pydantic_core import CoreSchema, core_schema

from samplers.ar.backtrack import Backtrack


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
            replace(one, start_s=round(one.start_s / speed, 4), end_s=played_at(one.end_s, speed))
            for one in self.phonemes
        )
        end_s = played_at(self.end_s, speed)
        start_s = round(self.start_s / speed, 4)
        return replace(self, start_s=start_s, end_s=end_s, phonemes=phonemes)


def played_at(at_s: float | None, speed: float) -> float | None:
    """Return when something is heard at a speed of the playback, rounded to 0.1 ms."""
    return None if at_s is None else round(at_s / speed, 4)


FinishReason = Literal["stop", "aligned", "length", "stuck", "empty", "cancelled", "error"]
"""Why a speech or an utterance ended, the gravest last. `aligned`: the model went on behind the end
of the text, and the alignment ended it; `empty`: the stop was sampled before any frame."""


STOPPED: Final[frozenset[FinishReason]] = frozenset({"stop", "empty"})
"""The finish reasons of an utterance that drew its stop."""


def gravest(*reasons: FinishReason) -> FinishReason:
    """Return the one of several that is reported."""
    return max(reasons, key=get_args(FinishReason).index)


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
            sound_after_s=played_at(self.sound_after_s, speed),
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
