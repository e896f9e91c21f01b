"""JSON schemas of requests and answers, and the entries of responses in the OpenAPI document.

Loads without torch. A `SpeechRequest` is a `SamplingParams`, so no knob is repeated here. Unknown
or unsupported fields are refused, never ignored.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any, Final, Literal, Self, get_args

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    TypeAdapter,
    WithJsonSchema,
)
from pydantic_core import to_json

from app.audio.formats import (
    FORMAT_ALIASES,
    MEDIA_TYPES,
    STREAMED,
    AudioFormat,
    ResponseFormat,
)
from app.engine.core import (
    OutputOptions,
    ReadingOptions,
    ReportOptions,
    SampleRate,
    SpeechJob,
    SpeechResult,
    Thoughts,
    Unreadable,
)
from app.engine.results import Timestamps, UtteranceInfo, WordTimes
from samplers.knobs.knob import knob
from samplers.knobs.params import SamplingParams

MOST_ENTRIES: Final = 1000
"""Entries of a request's pronunciation dictionary."""


SPEAKABLE: Final[dict[str, Any]] = {"minLength": 1, "pattern": r"\S"}
"""What the OpenAPI document says of a text, which is refused where nothing of it can be spoken."""


def _voice_name(voice: object) -> object:
    """Return the name in OpenAI's voice object; other values unchanged."""
    if isinstance(voice, dict) and list(voice) == ["id"] and isinstance(voice["id"], str):
        return voice["id"]
    return voice


VoiceName = Annotated[
    Annotated[str, Field(max_length=200)] | None,
    BeforeValidator(_voice_name),
    WithJsonSchema({
        "anyOf": [
            {"type": "string", "maxLength": 200},
            {
                "type": "object",
                "properties": {"id": {"type": "string", "maxLength": 200}},
                "required": ["id"],
                "additionalProperties": False,
            },
            {"type": "null"},
        ]
    }),
]
"""A voice's name, or OpenAI's object `{"id": NAME}`."""


def _format_name(sent: object) -> object:
    """Return the format that an alias means; other values unchanged."""
    return FORMAT_ALIASES.get(sent, sent) if isinstance(sent, str) else sent


def _format_schema(kind: Any) -> WithJsonSchema:
    return WithJsonSchema({"type": "string", "enum": [*get_args(kind), *FORMAT_ALIASES]})


SoundFormatName = Annotated[AudioFormat, BeforeValidator(_format_name), _format_schema(AudioFormat)]
"""A format of audio by any of its names."""

FormatName = Annotated[
    ResponseFormat, BeforeValidator(_format_name), _format_schema(ResponseFormat)
]
"""The same, or codes."""

Word = Annotated[str, Field(min_length=1, max_length=100)]
Spoken = Annotated[str, Field(min_length=1, max_length=200)]
DictionaryName = Annotated[str, Field(max_length=64)]


