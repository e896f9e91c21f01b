"""The help of commands that have more flags than act, and what an unknown flag may mean.

pydantic-settings makes the flags; here it is said which of them help shows.
"""

import json
import re
from argparse import SUPPRESS, Action, ArgumentParser, RawDescriptionHelpFormatter
from ast import literal_eval
from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from functools import partial
from inspect import cleandoc
from textwrap import fill
from typing import Any, Final

from app.commands.errors import CommandError

_ALL_KNOBS: Final = "--help-knobs"

_USAGE: Final = "valle-serve speak [TEXT] [-o FILE] [--play] [flags]"
_WIDTH: Final = 95
_DEFAULT: Final = re.compile(r" \((?:default: (?P<value>.*)|ifdef: required)\)$")
_OFF: Final = frozenset({"", "null", "none", "False", "()", "[]", "{}", "*" * 10})
_WORDS: Final = {
    "str": "TEXT",
    "int": "N",
    "float": "NUMBER",
    "Path": "PATH",
    "SecretStr": "SECRET",
}
_SEVERAL: Final = re.compile(r"(?:list|tuple|set)\[(.*?)(?:,\.\.\.)?\]")
_REQUEST_GROUP: Final = "request"  # seed and preset, which belong into the short help


class CommandFlags:
    """Adds the flags of a command to its parser, of which help shows those that are asked for.

    These are the fields that `shown` of its class names, in its order, or all without it; `told`
    says in words of a command line what a field is, `preset_defaults` what knobs are without their
    flags. ``speak
    --help-knobs`` asks for every sampling knob, or for those of the groups named after it; raises
    CommandError if there is no such group.
    """

    def __init__(self, command: Any, arguments: Sequence[str]) -> None:
        self.arguments = [*arguments]
        self.flags = list[str]()
        self._shown: Sequence[str] = getattr(command, "shown", ())
        self._texts: Mapping[str, str] = getattr(command, "help_texts", {})
        defaults: Callable[[Sequence[str]], Mapping[str, Any]] = getattr(
            command, "preset_defaults", lambda _: {}
        )
        asked = {"--help", "-h", _ALL_KNOBS}.intersection(arguments)
        self._defaults = defaults(arguments) if asked else {}
        self._groups = _groups(command)
        self._known = [*dict.fromkeys(self._groups.values())]
        self._sections: dict[str, Any] = {}  # of help, by the groups that are asked for
        if self._groups and _ALL_KNOBS in arguments:
            place = arguments.index(_ALL_KNOBS)
            known = ", ".join(self._known)
            for name in (wanted := arguments[place + 1 :]):
                if name not in self._known:
                    raise CommandError(
                        f"help-knobs: there is no group {name!r}; choose from {known}"
                    )
            self._sections = dict.fromkeys(wanted or self._known)
            self.arguments[place:] = ["--help"]

    def add_parser(self, parsers: Any, name: str, **options: Any) -> ArgumentParser:
        """Add the parser of the command, or of a part of it."""
        options["description"] = cleandoc(options["description"] or "")
        options["formatter_class"] = partial(_InOrder, shown=self._shown)
        if self._groups:
            options["usage"] = _USAGE
            options["epilog"] = fill(
                f"Each of the {len(self._groups)} sampling knobs is a flag: `{_ALL_KNOBS}` lists"
                f" all, `{_ALL_KNOBS} GROUP` those of a group: {', '.join(self._known)}.",
                _WIDTH,
            )
        parser: ArgumentParser = parsers.add_parser(name, **options)
        self._sections = {group: parser.add_argument_group(group) for group in self._sections}
        if self._groups:
            more = "Show the sampling knobs; docs/parameters.md has their bounds."
            parser.add_argument(_ALL_KNOBS, metavar="GROUP", nargs="*", help=more)
        return parser

    def add_argument(self, parser: Any, *names: str, **options: Any) -> Action:
        """Add a field's flags to a parser, and note them."""
        self.flags += [name for name in names if name.startswith("--")]
        fields = {_field(name) for name in names}
        if self._sections:
            groups = self._sections.keys() & {self._groups.get(field) for field in fields}
            parser = self._sections[groups.pop()] if (shown := bool(groups)) else parser
        else:
            shown = not (self._shown and fields.isdisjoint(self._shown))
        (field, *_) = sorted(fields, key=len, reverse=True)
        options["help"] = self._help(field, options["help"]) if shown else SUPPRESS
        if isinstance(kind := options.get("metavar"), str):
            options["metavar"] = written(kind)
        action: Action = parser.add_argument(*names, **options)
        return action

    def _help(self, field: str, text: str) -> str:
        """Return the help of a field for a command line, with the default that holds here."""
        found = _DEFAULT.search(text)
        default = (found["value"] or "") if found else ""
        if found:
            text = text[: found.start()]
        if field in self._defaults:
            default = f"{_shown(self._defaults[field])}, the preset's"
        elif default[:1] == "[":
            default = ",".join(map(str, literal_eval(default)))
        text = self._texts.get(field, text)
        return text if default in _OFF else f"{text} (default: {default})"

    def did_you_mean(self, message: str) -> str:
        """Return argparse's message of unknown flags with the flags that may be meant."""
        near = [
            match[0]
            for flag in re.findall(r"(?<!\S)--[\w-]+", message.partition("unrecognized")[2])
            if (match := get_close_matches(flag, self.flags, n=1))
        ]
        return f"{message}; did you mean {', '.join(near)}?" if near else message


class _InOrder(RawDescriptionHelpFormatter):
    """Help that has fields in the order in which they are named; what is not named comes first."""

    def __init__(self, prog: str, shown: Sequence[str]) -> None:
        super().__init__(prog)
        self._places = {field: place for place, field in enumerate(shown)}

    def add_arguments(self, actions: Iterable[Action]) -> None:
        """Add the flags of a section."""
        super().add_arguments(sorted(actions, key=self._place))

    def _place(self, action: Action) -> int:
        fields = map(_field, action.option_strings or [action.dest])
        return max(self._places.get(field, -1) for field in fields)


def written(kind: str) -> str:
    """Return how a value of a type is written in help, as TEXT, N or N,... of several."""
    if kind.startswith("dict[") or "[JSON" in kind:
        return "JSON"
    # Of several names that are listed one is enough.
    kind = _SEVERAL.sub(r"\1,...", re.sub(r"(?<=\[)\{[^{}]*\}", "NAME", kind))
    return re.sub(r"\w+", lambda word: _WORDS.get(word[0], word[0]), kind)


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _field(name: str) -> str:
    """Return the field of a flag, as `--continue-from.id`, or of a positional, as `speak.input`."""
    if not name.startswith("-"):
        return name.rpartition(".")[2]
    return name.lstrip("-").partition(".")[0].replace("-", "_")


def _groups(command: Any) -> dict[str, str]:
    """Return the group of each sampling knob among the fields of a command."""
    groups: dict[str, str] = {}
    for name, field in command.model_fields.items():
        extra = field.json_schema_extra
        hints: Any = extra.get("x-ui", {}) if isinstance(extra, dict) else {}
        if (group := hints.get("group", _REQUEST_GROUP)) != _REQUEST_GROUP:
            groups[name] = group
    return groups
