"""What the routes may answer, for the OpenAPI document, and the headers that tell of a speech."""

from typing import Any

from app.api.schemas import ErrorBody, SpeechRequest
from app.engine.job import SpeechResult
from app.engine.speaking import Plan

Answers = dict[int | str, dict[str, Any]]


def error_answers(**reasons: str) -> Answers:
    """Return the failures of a route: ``_404="Why."`` and the like."""
    return {
        int(status[1:]): {"model": ErrorBody, "description": reason}
        for status, reason in reasons.items()
    }


NOT_READY = error_answers(_503="Not ready; come back in Retry-After seconds.")
SPEECH_ANSWERS: Answers = {
    200: {
        "description": "The sound; streamed, it ends early where the speech breaks.",
        "content": {"audio/wav": {}, "audio/pcm": {}},
    },
    **error_answers(
        _404="No such voice or model.",
        _413="The body is too large.",
        _415="The body is not JSON.",
        _422="A field is wrong; `param` names it.",
        _500="The speech could not be made.",
        _503="Busy or not ready; come back in Retry-After seconds.",
        _504="It took longer than this server allows.",
    ),
}
SPEECH_BODY = {
    "requestBody": {
        "required": True,
        "content": {"application/json": {"schema": SpeechRequest.model_json_schema()}},
    }
}


def opening_headers(plan: Plan, sample_rate_hz: int) -> dict[str, str]:
    """Return what is known of a speech when its first sound is."""
    return {
        "X-Seed": str(plan.seed),
        "X-Preset": plan.params.preset,
        "X-Voice": plan.voice.name,
        "X-NAR": plan.nar,
        "X-Decoder": plan.decoder,
        "X-Sample-Rate": str(sample_rate_hz),
    }


def result_headers(result: SpeechResult, sample_rate_hz: int) -> dict[str, str]:
    """Return what is worth knowing of a whole speech."""
    times = result.timings
    stages = {
        "queue": times.queue_s,
        "text": times.text_s,
        "ar": times.ar_s,
        "nar": times.nar_s,
        "codec": times.codec_s,
        "total": times.total_s,
    }
    return {
        "X-Seed": str(result.seed),
        "X-Preset": result.params.preset,
        "X-Voice": result.voice,
        "X-NAR": result.nar,
        "X-Decoder": result.decoder,
        "X-Sample-Rate": str(sample_rate_hz),
        "X-Finish-Reason": result.finish_reason,
        "X-Backtracks": str(result.backtracks),
        "X-Codes-SHA256": result.codes_sha256,
        "X-Frames": str(result.frames),
        "X-Audio-Ms": f"{1000 * result.audio_s:.0f}",
        "X-Queue-Ms": f"{1000 * times.queue_s:.1f}",
        "X-RTF": f"{result.real_time_factor:.3f}",
        "Server-Timing": ", ".join(f"{n};dur={1000 * s:.1f}" for n, s in stages.items()),
    }