class ContinueFrom(BaseModel):
    """Where to go on in a recent take."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    id: str = Field(max_length=200, description="Id of a recent speech that completed.")
    utterance: int = Field(0, ge=0, description="Number of its utterance, from 0.")
    frame: int = Field(ge=0, description="How many frames of that utterance to keep.")


_NAME_CHARS: Final = 200
_PRIORITIES: Final = {"normal": 0, "background": 1}


class SpeechOptions(SamplingParams):
    """How to speak: all sampling knobs, and the fields that all kinds of request share.

    `null` means the default of every field that has one.
    """

    model: str | None = Field(
        None,
        max_length=_NAME_CHARS,
        description="A name of GET /v1/models, or OpenAI's with a date; default the loaded model.",
    )
    voice: VoiceName = Field(
        None,
        description="A voice of GET /v1/audio/voices, or an object with its `id`; `default` is"
        " the model's default voice.",
    )
    language: str | None = Field(
        None,
        max_length=35,
        description="Language of the text, as in en, en-US or English; by default, and for auto,"
        " that of the voice.",
    )
    # fmt: off
    speed: float = knob(
        1.0, "Playback speed, at constant pitch.",
        group="playback", off=1.0, step=0.05, ge=0.25, le=4,
        label="Speed", values=(0.75, 0.9, 1.0, 1.1, 1.25),
        synonyms="fast slow tempo rate pace",
    )
    loudness_lufs: float | None = knob(
        None, "Target loudness by ITU-R BS.1770: -16 is usual for podcasts, -23 for broadcasts."
        " Null leaves it unchanged.",
        group="playback", unit="LUFS", step=0.5, ge=-40, le=-10, values=(-23.0, -19.0, -16.0),
        synonyms="volume loud quiet gain normalise normalize",
    )
    # fmt: on
    sample_rate: SampleRate | None = Field(
        None,
        description="Samples a second. Default that of the model, 24,000; of `ulaw` and `alaw`"
        " 8,000. `opus` has 8,000, 16,000, 24,000 and 48,000.",
    )
    instructions: str | None = Field(
        None,
        description="OpenAI's clients send them and the models take none: ignored, as the header"
        " `X-Ignored` says, or refused, as the operator decides.",
    )
    # fmt: off
    max_duration_s: float | None = knob(
        None, "Limit of the speech in seconds without pauses; default by the text's length.",
        group="request", unit="s", step=0.5, top=60, gt=0, le=3600,
        synonyms="longest limit cut",
    )
    # fmt: on
    priority: Literal["normal", "background"] = Field(
        "normal",
        description="A background request starts when no normal one waits, and yields to them while"
        " it is generated.",
    )
    timestamps: Timestamps = Field(
        "none",
        description="Whether to tell when each word, or also each phoneme, is heard: in the report,"
        " and in the events and messages of a stream, no later than the sound.",
    )
    continue_from: ContinueFrom | None = Field(
        None,
        description="Keep a recent take of the same text up to a frame, and draw the rest with this"
        " request's knobs and seed.",
    )
    pronunciations: dict[Word, Spoken] | None = Field(
        None,
        max_length=MOST_ENTRIES,
        description='What is spoken for words, as {"SQL": "sequel", "data": "[[deta]]"}; an entry'
        " in lower case is for every case.",
    )
    dictionaries: tuple[DictionaryName, ...] = Field(
        (),
        max_length=8,
        description="Pronunciation dictionaries of the operator to use beside the default one.",
    )
    unreadable: Unreadable | None = Field(
        None,
        description="What becomes of letters and signs that the voice does not read: `skip` leaves"
        " them out and names them in `X-Warning`, `refuse` refuses the text; default"
        " `TTS_UNREADABLE`, which is `skip`.",
    )
    thoughts: Thoughts = Field(
        "skip",
        description="What becomes of parts that a model marks as its reasoning, `<think>` and the"
        " like: `skip` leaves them out, `speak` reads them.",
    )
    trace: bool = Field(
        False,
        description="Record the sampler's decision at every token of level 0, for "
        "GET /v1/audio/speech/{id}; changes no code.",
    )
    top_logprobs: int = Field(
        0,
        ge=0,
        le=20,
        description="How many of the likeliest codes to record for each token, before and after "
        "the processors; asks for a trace, too.",
    )

    @property
    def knobs(self) -> SamplingParams:
        """The sampling knobs alone; those that were sent are known as such."""
        names = SamplingParams.model_fields
        values = {name: getattr(self, name) for name in names}
        return SamplingParams.model_construct(self.model_fields_set & names.keys(), **values)

    def job_of(
        self, text: str, job_id: str, owner: str = "", client: str = "", *, played: bool = True
    ) -> SpeechJob:
        """Return the engine's job for a text.

        It counts towards the ``client``'s share; ``played`` audio is played while it is made.
        """
        return SpeechJob(
            id=job_id,
            text=text,
            params=self.knobs,
            voice=self.voice,
            max_duration_s=self.max_duration_s,
            owner=owner,
            priority=_PRIORITIES[self.priority],
            client=client,
            output=OutputOptions(self.speed, self.loudness_lufs, self.sample_rate),
            played=played,
            reading=ReadingOptions(
                self.language,
                self.pronunciations or {},
                self.dictionaries,
                self.unreadable,
                self.thoughts,
            ),
            report=ReportOptions(
                self.trace or self.top_logprobs > 0, self.top_logprobs, self.timestamps
            ),
        )


class SpeechRequest(SpeechOptions):
    """OpenAI's speech request with all sampling knobs as further fields."""

    model_config = ConfigDict(title="SpeechRequest")

    input: str = Field(description="The text to speak.", json_schema_extra=SPEAKABLE)
    response_format: FormatName = Field(
        "mp3",
        description="Audio format; opus, also called ogg, is in Ogg, aac in ADTS, pcm is 16 bit,"
        " little-endian, mono, at the rate of `X-Sample-Rate`, without a header; ulaw and alaw are"
        " the same in 8 bit, as telephones have it. `codes` sends no audio but the codes it is made"
        " of: JSON, or safetensors by `Accept`; streamed, events with the next frames.",
    )
    stream: bool | None = Field(
        None,
        description="Whether it is sent while it is generated. By default it is streamed if"
        " `stream_format` is set or the format is not codes, nor wav or flac, whose headers hold a"
        " length.",
    )
    stream_format: Literal["audio", "sse"] = Field(
        "audio",
        description="Form of a stream: one file, or server-sent events with its bytes. Events with"
        " codes are sent as a JSON object a line unless it is `sse`.",
    )

    @property
    def sound_format(self) -> AudioFormat:
        """Format of the sound, which is rendered but not sent where codes are asked for."""
        return "pcm" if self.response_format == "codes" else self.response_format

    @property
    def streamed(self) -> bool:
        """Whether the response is streamed."""
        if self.stream is not None:
            return self.stream
        return "stream_format" in self.model_fields_set or self.response_format in STREAMED

    def job(self, job_id: str, owner: str = "", client: str = "") -> SpeechJob:
        """Return the engine's job for this request; see `job_of`."""
        job = self.job_of(self.input, job_id, owner, client, played=self.streamed)
        codes = self.streamed and self.response_format == "codes"
        return replace(job, report=replace(job.report, codes=codes))


