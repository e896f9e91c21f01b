"""What goes over the wire as JSON. Loads without torch.

A `SpeechRequest` is a `SamplingParams`: no knob is named here. Nothing that a caller sends is
ignored: what is not supported is refused, and says so.
"""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from app.engine.job import SpeechJob
from samplers.params import SamplingParams

OPENAI_MODELS = ("tts-1", "tts-1-hd", "gpt-4o-mini-tts")
"""Names that OpenAI's clients send; each means the loaded model."""


class SpeechOptions(SamplingParams):
    """How to speak: every sampling knob, flat, beside what the knobs do not say."""

    model: str | None = Field(
        None, description="The loaded model's name or one of OpenAI's; none is the loaded model."
    )
    voice: str | None = Field(
        None, description="A voice of GET /v1/audio/voices; `default` or none is the first."
    )
    language: str | None = Field(None, description="Language of the text; none is the voice's.")
    speed: float = Field(1.0, description="Only 1 so far.")
    instructions: str | None = Field(
        None, description="Accepted when empty; no model here takes instructions."
    )
    max_duration_s: float | None = Field(
        None,
        gt=0,
        le=3600,
        description="Longest speech in seconds, pauses not counted; none is by the text's length.",
    )
    trace: bool = Field(
        False,
        description="Record what was seen and done at every code of level 0, for "
        "GET /v1/audio/speech/{id}; changes no code.",
    )

    @field_validator("speed")
    @classmethod
    def _one_speed(cls, speed: float) -> float:
        if speed != 1:
            raise ValueError("only speed 1 is supported")
        return speed

    @field_validator("instructions")
    @classmethod
    def _no_instructions(cls, instructions: str | None) -> str | None:
        if instructions and instructions.strip():
            raise ValueError("the loaded model takes no instructions")
        return instructions

    def job_of(self, text: str, job_id: str, owner: str = "") -> SpeechJob:
        """Return the engine's view of this; the knobs go along as they are.

        Args:
            text: What to say.
            job_id: Unique among all jobs.
            owner: Whose it is; empty where nobody is asked for a key.
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
        )


class SpeechRequest(SpeechOptions):
    """OpenAI's speech request and every sampling knob, flat."""

    model_config = ConfigDict(title="SpeechRequest")

    input: str = Field(description="What to say.")
    response_format: Literal["wav", "pcm"] = Field(
        "wav", description="Container of the sound; pcm is 16 bits, little-endian, mono, no header."
    )
    stream: bool | None = Field(
        None,
        description="Whether the sound is sent while it is made. None streams pcm, which has no"
        " length to tell, and sends wav whole.",
    )
    stream_format: Literal["audio"] = Field("audio", description="How the sound is sent.")

    @property
    def streamed(self) -> bool:
        """Whether the sound is to be sent while it is made."""
        return self.response_format == "pcm" if self.stream is None else self.stream

    def job(self, job_id: str, owner: str = "") -> SpeechJob:
        """Return the engine's view of this request.

        Args:
            job_id: Unique among all jobs.
            owner: Whose it is; empty where nobody is asked for a key.
        """
        return self.job_of(self.input, job_id, owner)


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


class VoiceList(BaseModel):
    """All voices."""

    voices: list[VoiceItem]


class ModelItem(BaseModel):
    """A model to choose."""

    id: str = Field(description="What `model` takes.")
    object: Literal["model"] = "model"
    created: int = Field(0, description="Always 0: not recorded.")
    owned_by: str = "valle-serve"


class ModelList(BaseModel):
    """All models; one is loaded."""

    object: Literal["list"] = "list"
    data: list[ModelItem]


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
    heartbeat_age_s: float = Field(description="Seconds since the engine's worker last moved.")


class Ready(BaseModel):
    """Requests are taken."""

    status: Literal["ready"] = "ready"
    model: str
