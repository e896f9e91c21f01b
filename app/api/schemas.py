"""What goes over the wire as JSON. Loads without torch.

A `SpeechRequest` is a `SamplingParams`: no knob is named here. Nothing that a caller sends is
ignored: what is not supported is refused, and says so.
"""

from typing import Annotated, Final, Literal, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
)

from app.audio.formats import STREAMED, AudioFormat
from app.engine.job import SpeechJob
from samplers.knobs.params import SamplingParams


def _voice_name(voice: object) -> object:
    """Return the name of a voice that was given as an object."""
    return voice["id"] if isinstance(voice, dict) and list(voice) == ["id"] else voice


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
"""A voice's name, or OpenAI's object of one."""


_NAME_CHARS: Final = 200
_PRIORITIES: Final = {"normal": 0, "background": 1}


class SpeechOptions(SamplingParams):
    """How to speak: every sampling knob, flat, beside what the knobs do not say.

    On the wire `null` is a field's default, wherever there is one.
    """

    model: str | None = Field(
        None,
        max_length=_NAME_CHARS,
        description="A name of GET /v1/models, or OpenAI's with a date; none is the first.",
    )
    voice: VoiceName = Field(
        None,
        description="A voice of GET /v1/audio/voices, or an object with its `id`; `default` or"
        " none is the model's default.",
    )
    language: str | None = Field(
        None, max_length=35, description="Language of the text; none is the voice's."
    )
    speed: float = Field(
        1.0, ge=0.25, le=4, description="How fast the speech is played, at the same pitch."
    )
    loudness_lufs: float | None = Field(
        None,
        ge=-40,
        le=-10,
        description="How loud it is to be, by ITU-R BS.1770: -16 is that of podcasts, -23 of"
        " broadcasts. None leaves it as the model gives it.",
    )
    instructions: str | None = Field(
        None, description="Accepted when empty; no model here takes instructions."
    )
    max_duration_s: float | None = Field(
        None,
        gt=0,
        le=3600,
        description="Longest speech in seconds, pauses not counted; none is by the text's length.",
    )
    priority: Literal["normal", "background"] = Field(
        "normal",
        description="background waits until no normal request does, and gives way to them while it"
        " is spoken.",
    )
    trace: bool = Field(
        False,
        description="Record what was seen and done at every code of level 0, for "
        "GET /v1/audio/speech/{id}; changes no code.",
    )

    @field_validator("instructions")
    @classmethod
    def _no_instructions(cls, instructions: str | None) -> str | None:
        if instructions and instructions.strip():
            raise ValueError("the loaded model takes no instructions")
        return instructions

    def job_of(self, text: str, job_id: str, owner: str = "", asker: str = "") -> SpeechJob:
        """Return the engine's view of this; the knobs go along as they are.

        Args:
            text: What to say.
            job_id: Unique among all jobs.
            owner: Whose it is; empty where nobody is asked for a key.
            asker: Whose share it takes.
        """
        return SpeechJob(
            id=job_id,
            text=text,
            params=self,
            voice=self.voice,
            language=self.language,
            max_duration_s=self.max_duration_s,
            trace=self.trace,
            owner=owner,
            priority=_PRIORITIES[self.priority],
            asker=asker,
            speed=self.speed,
        )


class SpeechRequest(SpeechOptions):
    """OpenAI's speech request and every sampling knob, flat."""

    model_config = ConfigDict(title="SpeechRequest")

    input: str = Field(description="What to say.")
    response_format: AudioFormat = Field(
        "mp3",
        description="Container of the sound; opus is in Ogg, aac in ADTS, pcm is 16 bits,"
        " little-endian, mono, at the 24 kHz of `X-Sample-Rate`, without a head.",
    )
    stream: bool | None = Field(
        None,
        description="Whether the sound is sent while it is made. None streams where"
        " `stream_format` is given, and otherwise all but wav and flac, whose heads tell a length.",
    )
    stream_format: Literal["audio", "sse"] = Field(
        "audio", description="How a stream is sent: as one file, or as events that hold its bytes."
    )

    @field_validator("stream_format")
    @classmethod
    def _events_are_streamed(
        cls, stream_format: Literal["audio", "sse"], info: ValidationInfo
    ) -> Literal["audio", "sse"]:
        if stream_format == "sse" and info.data.get("stream") is False:
            raise ValueError("events are always streamed; leave `stream` out")
        return stream_format

    @property
    def streamed(self) -> bool:
        """Whether the sound is to be sent while it is made."""
        if self.stream is not None:
            return self.stream
        return "stream_format" in self.model_fields_set or self.response_format in STREAMED

    def job(self, job_id: str, owner: str = "", asker: str = "") -> SpeechJob:
        """Return the engine's view of this request.

        Args:
            job_id: Unique among all jobs.
            owner: Whose it is; empty where nobody is asked for a key.
            asker: Whose share it takes.
        """
        return self.job_of(self.input, job_id, owner, asker)


