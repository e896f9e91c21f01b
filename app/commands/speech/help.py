"""The help of `valle-serve speak`: the flags of a speech request, and the knobs in their groups."""

from argparse import ArgumentParser, BooleanOptionalAction
from collections.abc import Sequence
from typing import Any, Final

from pydantic import AliasChoices
from pydantic.fields import FieldInfo

from app.commands.errors import CommandError
from app.commands.speech.options import SpeakOptions

KNOBS: Final = "--help-knobs"

_USAGE: Final = "valle-serve speak [TEXT] [-o FILE] [--play] [flags]"
_POSITIONAL: Final = "input"
_REQUEST_GROUP: Final = "request"  # seed and preset, which belong into the short help


def speak_help(arguments: Sequence[str], description: str) -> str | None:
    """Return the help text that the arguments of `speak` ask for, or None.

    ``--help`` describes the flags of a request; ``--help-knobs`` every sampling knob, or those of
    the groups named after it.

    Args:
        arguments: What follows `speak` on the command line.
        description: Of the command.

    Raises:
        CommandError: There is no such group.
    """
    if KNOBS in arguments:
        return _knobs_help(arguments[arguments.index(KNOBS) + 1 :])
    if {"-h", "--help"} & set(arguments):
        return _short_help(description)
    return None


def _groups() -> dict[str, dict[str, FieldInfo]]:
    """Return the fields of `speak` by the group of their knob; "" holds those of no group."""
    groups: dict[str, dict[str, FieldInfo]] = {}
    for name, field in SpeakOptions.model_fields.items():
        extra = field.json_schema_extra
        hints: Any = extra.get("x-ui", {}) if isinstance(extra, dict) else {}
        group = hints.get("group", "")
        groups.setdefault("" if group == _REQUEST_GROUP else group, {})[name] = field
    return groups


def _short_help(description: str) -> str:
    groups = _groups()
    plain = groups.pop("")
    knobs = sum(map(len, groups.values()))
    parser = _parser(description)
    parser.epilog = (
        f"Each of the {knobs} sampling knobs is a flag too: `valle-serve speak {KNOBS}` lists all,"
        f" `{KNOBS} GROUP` those of a group: {', '.join(groups)}."
    )
    parser.add_argument("-h", "--help", action="store_true", help="Show this help.")
    parser.add_argument(KNOBS, metavar="GROUP", nargs="*", help="Show the sampling knobs.")
    for name, field in plain.items():
        _add_flag(parser, name, field)
    return parser.format_help().rstrip()


def _knobs_help(wanted: Sequence[str]) -> str:
    groups = _groups()
    del groups[""]
    for name in wanted:
        if name not in groups:
            raise CommandError(
                f"help-knobs: there is no group {name!r}; choose from {', '.join(groups)}"
            )
    parser = _parser("The sampling knobs; docs/parameters.md has their bounds and off values.")
    for group in wanted or groups:
        part = parser.add_argument_group(group)
        for name, field in groups[group].items():
            _add_flag(part, name, field)
    return parser.format_help().rstrip()


def _parser(description: str) -> ArgumentParser:
    summary = " ".join(description.split())
    return ArgumentParser("valle-serve speak", _USAGE, summary, add_help=False)


def _add_flag(parser: Any, name: str, field: FieldInfo) -> None:
    """Add a field's flag to a parser or to an argument group."""
    default = field.get_default(call_default_factory=True)
    plain = default is None or default is False or default == {} or default == ()
    shown = "" if plain or field.is_required() else f" (default {default})"
    text = (field.description or "").replace("%", "%%") + str(shown).replace("%", "%%")
    if name == _POSITIONAL:
        parser.add_argument(name, metavar="TEXT", nargs="?", help=text)
        return
    alias = field.validation_alias
    names = [str(one) for one in alias.choices] if isinstance(alias, AliasChoices) else [name]
    flags = [f"-{one}" if len(one) == 1 else f"--{one.replace('_', '-')}" for one in names]
    if field.annotation is bool:
        parser.add_argument(*flags, action=BooleanOptionalAction, help=text)
    else:
        parser.add_argument(*flags, metavar=_metavar(field), help=text)


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
