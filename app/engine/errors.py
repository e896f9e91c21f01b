"""What can go wrong with a job, in the engine's own words.

SpeechError
├── InvalidRequest      the caller asked for what cannot be done; `param` names the field
│   └── VoiceDamaged    nothing can be read of an uploaded voice; it can be deleted
├── UnknownVoice        no voice of that name
├── UnknownModel        another model than the loaded one
├── UnknownSpeech       no response of that id is kept
├── VoiceExists         the name of a new voice is not free
├── Forbidden           the caller may not do that
│   ├── VoiceLimit      no more voices are taken
│   └── VoiceProtected  the voice is not the caller's to delete
├── Unavailable         nothing wrong with the request: come back in `retry_after_s`
│   ├── EngineBusy      the queue is full
│   └── EngineNotReady  loading, draining, stopped or failed
├── DeadlineExceeded    it took longer than the operator allows
├── ReaderStalled       its reader took nothing for longer than the operator allows
└── GenerationFailed    this job broke; others go on

`code` is a stable word for programs. What these are in HTTP is the business of `app.api.errors`.
"""

import logging
from typing import ClassVar

log = logging.getLogger(__name__)


class SpeechError(Exception):
    """A job was refused or ended without speech."""

    code: ClassVar[str] = "speech_error"

    def __init__(self, message: str, *, param: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.param = param


class InvalidRequest(SpeechError):
    """The request asks for what cannot be done, whenever it is sent."""

    code = "invalid_value"


class VoiceDamaged(InvalidRequest):
    """Nothing can be read of an uploaded voice: it is there to be deleted and uploaded again."""

    code = "voice_damaged"

    def __init__(self, message: str) -> None:
        super().__init__(message, param="voice")


class UnknownVoice(SpeechError):
    """There is no voice of that name."""

    code = "voice_not_found"

    def __init__(self, message: str) -> None:
        super().__init__(message, param="voice")


class UnknownModel(SpeechError):
    """The loaded model has another name."""

    code = "model_not_found"

    def __init__(self, message: str) -> None:
        super().__init__(message, param="model")


class UnknownSpeech(SpeechError):
    """No response of that id is kept: it never was, or newer ones took its place."""

    code = "speech_not_found"

    def __init__(self, message: str) -> None:
        super().__init__(message, param="id")


class VoiceExists(SpeechError):
    """There is a voice of that name already."""

    code = "voice_exists"

    def __init__(self, message: str) -> None:
        super().__init__(message, param="name")


class Forbidden(SpeechError):
    """The caller may not do that, whenever it is asked."""

    code = "forbidden"


class VoiceLimit(Forbidden):
    """As many voices were uploaded as may be."""

    code = "voice_limit"


class VoiceProtected(Forbidden):
    """The voice may be used but not deleted by who asks."""

    code = "voice_protected"


class Unavailable(SpeechError):
    """The same request may succeed later."""

    code = "unavailable"

    def __init__(self, message: str, *, retry_after_s: int) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class EngineBusy(Unavailable):
    """As many requests wait as may."""

    code = "engine_busy"


class EngineNotReady(Unavailable):
    """The engine is loading, draining, stopped or failed."""

    code = "engine_not_ready"


class DeadlineExceeded(SpeechError):
    """The request took longer, queue included, than the operator allows."""

    code = "deadline_exceeded"


class ReaderStalled(SpeechError):
    """Sound was waiting, and its reader took none of it for longer than the operator allows."""

    code = "reader_stalled"


class GenerationFailed(SpeechError):
    """This job broke inside the engine."""

    code = "generation_failed"


class WorkerLost(Exception):
    """What a worker of the engine needs is gone, and must be started again; no job is at fault."""


def broken(job_id: str, error: BaseException) -> GenerationFailed:
    """Log a mistake of ours; return what its reader may know of it."""
    log.error("job %s broke", job_id, exc_info=error)
    return GenerationFailed(
        f"the speech could not be made: {type(error).__name__}; the log says more"
    )
