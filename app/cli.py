"""The command line; each command is a file of `app.commands`, imported when it is asked for.

Every flag comes from a declaration elsewhere: `serve` has the settings, `speak` the request with
all its sampling knobs. torch is imported where work begins, so that `--help` is quick.
"""

import os
import sys
from argparse import SUPPRESS, ArgumentParser
from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from pydantic import ValidationError

INTERRUPTED = 130
BROKEN_PIPE = 141

_ABOUT: Final = "Speech from text, with every knob of the sampler in the request."


class Command(NamedTuple):
    """Where a command is declared, and what it does."""

    module: str
    name: str
    description: str


COMMANDS: Final[Mapping[str, Command]] = {
    "serve": Command("app.commands.serve", "Serve", "Serve speech over HTTP."),
    "speak": Command("app.commands.speak", "Speak", "Speak a text into a file or a pipe."),
    "bench": Command("app.commands.bench", "Bench", "Measure how fast this machine speaks."),
    "calibrate": Command(
        "app.commands.calibrate",
        "Calibrate",
        "Measure the model's uncertainty and write a preset that fits it.",
    ),
    "models": Command(
        "app.commands.models", "Models", "Look at checkpoints, fetch and convert them."
    ),
    "voices": Command(
        "app.commands.voices", "VoicesCommand", "Add, list and delete uploaded voices."
    ),
    "keys": Command("app.commands.keys", "Keys", "Make keys for those who may use a service."),
    "doctor": Command("app.commands.doctor", "Doctor", "Check that this machine can speak."),
    "warm": Command("app.commands.warm", "Warm", "Compile what a CPU needs, once, and keep it."),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        arguments: None takes the process's own.

    Returns:
        The exit status: 0, 1 if something broke, 2 if the request cannot be met, and what a shell
        tells of a program that was interrupted, or whose output nobody reads any more.
    """
    try:
        try:
            return _run(list(sys.argv[1:] if arguments is None else arguments))
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        # Python flushes stdout once more at its end, and would complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE


def _run(arguments: list[str]) -> int:
    from pydantic import BaseModel, Field, ValidationError, create_model
    from pydantic_settings import CliApp, CliSubCommand, SettingsError

    from app.commands.errors import MISUSED, CommandError
    from app.commands.speech.help import speak_help
    from app.preset_files import PresetError

    if not arguments or arguments[0] not in COMMANDS:
        if arguments and arguments[0].startswith("-"):
            _overview().parse_args(arguments)  # help and version end here
        wrong = f"invalid choice: {arguments[0]!r}" if arguments else "a subcommand is required"
        _complain(f"{wrong}; choose one of {', '.join(COMMANDS)}")
        return MISUSED

    class Program(BaseModel):
        __doc__ = _ABOUT
        model_config = {"cli_prog_name": "valle-serve"}  # type: ignore[typeddict-unknown-key]

        def cli_cmd(self) -> None:
            CliApp.run_subcommand(self, cli_exit_on_error=False)

    # The parser of all commands together takes a second to make, that of one some milliseconds.
    module, name, description = COMMANDS[arguments[0]]
    command = getattr(import_module(module), name)
    subcommand: Any = CliSubCommand  # as of here: what it takes is known at run time
    field = (subcommand[command], Field(description=description))
    program = create_model("ValleServe", __base__=Program, **{arguments[0]: field})  # type: ignore[call-overload]
    try:
        if arguments[0] == "speak" and (told := speak_help(arguments[1:])) is not None:
            print(told)
            return 0
        CliApp.run(program, cli_args=arguments, cli_exit_on_error=False)
    except ValidationError as error:
        _complain(*_sentences(error))
    except CommandError as error:
        if str(error):
            _complain(str(error))
        return error.status
    except (SettingsError, PresetError) as error:
        _complain(str(error).removeprefix("error parsing CLI: ").strip())
    except KeyboardInterrupt:
        return INTERRUPTED
    else:
        return 0
    return MISUSED


def _overview() -> ArgumentParser:
    """Return the parser of what is no command."""
    parser = ArgumentParser(
        "valle-serve",
        description=_ABOUT,
        epilog="`valle-serve COMMAND --help` names the flags of a command.",
        allow_abbrev=False,
    )
    number = version("valle-serve")
    parser.add_argument("--version", action="version", version=f"%(prog)s {number}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name, command in COMMANDS.items():
        commands.add_parser(name, help=command.description, description=SUPPRESS)
    return parser


def _sentences(error: "ValidationError") -> list[str]:
    """Return `field: message` for each problem, without the command's name before the field."""
    sentences = []
    for problem in error.errors():
        field = ".".join(map(str, problem["loc"][1:])).replace("_", "-")
        message = problem["msg"].removeprefix("Value error, ")
        sentences.append(f"{field}: {message}" if field else message)
    return sentences


def _complain(*sentences: str) -> None:
    for sentence in sentences:
        print(sentence, file=sys.stderr)
