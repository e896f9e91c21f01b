"""`valle-serve models`: inspect, download, convert checkpoints; find how they were trained."""

from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import BaseModel, Field
from pydantic_settings import CliApp, CliPositionalArg, CliSubCommand

from app.commands.errors import CommandError
from app.settings import Settings

if TYPE_CHECKING:
    from models.checkpoints.published.load import Switches

DEFAULT = "ecker/vall-e"
_MODEL = "A folder, a published file, ecker/vall-e, or owner/name@COMMIT:path/of/file."


class Inspect(BaseModel):
    """Describe a model from the headers of its files."""

    model: CliPositionalArg[str] = Field(description=_MODEL)

    def cli_cmd(self) -> None:
        """Print one fact per line.

        Raises:
            CommandError: The model is missing or invalid.
        """
        from models.checkpoints.files import CheckpointError
        from models.checkpoints.hub import find
        from models.checkpoints.summary import summarise

        try:
            wanted = find(self.model)
            if wanted is None:
                facts = summarise(Path(self.model)).lines()
            else:
                here = wanted.local()
                facts = {"hub": f"{wanted.repo}, commit {wanted.revision}, {wanted.path}"}
                if here.is_file():
                    facts |= summarise(here, wanted.licence).lines()
                else:
                    facts |= {
                        "here": f"no: `valle-serve models download {self.model}`",
                        "bytes": f"{wanted.size_bytes:,}" if wanted.size_bytes else "unknown",
                        "licence": wanted.licence or "unknown: see its page",
                    }
        except CheckpointError as error:
            raise CommandError(f"model: {error}") from error
        for name, fact in facts.items():
            print(f"{name:<10} {fact}")


class Download(BaseModel):
    """Download a model into the hub's cache, and its codec into TTS_CACHE."""

    model: CliPositionalArg[str] = Field(DEFAULT, description=_MODEL)

    def cli_cmd(self) -> None:
        """Download what is missing and print the paths.

        Raises:
            CommandError: The download failed.
        """
        from models.checkpoints.encodec import official_file
        from models.checkpoints.files import CheckpointError
        from models.checkpoints.hub import locate
        from models.checkpoints.vocos import vocos_file

        settings = Settings()
        cache = Path(settings.cache)
        try:
            print(locate(self.model, offline=settings.offline))
            print(official_file(cache, offline=settings.offline))
            if settings.decoder == "vocos":
                print(vocos_file(cache, offline=settings.offline))
        except CheckpointError as error:
            raise CommandError(f"model: {error}") from error


class Convert(BaseModel):
    """Convert a published model to a folder of our format, with its switches and LoRAs applied."""

    source: CliPositionalArg[str] = Field(description=_MODEL)
    target: CliPositionalArg[Path] = Field(description="The folder to write.")
    code_sums: Literal["inclusive", "exclusive", "none"] | None = Field(
        None, description="Which lower levels are summed for a level; default by the model's era."
    )
    nar_mask: Literal["causal", "full"] | None = Field(
        None, description="Attention mask of NAR passes; default as in the file."
    )
    language_segment: bool | None = Field(
        None, description="Whether the input has a language; default as in the file."
    )
    lora: list[Path] = Field([], description="LoRA files to merge; the flag may be repeated.")

    def cli_cmd(self) -> None:
        """Convert and print a summary.

        Raises:
            CommandError: The source is invalid or the target cannot be written.
        """
        from models.checkpoints.convert import convert
        from models.checkpoints.files import CheckpointError

        try:
            found = convert(_local_path(self.source), self.target, self._switches(), self.lora)
        except CheckpointError as error:
            raise CommandError(f"convert: {error}") from error
        print(f"{self.target}: from {found}")

    def _switches(self) -> "Switches":
        from models.checkpoints.published.load import Switches

        return Switches(self.code_sums, self.nar_mask, self.language_segment)


class Eras(BaseModel):
    """Find the switches that a published model was trained with, likeliest first."""

    model: CliPositionalArg[str] = Field(description=_MODEL)
    codes: list[Path] = Field(
        min_length=1,
        description="Codes with their phonemes, .enc or .json; the flag may be repeated.",
    )

    def cli_cmd(self) -> None:
        """Print the loss of every combination.

        Raises:
            CommandError: The model or a file is invalid.
        """
        from models.checkpoints.files import CheckpointError
        from models.checkpoints.published.eras import eras
        from models.checkpoints.published.load import inspect_public
        from models.checkpoints.published.pairs import read_pair
        from models.text import FrontEnd

        try:
            path = _local_path(self.model)
            config = inspect_public(path).config
            encode = FrontEnd(config).encode
            losses = eras(path, [read_pair(file, config, encode) for file in self.codes])
        except ValueError as error:  # CheckpointError, or an invalid vocabulary
            place = "model" if isinstance(error, CheckpointError) else "codes"
            raise CommandError(f"{place}: {error}") from error
        print("nats per code, level 0 and the finer levels; the switches:")
        for loss in losses:
            print(loss)


class Models(BaseModel):
    """Inspect, download and convert checkpoints, and find how they were trained."""

    inspect: CliSubCommand[Inspect] = Field(description="Describe a model.")
    download: CliSubCommand[Download] = Field(description="Download a model.")
    convert: CliSubCommand[Convert] = Field(description="Convert a published model to a folder.")
    eras: CliSubCommand[Eras] = Field(description="Find how a published model was trained.")

    def cli_cmd(self) -> None:
        """Run the subcommand."""
        CliApp.run_subcommand(self, cli_exit_on_error=False)


def _local_path(name: str) -> Path:
    """Return the local path of a model, downloaded if necessary.

    Raises:
        CheckpointError: It does not exist or cannot be downloaded.
    """
    from models.checkpoints.hub import locate

    return locate(name, offline=Settings().offline)
