"""What a request for speech cannot ask for together: refused, and told by the OpenAPI document.

Loads without torch.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, get_args

from pydantic import BaseModel

from app.audio.formats import FORMAT_ALIASES, OPUS_RATES
from app.engine.core import SampleRate
from app.engine.errors import InvalidRequest
from samplers.knobs.conditions import Condition, Conditions, excluded, hold, one_of, other_than
from samplers.knobs.params import SamplingParams
from samplers.knobs.resolve import contradictions

OPUS_ONLY_AT: Final = f"opus is made at {', '.join(map(str, OPUS_RATES))} Hz"
"""Why a sample rate is refused."""


@dataclass(frozen=True)
class Exclusion:
    """Values of some fields that exclude one another, and the field that is named as at fault."""

    when: Conditions
    reason: str
    param: str


def _named(form: str) -> Condition:
    """Return all names of a format."""
    return one_of(form, *(alias for alias, meant in FORMAT_ALIASES.items() if meant == form))


_SENT: Final = Condition({"type": "number"}, lambda value: value is not None)
_NO_OPUS: Final = one_of(*(rate for rate in get_args(SampleRate) if rate not in OPUS_RATES))

EXCLUSIONS: Final[Sequence[Exclusion]] = (
    Exclusion(
        {"stream_format": one_of("sse"), "stream": one_of(False)},
        "events are always streamed; leave `stream` out",
        "stream_format",
    ),
    Exclusion(
        {"response_format": _named("codes"), "speed": other_than(1)},
        "codes have no speed: leave it out, or ask for audio",
        "speed",
    ),
    Exclusion(
        {"response_format": _named("codes"), "loudness_lufs": _SENT},
        "codes have no loudness: leave it out, or ask for audio",
        "loudness_lufs",
    ),
    Exclusion(
        {"response_format": _named("opus"), "sample_rate": _NO_OPUS}, OPUS_ONLY_AT, "sample_rate"
    ),
)


def check_together(wanted: SamplingParams) -> None:
    """Raise InvalidRequest if a request for speech asks for what cannot be together.

    Knobs that contradict each other are the planner's to refuse: a preset may have set one.
    """
    for one in EXCLUSIONS:
        if hold(one.when, wanted):
            raise InvalidRequest(one.reason, param=one.param)


def exclusions_of(kind: type[BaseModel]) -> list[dict[str, Any]]:
    """Return JSON schemas of the bodies of a kind that are refused for what they ask together."""
    if not issubclass(kind, SamplingParams):
        return []
    fields = kind.model_fields
    defaults = {name: field.default for name, field in fields.items()}
    own = [excluded(one.when, defaults) for one in EXCLUSIONS if one.when.keys() <= fields.keys()]
    return [*own, *contradictions()]
