"""How long a speech will be, estimated from its text, and the bound on it."""

import math
from collections.abc import Sequence
from dataclasses import replace

from app.engine.errors import InvalidRequest
from app.engine.job import USUAL_PHONEME_S, SpeechJob
from app.engine.serving.forecast import pauses_s as pauses_of
from models.text import Utterance


def limited(
    job: SpeechJob,
    utterances: Sequence[Utterance],
    pause_s: float,
    frame_rate_hz: float,
    max_audio_s: float,
) -> SpeechJob:
    """Return a job with `max_duration_s` such that its audio cannot exceed a limit.

    Args:
        job: The job; the audio of earlier jobs of the same speech counts.
        utterances: Its text, as phonemes.
        pause_s: Seconds of silence between two utterances where the text asks for no other.
        frame_rate_hz: Frames a second.
        max_audio_s: The limit in seconds of audio as it is held or sent; a `speed` above 1 does not
            raise it.

    Raises:
        InvalidRequest: Its pauses, and its text at the usual pace, exceed the limit.
    """
    if math.isinf(max_audio_s):
        return job
    stretched = max(1.0, 1.0 / job.speed)
    pauses_s = pauses_of(utterances, pause_s, more=job.more)
    spoken_s = USUAL_PHONEME_S * sum(len(one.phonemes) for one in utterances)
    before_s = job.before.audio_s + job.before.pause_owed_s if job.before else 0.0
    drawn_s = job.before.frames / frame_rate_hz if job.before else 0.0
    if job.max_duration_s is not None:
        spoken_s = min(spoken_s, max(0.0, job.max_duration_s - drawn_s))
    lasts_s = stretched * (before_s + spoken_s + pauses_s)
    if lasts_s > max_audio_s:
        raise InvalidRequest(
            f"the speech would last about {lasts_s:.0f} s with its pauses and its speed,"
            f" at most {max_audio_s:g} s are allowed",
            param="input",
        )
    left_s = drawn_s + max_audio_s / stretched - before_s - pauses_s
    return replace(job, max_duration_s=min(left_s, job.max_duration_s or left_s))
