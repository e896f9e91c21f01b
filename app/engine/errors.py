"""Exceptions of jobs and voices.

SpeechError
├── InvalidRequest      the request cannot be fulfilled; `param` names the field
│   └── VoiceDamaged    an uploaded voice cannot be read, only deleted
├── UnknownVoice        no voice of that name
├── UnknownModel        a model other than the loaded one
├── UnknownSpeech       no response of that id is stored
├── VoiceExists         the name of a new voice is taken
├── Forbidden           the caller may not do that
│   ├── VoiceLimit      no more voices can be uploaded
│   └── VoiceProtected  the voice is not the caller's to delete
├── Unavailable         the request is valid: retry after `retry_after_s`
│   ├── EngineBusy      the queue is full
│   └── EngineNotReady  loading, draining, stopped or failed
├── DeadlineExceeded    it took longer than the operator allows
├── ReaderStalled       its reader took no audio for longer than the operator allows
└── GenerationFailed    this job failed; others continue
    └── EndedWorker     it ended the process that did its work

`code` is a stable identifier for programs. `app.api.errors` maps these to HTTP responses.
"""

import logging
from typing import ClassVar, Literal

log = logging.getLogger(__name__)


class SpeechError(Exception):
    """A job was refused, or ended without a result; ``code`` is a stable identifier of the kind."""

    code: ClassVar[str] = "speech_error"
    param: str | None = None  # name of the request's field at fault, or None

    def __init__(self, message: str, *, param: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.param = self.param if param is None else param


class InvalidRequest(SpeechError):
    """The request cannot be fulfilled, whenever it is sent."""

    code = "invalid_value"


class VoiceDamaged(InvalidRequest):
    """An uploaded voice cannot be read: it is to be deleted and uploaded again."""

    code = "voice_damaged"
    param = "voice"


class UnknownVoice(SpeechError):
    """There is no voice of that name."""

    code = "voice_not_found"
    param = "voice"


class UnknownModel(SpeechError):
    """The request names a model other than the loaded one."""

    code = "model_not_found"
    param = "model"


class UnknownSpeech(SpeechError):
    """No response of that id is stored: it never was, or newer ones replaced it."""

    code = "speech_not_found"
    param = "id"


class VoiceExists(SpeechError):
    """There is already a voice of that name."""

    code = "voice_exists"
    param = "name"


class Forbidden(SpeechError):
    """The caller may not do that, whenever the request is sent."""

    code = "forbidden"


class VoiceLimit(Forbidden):
    """The limit of uploaded voices is reached."""

    code = "voice_limit"


class VoiceProtected(Forbidden):
    """The caller can use the voice, but not delete it."""

    code = "voice_protected"


class Unavailable(SpeechError):
    """The same request may succeed after `retry_after_s` seconds."""

    code = "unavailable"

    def __init__(self, message: str, *, retry_after_s: int) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class EngineBusy(Unavailable):
    """The queue is full."""

    code = "engine_busy"


class EngineNotReady(Unavailable):
    """The engine is loading, draining, stopped or failed."""

    code = "engine_not_ready"


class DeadlineExceeded(SpeechError):
    """The request took longer, queue included, than the operator allows."""

    code = "deadline_exceeded"


class ReaderStalled(SpeechError):
    """The reader took no audio for longer than the operator allows."""

    code = "reader_stalled"


class GenerationFailed(SpeechError):
    """This job failed inside the engine; others continue."""

    code = "generation_failed"


Loss = Literal["ended", "stopped", "starved", "slow"]
"""How a process was lost. It ended; or it was killed, as it computed nothing at all, or too little
for the time that it had, or all the time."""


class WorkerLost(Exception):
    """A process that a worker needs is gone and must be started again; no job is at fault."""

    def __init__(
        self,
        message: str,
        how: Loss = "ended",
        exit_code: int | None = None,
    ) -> None:
        super().__init__(message)
        self.how: Loss = how
        self.exit_code = exit_code  # minus the number of the signal that ended it; None: killed


class EndedWorker(GenerationFailed):
    """The process that did the work ended in it: the work may be the reason; `lost` says how."""

    def __init__(self, message: str, lost: WorkerLost) -> None:
        super().__init__(message)
        self.lost = lost


def broken(job_id: str, error: BaseException) -> SpeechError:
    """Return the error of a job for its reader; what is unexpected is logged."""
    if isinstance(error, SpeechError):
        return error
    log.error("job %s failed", job_id, exc_info=error)
    return GenerationFailed(
        f"the speech could not be made: {type(error).__name__}; the log says more"
    )
