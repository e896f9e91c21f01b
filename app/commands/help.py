"""The help of commands that have more fields than act, and what an unknown flag may mean."""

import re
from argparse import ArgumentParser, BooleanOptionalAction
from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any, Final, get_args

from pydantic import AliasChoices, BaseModel
from pydantic.fields import FieldInfo

from app.commands.errors import CommandError

KNOBS: Final = "--help-knobs"

_USAGES: Final = {
    "speak": "valle-serve speak [TEXT] [-o FILE] [--play] [flags]",
    "batch": "valle-serve batch FILE OUT [flags]",
}
_REQUEST_GROUP: Final = "request"  # seed and preset, which belong into the short help


def asked_help(name: str, command: Any, arguments: Sequence[str]) -> str | None:
    """Return the help text that the arguments of a command ask for, or None: argparse has it.

    `shown` of its class names the fields to show, those of most use first. ``speak --help-knobs``
    describes every sampling knob, or those of the groups named after it.
    """
    if name == "speak" and KNOBS in arguments:
        return _knobs_help(command, arguments[arguments.index(KNOBS) + 1 :])
    if not {"-h", "--help"} & set(arguments) or not hasattr(command, "shown"):
        return None
    parser = _parser(name, command.__doc__ or "")
    parser.add_argument("-h", "--help", action="store_true", help="Show this help.")
    if name == "speak":
        parser.epilog = _about_knobs(command)
        parser.add_argument(KNOBS, metavar="GROUP", nargs="*", help="Show the sampling knobs.")
    for field in command.shown:
        _add_flag(parser, field, command.model_fields[field])
    return parser.format_help().rstrip()


def did_you_mean(message: str, command: Any) -> str:
    """Return argparse's message of unknown flags with the flags that may be meant."""
    known = _flags(command)
    near = [
        match[0]
        for flag in re.findall(r"(?<!\S)--[\w-]+", message.partition("unrecognized")[2])
        if (match := get_close_matches(flag, known, n=1))
    ]
    return f"{message}; did you mean {', '.join(near)}?" if near else message


def _flags(command: Any) -> list[str]:
    """Return the long flags of a command and of its subcommands."""
    flags: list[str] = []
    for name, field in command.model_fields.items():
        flags += [flag for flag in _names(name, field) if flag.startswith("--")]
        for kind in (field.annotation, *get_args(field.annotation)):
            if isinstance(kind, type) and issubclass(kind, BaseModel):
                flags += _flags(kind)
    return flags


def _groups(command: Any) -> dict[str, dict[str, FieldInfo]]:
    """Return the fields of `speak` by the group of their knob; "" holds those of no group."""
    groups: dict[str, dict[str, FieldInfo]] = {}
    for name, field in command.model_fields.items():
        extra = field.json_schema_extra
        hints: Any = extra.get("x-ui", {}) if isinstance(extra, dict) else {}
        group = hints.get("group", "")
        groups.setdefault("" if group == _REQUEST_GROUP else group, {})[name] = field
    return groups


def _about_knobs(command: Any) -> str:
    """Return how to see the knobs that the short help leaves out."""
    groups = _groups(command)
    del groups[""]
    return (
        f"Each of the {sum(map(len, groups.values()))} sampling knobs is a flag: `valle-serve speak"
        f" {KNOBS}` lists all, `{KNOBS} GROUP` those of a group: {', '.join(groups)}."
    )


def _knobs_help(command: Any, wanted: Sequence[str]) -> str:
    groups = _groups(command)
    del groups[""]
    for name in wanted:
        if name not in groups:
            raise CommandError(
                f"help-knobs: there is no group {name!r}; choose from {', '.join(groups)}"
            )
    parser = _parser(
        "speak", "The sampling knobs; docs/parameters.md has their bounds and off values."
    )
    for group in wanted or groups:
        part = parser.add_argument_group(group)
        for name, field in groups[group].items():
            _add_flag(part, name, field)
    return parser.format_help().rstrip()


def _parser(name: str, description: str) -> ArgumentParser:
    summary, program = " ".join(description.split()), f"valle-serve {name}"
    return ArgumentParser(program, _USAGES.get(name, f"{program} [flags]"), summary, add_help=False)


def _add_flag(parser: Any, name: str, field: FieldInfo) -> None:
    """Add a field's flag to a parser or to an argument group."""
    default = field.get_default(call_default_factory=True)
    plain = default is None or default is False or default == {} or default == ()
    shown = "" if plain or field.is_required() else f" (default {default})"
    text = (field.description or "").replace("%", "%%") + str(shown).replace("%", "%%")
    if any("Positional" in repr(one) for one in field.metadata):
        parser.add_argument(name, metavar=name.upper(), nargs="?", help=text)
        return
    flags = _names(name, field)
    if field.annotation is bool:
        parser.add_argument(*flags, action=BooleanOptionalAction, help=text)
    else:
        parser.add_argument(*flags, metavar=_metavar(field), help=text)


def _names(name: str, field: FieldInfo) -> list[str]:
    """Return the flags of a field."""
    alias = field.validation_alias
    names = [str(one) for one in alias.choices] if isinstance(alias, AliasChoices) else [name]
    return [f"-{one}" if len(one) == 1 else f"--{one.replace('_', '-')}" for one in names]


def _metavar(field: FieldInfo) -> str:
    """Return the placeholder of a flag's value, by its type."""
    kind = str(field.annotation)
    for word, shown in (
        ("Literal", "WORD"),
        ("dict", "JSON"),
        ("BannedSequence", "JSON"),
        ("tuple", "LIST"),
        ("Path", "FILE"),
        ("float", "NUMBER"),
        ("int", "INTEGER"),
    ):
        if word in kind:
            return shown
    return "TEXT"
