"""The command line; each command is a module of `app.commands`, imported when it is run.

Every flag is generated from a declaration elsewhere: those of `serve` from the settings, those of
`speak` from the request with its knobs. torch is imported lazily, so that `--help` is fast.
"""

import os
import sys
from argparse import SUPPRESS, ArgumentParser
from collections.abc import Mapping, Sequence
from errno import EDQUOT, ENOSPC
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from app.version import VERSION

if TYPE_CHECKING:
    from pydantic import ValidationError

INTERRUPTED = 130
BROKEN_PIPE = 141

_ABOUT: Final = "Text to speech, with every sampling knob in the request."


class Command(NamedTuple):
    """Module and class of a command, and its description."""

    module: str
    name: str
    description: str


COMMANDS: Final[Mapping[str, Command]] = {
    "serve": Command("app.commands.serve", "Serve", "Run the HTTP server."),
    "speak": Command(
        "app.commands.speak", "Speak", "Speak a text to a file, a pipe or the speakers."
    ),
    "batch": Command("app.commands.batch", "BatchCommand", "Speak the requests of a file."),
    "bench": Command(
        "app.commands.bench.command", "Bench", "Measure the speed of this machine or of a server."
    ),
    "study": Command(
        "app.commands.study.command",
        "Study",
        "Measure what knobs do, over values, sentences and seeds.",
    ),
    "models": Command("app.commands.models", "Models", "Download checkpoints."),
    "voices": Command(
        "app.commands.voices", "VoicesCommand", "Add, list and delete uploaded voices."
    ),
    "presets": Command("app.commands.presets", "PresetsCommand", "List the presets."),
    "keys": Command("app.commands.keys", "Keys", "Generate API keys."),
    "doctor": Command("app.commands.doctor", "Doctor", "Check this machine and say how to fix it."),
    "tools": Command(
        "lab.porting.commands", "Tools", "Inspect and convert models of others; calibrate presets."
    ),
    "warm": Command("app.commands.warm", "Warm", "Compile and cache the CPU kernels."),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command, by default of the process's arguments, and return the exit status.

    That is 0 on success, 1 on failure, 2 for invalid arguments, 130 after Ctrl-C, 143 after
    SIGTERM, 141 if the reader of stdout has closed it.
    """
    try:
        try:
            return _run(list(sys.argv[1:] if arguments is None else arguments))
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        # Python flushes stdout at exit and would raise again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE


def _run(arguments: list[str]) -> int:
    from pydantic import Field, ValidationError, create_model
    from pydantic_settings import (
        BaseSettings,
        CliApp,
        CliSettingsSource,
        CliSubCommand,
        SettingsConfigDict,
        SettingsError,
    )

    from app.commands.errors import (
        MISUSED,
        TERMINATED,
        CommandError,
        CommandFailed,
        Terminated,
    )
    from app.commands.help import CommandFlags
    from app.storage.dictionary_files import DictionaryError
    from app.storage.preset_files import PresetError

    if arguments[:1] == ["help"]:
        arguments = [*arguments[1:], "--help"]
    if not arguments:
        _overview().print_help()
        return 0
    if arguments[0] not in COMMANDS:
        if arguments[0].startswith("-"):
            _overview().parse_args(arguments)  # exits after --help and --version
        _print_errors(f"invalid choice: {arguments[0]!r}; choose one of {', '.join(COMMANDS)}")
        return MISUSED

    class Program(BaseSettings):
        model_config = SettingsConfigDict(
            cli_prog_name="valle-serve",
            cli_avoid_json=True,
            cli_enforce_required=True,
            cli_exit_on_error=False,
            cli_hide_none_type=True,
            cli_implicit_flags=True,
            cli_kebab_case=True,
            cli_parse_none_str="null",
            nested_model_default_partial_update=True,
            case_sensitive=True,
        )

        def cli_cmd(self) -> None:
            CliApp.run_subcommand(self, cli_exit_on_error=False)

    # Building the parser of all commands takes a second, that of one some milliseconds.
    module, name, description = COMMANDS[arguments[0]]
    try:
        command = getattr(import_module(module), name)
    except ModuleNotFoundError as error:
        if error.name not in {"lab", "lab.porting"}:
            raise
        _print_errors(
            f"{arguments[0]}: needs a checkout of the repository, whose folder lab has it"
        )
        return MISUSED
    subcommand: Any = CliSubCommand  # its parameter is known at run time only
    field = (subcommand[command], Field(description=description))
    program = create_model("ValleServe", __base__=Program, **{arguments[0]: field})  # type: ignore[call-overload]
    try:
        flags = CommandFlags(command, arguments)
        source = CliSettingsSource[Any](
            program,
            add_argument_method=flags.add_argument,
            add_argument_group_method=lambda parser, **_: parser,
            add_parser_method=flags.add_parser,
        )
        CliApp.run(program, cli_args=flags.arguments, cli_settings_source=source)
    except ValidationError as error:
        _print_errors(*_validation_messages(error))
    except CommandError as error:
        if str(error):
            _print_errors(str(error))
        return error.status
    except (SettingsError, PresetError, DictionaryError) as error:
        message = str(error).removeprefix("error parsing CLI: ").strip()
        _print_errors(flags.did_you_mean(message))
    except OSError as error:
        if error.errno not in {ENOSPC, EDQUOT}:
            raise
        _print_errors(f"{error.filename or 'disk'}: {error.strerror}; free some, and run it again")
        return CommandFailed.status
    except Terminated:
        return TERMINATED
    except KeyboardInterrupt:
        return INTERRUPTED
    else:
        return 0
    return MISUSED


def _overview() -> ArgumentParser:
    """Return the parser of `valle-serve` without a command: help and version."""
    parser = ArgumentParser(
        "valle-serve",
        description=_ABOUT,
        epilog="`valle-serve COMMAND --help` lists the flags of a command.",
        allow_abbrev=False,
    )
    number = VERSION
    parser.add_argument("--version", action="version", version=f"%(prog)s {number}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name, command in COMMANDS.items():
        commands.add_parser(name, help=command.description, description=SUPPRESS)
    return parser


def _validation_messages(error: "ValidationError") -> list[str]:
    """Return `field: message` for each problem, without the name of the command."""
    sentences = []
    for problem in error.errors():
        field = ".".join(map(str, problem["loc"][1:])).replace("_", "-")
        message = problem["msg"].removeprefix("Value error, ")
        sentences.append(f"{field}: {message}" if field else message)
    return sentences


def _print_errors(*messages: str) -> None:
    for message in messages:
        print(message, file=sys.stderr)
