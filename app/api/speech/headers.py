"""The headers of an answer with a speech."""

import json
from collections.abc import (
    Collection,
)
from typing import Final, TypeVar

from fastapi import Response

from app.api.history.writer import warnings_for
from app.api.schemas import (
    Usage,
)
from app.engine.core import Plan, SpeechJob, SpeechResult
from samplers.knobs.features import idle_knobs

AnyResponse = TypeVar("AnyResponse", bound=Response)

_MOST_LISTED: Final = 20  # of what was left out, in a header


def opening_headers(speech: Plan | SpeechResult, voice: str, sample_rate_hz: int) -> dict[str, str]:
    """Return the headers that are known when the first audio is: of a streamed response."""
    return {
        "X-Seed": str(speech.seed),
        "X-Preset": speech.params.preset,
        "X-Voice": voice,
        "X-NAR": speech.nar,
        "X-Decoder": speech.decoder,
        "X-Sample-Rate": str(sample_rate_hz),
    }


def result_headers(
    result: SpeechResult, sample_rate_hz: int, audio_s: float, first_audio_s: float
) -> dict[str, str]:
    """Return the headers of a whole response; `first_audio_s` is counted from the request."""
    times = result.timings
    usage = Usage.of(result)
    stages = {
        "queue": times.queue_s,
        "text": times.text_s,
        "ar": times.ar_s,
        "nar": times.nar_s,
        "codec": times.codec_s,
        "total": times.total_s,
    }
    return opening_headers(result, result.voice, sample_rate_hz) | {
        "X-Finish-Reason": result.finish_reason,
        "X-Backtracks": str(result.backtracks),
        "X-Codes-SHA256": result.codes_sha256,
        "X-Frames": str(result.frames),
        "X-Audio-Ms": f"{1000 * audio_s:.0f}",
        "X-Queue-Ms": f"{1000 * times.queue_s:.1f}",
        "X-TTFA-Ms": f"{1000 * first_audio_s:.1f}",
        "X-RTF": f"{result.real_time_factor:.3f}",
        "X-Prompt-Tokens": str(usage.input_tokens),
        "X-Completion-Tokens": str(usage.output_tokens),
        "Server-Timing": ", ".join(f"{n};dur={1000 * s:.1f}" for n, s in stages.items()),
    }


def add_ignored_header(answer: AnyResponse, fields: Collection[str]) -> AnyResponse:
    """Return a response whose header names the request's fields that did nothing, if any."""
    named = [*filter(None, [answer.headers.get("X-Ignored")]), *fields]
    if named:
        answer.headers["X-Ignored"] = ", ".join(named)
    return answer


def add_warning_headers(
    answer: AnyResponse, job: SpeechJob, speech: Plan | SpeechResult
) -> AnyResponse:
    """Return a response whose headers name the knobs that did nothing, and warn of the rest.

    What was left out of the text is a JSON list besides; headers are ASCII, with escapes.
    """
    add_ignored_header(answer, idle_knobs(speech.params, job.params.model_fields_set))
    if warnings := warnings_for(job.text, speech):
        escaped = "; ".join(warnings).encode("unicode_escape")  # control characters, too
        answer.headers["X-Warning"] = escaped.decode()
    if speech.left_out:
        answer.headers["X-Left-Out"] = json.dumps(speech.left_out[:_MOST_LISTED])
    return answer
