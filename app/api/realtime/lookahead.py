"""How many words ahead the text of a live speech is read, where its request does not say."""

from collections.abc import Mapping

from app.engine.core import SpeechJob
from app.engine.interface import ModelInfo
from samplers.knobs.features import sequences_of
from samplers.knobs.params import SamplingParams

_KNOB = "text_lookahead_words"


def with_lookahead(
    job: SpeechJob, presets: Mapping[str, SamplingParams], info: ModelInfo, usual: int
) -> SamplingParams:
    """Return the knobs of a job whose text comes over a socket, with its look-ahead.

    That of the request comes first, then that of the take that it goes on from, of its preset, and
    the usual one. This is left out where whole takes are chosen from, or the model cannot.
    ``presets`` have every knob.
    """
    params = job.params
    known = presets.get(params.preset)
    if _KNOB in params.model_fields_set or known is None:
        return params
    asked = known.model_copy(update=params.model_dump(exclude_unset=True))
    words = known.text_lookahead_words
    if job.part.kept is not None:
        words = job.part.kept.lookahead_words
    elif not words and asked.level_0 == "ar" and sequences_of(asked) == 1:
        words = 0 if _KNOB in info.fields else usual
    return params.model_copy(update={_KNOB: words}) if words else params
