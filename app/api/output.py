"""The output options of a request: container, speed and loudness."""

from app.api.schemas import SpeechOptions
from app.audio.formats import AudioFormat
from app.audio.rendering import OutputOptions
from app.engine.job import SpeechJob


def output_of(job: SpeechJob, form: AudioFormat) -> OutputOptions:
    """Return the speed and loudness that a job's request asks for, in the given container.

    Args:
        job: Its `params` are the request's body.
        form: The container.
    """
    asked = job.params
    if not isinstance(asked, SpeechOptions):
        return OutputOptions(form)
    return OutputOptions(form, asked.speed, asked.loudness_lufs)
