"""The samplers as a library, `from valle_serve import samplers`: see docs/library.md.

`valle_serve.hf` runs them over models of `transformers`.
"""

from valle_serve import look_in_lib

look_in_lib()

from samplers.ar.backtracking import Backtracker  # noqa: E402
from samplers.ar.sampler import ArSampler, StepResult  # noqa: E402
from samplers.ar.state import RowInput, SlotTable  # noqa: E402
from samplers.ar.trace import Trace, columns, entries  # noqa: E402
from samplers.knobs.params import SamplingParams  # noqa: E402
from samplers.knobs.presets import PRESETS  # noqa: E402
from samplers.knobs.resolve import resolve  # noqa: E402

__all__ = [
    "PRESETS",
    "ArSampler",
    "Backtracker",
    "RowInput",
    "SamplingParams",
    "SlotTable",
    "StepResult",
    "Trace",
    "columns",
    "entries",
    "resolve",
]
