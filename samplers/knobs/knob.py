"""How a knob is declared: default, one sentence, bounds, and hints for who shows it. Torch-free."""

from typing import Any

from pydantic import BaseModel, ConfigDict, Field


class Knobs(BaseModel):
    """A set of knobs that cannot be changed, and that refuses what is not one of them."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


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
    """Declare a knob, as a field of `Knobs`.

    Args:
        default: Its value where nobody sets it.
        description: One sentence.
        group: Under which heading it is shown.
        off: The value at which it does nothing, if there is one.
        unit: Of the value.
        step: Of a slider.
        top: Of a slider, where there is no upper bound.
        **bounds: As pydantic's `Field` has them: ``ge``, ``gt``, ``le``, ``lt``, ``max_length``.

    Returns:
        The field; its JSON schema carries the hints as ``x-ui``.
    """
    hints = {"group": group, "unit": unit, "off": off, "step": step, "top": top}
    ui = {name: hint for name, hint in hints.items() if hint is not None and hint != ""}
    return Field(default, description=description, json_schema_extra={"x-ui": ui}, **bounds)
