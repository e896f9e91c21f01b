"""How a knob is declared: default, one sentence, bounds, display hints, the step it switches."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from pydantic import BaseModel, ConfigDict, Field

HEADINGS: Final[Mapping[str, str]] = {
    "request": "Seed and limits",
    "guidance": "Guidance by the text",
    "bans": "Forbidden codes",
    "length": "Length of the speech",
    "repetition": "Repetition penalties",
    "dry": "Repeated sequences (DRY)",
    "truncation": "Likely codes only (top-p, top-k, min-p)",
    "temperature": "Temperature",
    "xtc": "Without the likeliest codes (XTC)",
    "mirostat": "Steady surprise (Mirostat)",
    "ras": "Repetition-aware sampling (RAS)",
    "order": "Order of the steps",
    "backtrack": "Backtracking from loops and silences",
    "nar": "Residual levels (NAR)",
    "context": "What the model hears before the text",
    "joining": "Pauses between sentences",
    "candidates": "Best of several takes",
    "masked": "Sampling in passes (NAR-len)",
    "entropix": "By entropy and attention (entropix)",
    "playback": "Speed and loudness",
}
"""A group of knobs -> its name in words."""

_HINTS: Final = frozenset({
    "off",
    "unit",
    "step",
    "bottom",
    "top",
    "slider",
    "label",
    "values",
    "needs",
    "synonyms",
})


Needs: TypeAlias = Sequence[Mapping[str, Sequence[Any]]]
"""What must be set for a knob to act: of each mapping one of the knobs, at one of the values.

No value stands for any but the knob's off value. A knob that itself lacks what it needs is not set.
"""


class KnobSet(BaseModel):
    """Base class of the knob declarations: immutable, unknown names and NaN or infinity refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


@dataclass(frozen=True)
class SwitchesStep:
    """Annotation of a knob that switches on a step; ``random``: it does nothing to a greedy row."""

    step: str
    random: bool = False


def knob(default: Any, description: str, *, group: str, **options: Any) -> Any:
    """Declare a knob, as a field of a model; its JSON schema has hints for user interfaces, `x-ui`.

    The description is one sentence. Options are constraints of pydantic's `Field` and the hints:
    ``off``, the value at which the knob has no effect; ``unit``; ``step`` of a slider, and its ends
    ``bottom`` and ``top`` where they are not the bounds; ``slider``, False where no range is known
    over which the knob acts gradually; ``label``, the name of the few knobs that a first view
    shows; ``values`` that are worth a comparison; ``needs``, what else must be set for it to act;
    ``synonyms``, common words by which a search finds it.
    """
    bounds = {name: value for name, value in options.items() if name not in _HINTS}
    hints = {name: value for name, value in options.items() if name in _HINTS}
    ui = {"group": group, "heading": HEADINGS[group], **hints}
    return Field(default, description=description, json_schema_extra={"x-ui": ui}, **bounds)
