"""How a knob is declared: default, one sentence, bounds, display hints, the step it switches."""

from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict, Field


class KnobSet(BaseModel):
    """Base class of the knob declarations: immutable, unknown names and NaN or infinity refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


@dataclass(frozen=True)
class SwitchesStep:
    """Annotation of a knob that switches on a step of the chain (`samplers.knobs.order`).

    Attributes:
        step: Name of the step, as `sampler_order` lists it.
        random: Whether it has no effect on a greedy row.
    """

    step: str
    random: bool = False


def knob(
    default: Any,
    description: str,
    *,
    group: str,
    off: Any = None,
    unit: str = "",
    step: float | None = None,
    top: float | None = None,
    **bounds: Any,
) -> Any:
    """Declare a knob, as a field of a `KnobSet`.

    Args:
        default: Value of a request that does not set the knob.
        description: One sentence.
        group: Heading under which documentation and user interfaces show the knob.
        off: Value at which the knob has no effect, if there is one.
        unit: Unit of the value.
        step: Step of a slider.
        top: Upper end of a slider for a knob without an upper bound.
        **bounds: Constraints of pydantic's `Field`: ``ge``, ``gt``, ``le``, ``lt``, ``max_length``.

    Returns:
        The pydantic field; its JSON schema has the hints as ``x-ui``.
    """
    hints = ui(group, unit=unit, off=off, step=step, top=top)
    return Field(default, description=description, json_schema_extra=hints, **bounds)


def ui(
    group: str,
    *,
    unit: str = "",
    off: Any = None,
    step: float | None = None,
    top: float | None = None,
) -> dict[str, Any]:
    """Return hints for user interfaces as an addition to a JSON schema: see `knob`."""
    hints = {"group": group, "unit": unit, "off": off, "step": step, "top": top}
    return {"x-ui": {name: hint for name, hint in hints.items() if hint is not None and hint != ""}}
