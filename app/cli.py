"""The command line; each command is a file of `app.commands`.

Every flag comes from a declaration elsewhere: `serve` has the settings, `speak` the request with
all its sampling knobs. torch is imported where work begins, so that `--help` is quick.
"""

import os
import sys
from collections.abc import Sequence

from pydantic import BaseModel, Field, ValidationError
from pydantic_settings import CliApp, CliSubCommand, SettingsError

from app.commands.bench import Bench
from app.commands.calibrate import Calibrate
from app.commands.doctor import Doctor
from app.commands.errors import MISUSED, CommandError
from app.commands.keys import Keys
from app.commands.models import Models
from app.commands.serve import Serve
from app.commands.speak import Speak
from app.commands.voices import VoicesCommand
from app.preset_files import PresetError

INTERRUPTED = 130
BROKEN_PIPE = 141


class ValleServe(BaseModel):
    """Speech from text, with every knob of the sampler in the request."""

    serve: CliSubCommand[Serve] = Field(description="Serve speech over HTTP.")
    speak: CliSubCommand[Speak] = Field(description="Speak a text into a file or a pipe.")
    bench: CliSubCommand[Bench] = Field(description="Measure how fast this machine speaks.")
    calibrate: CliSubCommand[Calibrate] = Field(
        description="Measure the model's uncertainty and write a preset that fits it."
    )
    models: CliSubCommand[Models] = Field(
        description="Look at checkpoints, fetch and convert them."
    )
    voices: CliSubCommand[VoicesCommand] = Field(
        description="Add, list and delete uploaded voices."
    )
    keys: CliSubCommand[Keys] = Field(description="Make keys for those who may use a service.")
    doctor: CliSubCommand[Doctor] = Field(description="Check that this machine can speak.")

    def cli_cmd(self) -> None:
        """Run the command that was chosen."""
        CliApp.run_subcommand(self, cli_exit_on_error=False)


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
    try:
        CliApp.run(ValleServe, cli_args=arguments, cli_exit_on_error=False)
    except ValidationError as error:
        _complain(*_sentences(error))
    except CommandError as error:
        _complain(str(error))
        return error.status
    except (SettingsError, PresetError) as error:
        _complain(str(error).removeprefix("error parsing CLI: ").strip())
    except KeyboardInterrupt:
        return INTERRUPTED
    else:
        return 0
    return MISUSED


def _sentences(error: ValidationError) -> list[str]:
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