class TtsRequest(SpeechRequest):
    """The same request with WAV as its default."""

    model_config = ConfigDict(title="TtsRequest")

    response_format: AudioFormat = Field("wav", description="As for /v1/audio/speech.")


class SoundQuery(BaseModel):
    """How a recent speech is to be heard again."""

    model_config = ConfigDict(extra="forbid")

    response_format: AudioFormat = Field("wav", description="Container of the sound.")


class Usage(BaseModel):
    """How much was read and made."""

    input_tokens: int = Field(description="Phonemes.")
    output_tokens: int = Field(description="Frames, one code of level 0 each.")
    total_tokens: int

    @classmethod
    def of(cls, read: int, made: int) -> Self:
        """Return the usage of so many phonemes and frames."""
        return cls(input_tokens=read, output_tokens=made, total_tokens=read + made)


class ErrorDetail(BaseModel):
    """What went wrong."""

    message: str = Field(description="For people.")
    type: Literal["invalid_request_error", "server_error"] = Field(description="Whose fault it is.")
    param: str | None = Field(description="The field at fault, dotted if nested.")
    code: str | None = Field(description="For programs; stable.")


class ErrorBody(BaseModel):
    """The body of every answer that is no success."""

    error: ErrorDetail


class VoiceItem(BaseModel):
    """A voice to choose."""

    id: str = Field(description="What `voice` takes.")
    name: str = Field(description="For people.")
    language: str
    description: str
    alias_of: str | None = Field(description="The voice that this is another name of.")
    damaged: bool = Field(
        description="Whether nothing can be read of this upload; it can only be deleted."
    )


class VoiceList(BaseModel):
    """All voices."""

    voices: list[VoiceItem]


class ModelItem(BaseModel):
    """A model to choose."""

    id: str = Field(description="What `model` takes.")
    object: Literal["model"] = "model"
    created: int = Field(0, description="Always 0: not recorded.")
    owned_by: str = "valle-serve"
    alias_of: str | None = Field(None, description="The model that this is another name of.")


class ModelList(BaseModel):
    """All models; one is loaded."""

    object: Literal["list"] = "list"
    data: list[ModelItem]


class AudioModelItem(BaseModel):
    """A model to choose, by its name alone."""

    id: str = Field(description="What `model` takes.")


class AudioModelList(BaseModel):
    """All models, as Open WebUI asks for them."""

    models: list[AudioModelItem]


class Health(BaseModel):
    """How the engine is."""

    status: Literal["ok"] = "ok"
    state: str = Field(description="loading, warming, ready, draining or stopped.")
    model: str | None = Field(description="The loaded model's name.")
    device: str | None = Field(description="Where it runs.")
    weights: str | None = Field(description="Type of its matrices: int8 or float32.")
    decoder: str | None = Field(description="What makes sound of codes: codec or vocos.")
    queued: int = Field(description="Requests that wait.")
    running: int = Field(description="Requests that are being spoken.")
    slots: int = Field(description="Rows that can draw together.")
    used_slots: int = Field(description="Rows that running requests have.")
    deterministic: bool | None = Field(
        description="Whether a request among others had the codes that it has alone, as tried when"
        " the model was loaded; null before."
    )
    streams: int | None = Field(
        description="How many listeners this machine serves at once without a gap, as measured at"
        " the start and while it speaks; more wait. Null before."
    )
    first_audio_s: float | None = Field(
        description="Seconds after which a request that came now would give its first sound; null"
        " while none is taken."
    )
    golden: str | None = Field(
        description="How many golden requests had the codes that are stored with the model, as in"
        " 20/20; null where TTS_CHECK_GOLDEN is off or the model has none."
    )
    batching: str | None = Field(
        description="How rows of level 0 are computed on a CPU so that each has the same bits in"
        " every batch, as measured: in integers, padded to 4 rows, ..., row by row; empty on a GPU."
    )
    heartbeat_age_s: float = Field(description="Seconds since a worker of the engine last moved.")


class Ready(BaseModel):
    """Requests are taken."""

    status: Literal["ready"] = "ready"
    model: str