class TtsRequest(SpeechRequest):
    """The same request with WAV as the default format."""

    model_config = ConfigDict(title="TtsRequest")

    response_format: FormatName = Field("wav", description="As for /v1/audio/speech.")


class SoundQuery(BaseModel):
    """Query parameters for the audio of a recent speech."""

    model_config = ConfigDict(extra="forbid")

    response_format: SoundFormatName = Field("wav", description="Audio format.")


class Usage(BaseModel):
    """Token counts of a speech."""

    input_tokens: int = Field(description="Phonemes.")
    output_tokens: int = Field(description="Frames, one code of level 0 each.")
    total_tokens: int

    @classmethod
    def of(cls, result: SpeechResult) -> Self:
        """Return the token counts of a speech."""
        return cls.counted(sum(len(one.phonemes) for one in result.utterances), result.frames)

    @classmethod
    def counted(cls, phonemes: int, frames: int) -> Self:
        """Return the usage for numbers of phonemes and frames."""
        return cls(input_tokens=phonemes, output_tokens=frames, total_tokens=phonemes + frames)


_HEARD: Final[Mapping[str, TypeAdapter[Any]]] = {
    "words": TypeAdapter(list[WordTimes]),
    "utterances": TypeAdapter(list[UtteranceInfo]),
}


def message(kind: str, speed: float = 1.0, **fields: Any) -> bytes:
    """Return an event of a stream or a message of a session as JSON, its fields in order.

    `words` and `utterances` are written with the times at the playback's ``speed``.
    """
    for name in _HEARD.keys() & fields.keys():
        heard = [one.at_speed(speed) for one in fields[name]]
        fields[name] = _HEARD[name].dump_python(heard, mode="json")
    return to_json({"type": kind, **fields}, inf_nan_mode="null")


class PhonemesRequest(BaseModel):
    """A text that is read and not spoken."""

    model_config = ConfigDict(extra="forbid", title="PhonemesRequest")

    input: str = Field(description="The text, with its markup.", json_schema_extra=SPEAKABLE)
    voice: VoiceName = Field(None, description="As for speech; its language is the default.")
    language: str | None = Field(None, max_length=35, description="As for speech.")
    pronunciations: dict[Word, Spoken] | None = Field(
        None, max_length=MOST_ENTRIES, description="As for speech."
    )
    dictionaries: tuple[DictionaryName, ...] = Field((), max_length=8, description="As for speech.")
    unreadable: Unreadable | None = Field(None, description="As for speech.")
    thoughts: Thoughts = Field("skip", description="As for speech.")


class ReadUtterance(BaseModel):
    """How an utterance would be read."""

    voice: str | None = Field(
        description="Who would speak it, where the text names them; null is the request's voice."
    )
    rate: float = Field(description="Its tempo, where the text asks for one; otherwise 1.")
    text: str = Field(description="Its words, normalised: numbers and abbreviations written out.")
    phonemes: str = Field(description="What the model would speak; empty if it is only a pause.")
    pause_after_s: float | None = Field(
        description="Silence after it, where the text asks for one; null is the knob `pause_s`."
    )


class ReadText(BaseModel):
    """How a text would be read."""

    language: str
    phonemes: int = Field(description="Number of phonemes in all, which `usage` counts.")
    warnings: list[str] = Field(
        description="What is read otherwise than may be meant: letters left out, another language,"
        " sounds in brackets."
    )
    left_out: list[str] = Field(
        description="What of the text the voice does not read, as it was written, each but once."
    )
    utterances: list[ReadUtterance]


class ErrorDetail(BaseModel):
    """An error."""

    message: str = Field(description="Human-readable.")
    type: Literal["invalid_request_error", "server_error"] = Field(
        description="Whether the client or the server is at fault."
    )
    param: str | None = Field(description="The field at fault, dotted if nested.")
    code: str | None = Field(description="Machine-readable; stable.")


