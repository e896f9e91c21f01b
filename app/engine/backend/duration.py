"""How long a speech will last, told from its text before any of it is made."""

import math
from collections.abc import Sequence
from dataclasses import replace

from app.engine.errors import InvalidRequest
from app.engine.job import SpeechJob
from models.text import Utterance

USUAL_SECONDS_A_PHONEME = 0.08
"""Speech has 10 to 15 phonemes a second."""


def limited(
    job: SpeechJob,
    utterances: Sequence[Utterance],
    pause_s: float,
    frame_rate_hz: float,
    max_audio_s: float,
) -> SpeechJob:
    """Return a job that cannot last longer than a limit, however slowly it is spoken.

    Args:
        job: What was asked for; what earlier jobs spoke of the same speech counts.
        utterances: Its text, read.
        pause_s: Silence between two utterances where the text asks for none in particular.
        frame_rate_hz: Frames in a second.
        max_audio_s: The limit, of all that is held or sent: a speed above 1 extends it by nothing.

    Raises:
        InvalidRequest: Its pauses and its words at the usual pace are more than that.
    """
    if math.isinf(max_audio_s):
        return job
    stretched = max(1.0, 1.0 / job.speed)
    asked = [one.pause_after_s for one in utterances]
    pauses_s = sum(pause_s if one is None else one for one in asked)
    if asked and asked[-1] is None and not job.more:
        pauses_s -= pause_s  # nothing follows
    spoken_s = USUAL_SECONDS_A_PHONEME * sum(len(one.phonemes) for one in utterances)
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
