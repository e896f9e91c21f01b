"""What `valle-serve speak --help` prints: the flags of a speech; the knobs by their groups."""

from argparse import ArgumentParser, BooleanOptionalAction
from collections.abc import Sequence
from typing import Any, Final

from pydantic import AliasChoices
from pydantic.fields import FieldInfo

KNOBS: Final = "--help-knobs"

_POSITIONAL: Final = "input"
_OF_REQUESTS: Final = "request"  # seed and preset, which everybody looks for


def speak_help(arguments: Sequence[str]) -> str | None:
    """Return what to print where the arguments of `speak` ask for help; else None.

    ``--help`` gives the flags that say what is spoken and where it goes, `KNOBS` those of all
    samplers, or of the groups that are named after it.

    Raises:
        CommandError: There is no such group.
    """
    if KNOBS in arguments:
        return _knobs_help(arguments[arguments.index(KNOBS) + 1 :])
    if {"-h", "--help"} & set(arguments):
        return _short_help()
    return None


def _groups() -> dict[str, dict[str, FieldInfo]]:
    """Return the fields of `speak` by the groups of their knobs; those of no group under ""."""
    from app.commands.speak import Speak

    groups: dict[str, dict[str, FieldInfo]] = {}
    for name, field in Speak.model_fields.items():
        extra = field.json_schema_extra
        hints: Any = extra.get("x-ui", {}) if isinstance(extra, dict) else {}
        group = hints.get("group", "")
        groups.setdefault("" if group == _OF_REQUESTS else group, {})[name] = field
    return groups


def _short_help() -> str:
    from app.commands.speak import Speak

    groups = _groups()
    plain = groups.pop("")
    knobs = sum(map(len, groups.values()))
    parser = _parser(Speak.__doc__ or "")
    parser.usage = "valle-serve speak [WORDS] [-o FILE] [--play] [flags]"
    parser.epilog = (
        f"The sampler has {knobs} knobs, each a flag: `valle-serve speak {KNOBS}` names them all,"
        f" `{KNOBS} GROUP` those of a group: {', '.join(groups)}."
    )
    parser.add_argument("-h", "--help", action="store_true", help="Show this.")
    parser.add_argument(KNOBS, metavar="GROUP", nargs="*", help="Show the knobs.")
    for name, field in plain.items():
        _add(parser, name, field)
    return parser.format_help().rstrip()


def _knobs_help(wanted: Sequence[str]) -> str:
    from app.commands.errors import CommandError

    groups = _groups()
    del groups[""]
    for name in wanted:
        if name not in groups:
            raise CommandError(f"help-knobs: there is no group {name!r}, but {', '.join(groups)}")
    parser = _parser("Every knob, as docs/parameters.md tells it with bounds and off values.")
    parser.usage = "valle-serve speak [WORDS] [-o FILE] [--play] [flags]"
    for group in wanted or groups:
        part = parser.add_argument_group(group)
        for name, field in groups[group].items():
            _add(part, name, field)
    return parser.format_help().rstrip()


def _parser(description: str) -> ArgumentParser:
    summary = " ".join(description.split())
    return ArgumentParser("valle-serve speak", description=summary, add_help=False)


def _add(parser: Any, name: str, field: FieldInfo) -> None:
    """Show a field as the flag that it is."""
    default = field.get_default(call_default_factory=True)
    plain = default is None or default is False or default == {} or default == ()
    shown = "" if plain or field.is_required() else f" (default {default})"
    said = (field.description or "").replace("%", "%%") + str(shown).replace("%", "%%")
    if name == _POSITIONAL:
        parser.add_argument(name, metavar="WORDS", nargs="?", help=said)
        return
    alias = field.validation_alias
    names = [str(one) for one in alias.choices] if isinstance(alias, AliasChoices) else [name]
    flags = [f"-{one}" if len(one) == 1 else f"--{one.replace('_', '-')}" for one in names]
    if field.annotation is bool:
        parser.add_argument(*flags, action=BooleanOptionalAction, help=said)
    else:
        parser.add_argument(*flags, metavar=_kind(field), help=said)


def _kind(field: FieldInfo) -> str:
    """Return what a flag takes, in a word."""
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