class ErrorBody(BaseModel):
    """The body of every error response."""

    error: ErrorDetail


class VoiceSummary(BaseModel):
    """Who a voice is."""

    id: str = Field(description="What `voice` takes.")
    name: str = Field(description="Display name.")
    language: str
    gender: str = Field(description="female, male or neutral; empty if unknown.")
    accent: str = Field(description="As in American or British; empty if unknown.")
    description: str
    kind: Literal["builtin", "shared", "own"] = Field(
        description="Whether it belongs to the model, to everybody, or to this key."
    )


class VoiceItem(VoiceSummary):
    """A voice that `voice` may name."""

    is_default: bool = Field(description="Whether a request without a voice gets it.")
    alias_of: str | None = Field(description="The voice that this is an alias of.")
    damaged: bool = Field(description="Whether this upload cannot be read; it can only be deleted.")


class VoiceList(BaseModel):
    """All voices of the caller."""

    voices: list[VoiceItem]


class VoiceNames(BaseModel):
    """The names of all voices of the caller."""

    voices: list[str]


class ModelItem(BaseModel):
    """A model that `model` may name."""

    id: str = Field(description="What `model` takes.")
    object: Literal["model"] = "model"
    created: int = Field(0, description="Always 0: not recorded.")
    owned_by: str = "valle-serve"
    alias_of: str | None = Field(None, description="The model that this is an alias of.")


class PresetItem(BaseModel):
    """A preset, as the loaded model would use it."""

    id: str = Field(description="What `preset` takes.")
    alias_of: str | None = Field(
        description="Of `auto`: the preset that it is; null if the model has knobs of its own."
    )
    sets: dict[str, Any] = Field(description="The knobs that differ from the declared defaults.")
    knobs: SamplingParams = Field(description="Every knob; `seed` is null.")


class PresetList(BaseModel):
    """All presets, `auto` first."""

    presets: list[PresetItem]


class ModelList(BaseModel):
    """The names of the loaded model."""

    object: Literal["list"] = "list"
    data: list[ModelItem]


class AudioModelItem(BaseModel):
    """A model, by its name alone."""

    id: str = Field(description="What `model` takes.")


class AudioModelList(BaseModel):
    """The names of the loaded model, in the form that Open WebUI expects."""

    models: list[AudioModelItem]


EVENT_STREAM: Final = "text/event-stream"

Responses = dict[int | str, dict[str, Any]]


def error_responses(**reasons: str) -> Responses:
    """Return error responses for a route's OpenAPI entry: ``_404="Why."`` and so on."""
    return {
        int(status[1:]): {"model": ErrorBody, "description": reason}
        for status, reason in reasons.items()
    }


NOT_READY = error_responses(_503="Not ready; retry in Retry-After seconds.")
TEXT_RESPONSES: Responses = error_responses(
    _404="No such voice or model.",
    _413="The body is too large.",
    _415="The body is not JSON.",
    _422="A field is invalid; `param` names it.",
    _503="Busy or not ready; retry in Retry-After seconds.",
)
NDJSON: Final = "application/x-ndjson"
TABLES: Final = {"csv": "text/csv", "jsonl": NDJSON, "parquet": "application/vnd.apache.parquet"}

SAFETENSORS: Final = "application/vnd.safetensors"
"""Media type of codes as tensors `0`, `1` and so on, `[T, K]` each, an utterance each."""

CODES_CONTENT: Final[dict[str, Any]] = {"application/json": {}, SAFETENSORS: {}}
"""Codes in the OpenAPI document."""

SPEECH_RESPONSES: Responses = {
    200: {
        "description": "The audio; a stream is cut off if the speech fails.",
        "content": {media_type: {} for media_type in (*MEDIA_TYPES.values(), EVENT_STREAM)},
    },
    **TEXT_RESPONSES,
    **error_responses(
        _500="The speech could not be generated.",
        _504="The request exceeded the server's time limit.",
    ),
}

SPEECH_OR_CODES: Responses = SPEECH_RESPONSES | {
    200: SPEECH_RESPONSES[200]
    | {
        "description": "The audio, or codes; a stream is cut off if the speech fails.",
        "content": SPEECH_RESPONSES[200]["content"] | CODES_CONTENT | {NDJSON: {}},
    }
}

SPEECH_OR_LINES: Responses = SPEECH_RESPONSES | {
    200: {
        "description": "The audio, or lines of JSON with audio in base64 and timings.",
        "content": {
            media_type: {}
            for media_type in ("application/json", NDJSON, *MEDIA_TYPES.values(), EVENT_STREAM)
        },
    }
}
