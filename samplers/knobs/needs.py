"""Knobs that do nothing because another is not set, as their declarations say. Torch-free."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from samplers.knobs.knob import Needs
from samplers.knobs.params import SamplingParams, hints

_THRESHOLDS: Final = (
    "entropix_low_entropy", "entropix_low_varentropy", "entropix_helv_entropy",
    "entropix_lehv_entropy", "entropix_hehv_entropy", "entropix_high_varentropy",
)  # fmt: skip


def idle_knobs(params: SamplingParams, sent: Collection[str]) -> dict[str, str]:
    """Return the knobs among a request's ``sent`` fields that do nothing, and what each needs."""
    return {
        name: "; ".join(_in_words(need) for need in needs_of(name))
        for name in SamplingParams.model_fields
        if name in sent and not _acts(name, params)
    }


def doubts(params: SamplingParams) -> list[str]:
    """Return what the author of a request may not expect of knobs that act, a sentence each."""
    measured = any(
        getattr(params, name) != SamplingParams.model_fields[name].default for name in _THRESHOLDS
    )
    if not params.entropix or measured:
        return []
    return [
        "entropix has the thresholds of a text model: most codes fall into one of its states; take"
        " the preset entropix, which is the built-in voice's, or one of valle-serve tools calibrate"
    ]


def needs_of(name: str) -> Needs:
    """Return what a knob needs, see `samplers.knobs.knob.Needs`; empty if nothing."""
    needs: Needs = hints(name).get("needs", ())
    return needs


def _acts(name: str, params: SamplingParams) -> bool:
    return all(any(_set(*one, params) for one in need.items()) for need in needs_of(name))


def _set(name: str, values: Sequence[Any], params: SamplingParams) -> bool:
    value = getattr(params, name)
    off = _plain(hints(name).get("off"))
    at = value in values if values else _plain(value) != off
    return at and _acts(name, params)


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _in_words(need: Mapping[str, Sequence[Any]]) -> str:
    return " or ".join(
        f"{name} {' or '.join(map(str, values))}" if values else name
        for name, values in need.items()
    )
