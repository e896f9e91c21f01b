"""Sampling: every knob, and the way from a model's logits to codes.

As a library it is `from valle_serve import samplers`: see docs/library.md. The names of the library
are loaded when they are asked for: most of them load torch, which the declaration of knobs may not.
"""

from importlib import import_module
from typing import Any, Final

_MODULES: Final = {
    "PRESETS": "samplers.knobs.presets",
    "ArSampler": "samplers.ar.sampler",
    "Backtracker": "samplers.ar.backtracking",
    "RowInput": "samplers.ar.state",
    "SamplingParams": "samplers.knobs.params",
    "SlotTable": "samplers.ar.state",
    "StepResult": "samplers.ar.sampler",
    "Trace": "samplers.ar.trace",
    "columns": "samplers.ar.trace",
    "entries": "samplers.ar.trace",
    "resolve": "samplers.knobs.resolve",
}

__all__ = sorted(_MODULES)


def __getattr__(name: str) -> Any:
    """Return a name of the library."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)
