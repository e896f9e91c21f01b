"""Sets of values, each as a test and as a JSON schema: so a document cannot say what no test does.

Loads without torch.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias


@dataclass(frozen=True)
class Condition:
    """A set of values of one field."""

    schema: Mapping[str, Any]  # JSON Schema of the values, as they are sent
    holds: Callable[[Any], bool]  # whether a value is one of them, as the field has it


Conditions: TypeAlias = Mapping[str, Condition]
"""Field -> the values that it must have; all of them must."""


def other_than(value: Any) -> Condition:
    """Return every value but one."""
    kept = tuple(value) if isinstance(value, list) else value
    return Condition({"not": {"const": value}}, lambda one: bool(one != kept))


def one_of(*values: Any) -> Condition:
    """Return some values."""
    return Condition({"enum": list(values)}, lambda one: one in values)


def above(bound: float) -> Condition:
    """Return the numbers above a bound."""
    return Condition({"exclusiveMinimum": bound}, lambda one: bool(one > bound))


def at_least(bound: float) -> Condition:
    """Return the numbers from a bound on."""
    return Condition({"minimum": bound}, lambda one: bool(one >= bound))


def at_most(bound: float) -> Condition:
    """Return the numbers up to a bound."""
    return Condition({"maximum": bound}, lambda one: bool(one <= bound))


def lacking(entry: str, named: Mapping[str, Sequence[str]]) -> Condition:
    """Return the lists without an entry, and the names of those among ``named``."""
    names = [name for name, entries in named.items() if entry not in entries]
    listed = {"type": "array", "not": {"contains": {"const": entry}}}
    return Condition(
        {"anyOf": [{"enum": names}, listed]} if names else listed,
        lambda one: entry not in (named[one] if isinstance(one, str) else one),
    )


def codes_up_to(last: int) -> Condition:
    """Return the lists of codes, and the objects whose names are codes, of which none is above."""
    names = {"items": {"minimum": 0, "maximum": last}}
    keys = {"propertyNames": {"pattern": numbers_up_to(last)}}
    return Condition({**names, **keys}, lambda codes: all(0 <= one <= last for one in codes))


def numbers_up_to(last: int) -> str:
    """Return the pattern of the decimal numbers from 0 to one, without leading zeros."""
    digits = str(last)
    count = len(digits)
    ways = ["0", f"[1-9][0-9]{{0,{count - 2}}}"] if count > 1 else []
    for place, digit in enumerate(digits):
        least = int(place == 0 and count > 1)
        if int(digit) > least:
            ways.append(f"{digits[:place]}[{least}-{int(digit) - 1}][0-9]{{{count - place - 1}}}")
    return f"^({'|'.join([*ways, digits])})$"


def hold(conditions: Conditions, source: object) -> bool:
    """Return whether an object has for each field one of its values."""
    return all(one.holds(getattr(source, field)) for field, one in conditions.items())


def excluded(
    together: Conditions, defaults: Mapping[str, Any], named: Iterable[str] = ()
) -> dict[str, Any]:
    """Return the JSON schema of the objects whose fields have all of some values.

    A field that is not sent has its default; those ``named`` must be sent all the same.
    """
    required = set(named)
    required |= {name for name, one in together.items() if not one.holds(defaults[name])}
    return {
        "required": sorted(required),
        "properties": {name: dict(one.schema) for name, one in together.items()},
    }
