"""`valle-serve models`: look at checkpoints, fetch and convert them, find how they were trained."""

from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import BaseModel, Field
from pydantic_settings import CliApp, CliPositionalArg, CliSubCommand

from app.commands.errors import CommandError
from app.settings import Settings

if TYPE_CHECKING:
    from models.checkpoints.published.load import Switches

DEFAULT = "ecker/vall-e"
_NAMED = "A folder, a published file, ecker/vall-e, or owner/name@COMMIT:path/of/file."


class Inspect(BaseModel):
    """Tell what a model is, from the headers of its files alone."""

    model: CliPositionalArg[str] = Field(description=_NAMED)

    def cli_cmd(self) -> None:
        """Print a line a fact.

        Raises:
            CommandError: It is not here, or no model.
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
                        "licence": wanted.licence or "not told: see its page",
                    }
        except CheckpointError as error:
            raise CommandError(f"model: {error}") from error
        for name, fact in facts.items():
            print(f"{name:<10} {fact}")


class Download(BaseModel):
    """Fetch a model of the hub into its cache, and the codec that goes with it into TTS_CACHE."""

    model: CliPositionalArg[str] = Field(DEFAULT, description=_NAMED)

    def cli_cmd(self) -> None:
        """Fetch what is missing and print where it lies.

        Raises:
            CommandError: It is not to be had.
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
    """Write a published model as a folder of our own, its switches and LoRAs settled."""

    source: CliPositionalArg[str] = Field(description=_NAMED)
    target: CliPositionalArg[Path] = Field(description="The folder to write.")
    code_sums: Literal["inclusive", "exclusive", "none"] | None = Field(
        None, description="Which levels below a level are summed for it; none given: its era's."
    )
    nar_mask: Literal["causal", "full"] | None = Field(
        None, description="Who sees whom in NAR passes; none given: as the file says."
    )
    language_segment: bool | None = Field(
        None, description="Whether it reads the language; none given: as the file says."
    )
    lora: list[Path] = Field([], description="LoRA files to merge; the flag may be repeated.")

    def cli_cmd(self) -> None:
        """Convert and say what came of it.

        Raises:
            CommandError: The source is not sound or the target cannot be written.
        """
        from models.checkpoints.convert import convert
        from models.checkpoints.files import CheckpointError

        try:
            found = convert(_here(self.source), self.target, self._switches(), self.lora)
        except CheckpointError as error:
            raise CommandError(f"convert: {error}") from error
        print(f"{self.target}: from {found}")

    def _switches(self) -> "Switches":
        from models.checkpoints.published.load import Switches

        return Switches(self.code_sums, self.nar_mask, self.language_segment)


class Eras(BaseModel):
    """Find the switches that a published model was trained with, the likeliest first."""

    model: CliPositionalArg[str] = Field(description=_NAMED)
    codes: list[Path] = Field(
        min_length=1,
        description="Speech with its phonemes, .enc or .json; the flag may be repeated.",
    )

    def cli_cmd(self) -> None:
        """Print the loss of every combination.

        Raises:
            CommandError: The model or a file is not sound.
        """
        from models.checkpoints.files import CheckpointError
        from models.checkpoints.published.eras import eras
        from models.checkpoints.published.load import inspect_public
        from models.checkpoints.published.pairs import read_pair
        from models.text import FrontEnd

        try:
            path = _here(self.model)
            config = inspect_public(path).config
            encode = FrontEnd(config).encode
            losses = eras(path, [read_pair(file, config, encode) for file in self.codes])
        except ValueError as error:  # CheckpointError, or a vocabulary that is none
            place = "model" if isinstance(error, CheckpointError) else "codes"
            raise CommandError(f"{place}: {error}") from error
        print("nats a code, level 0 and the finer levels; the switches:")
        for loss in losses:
            print(loss)


class Models(BaseModel):
    """Look at checkpoints, fetch and convert them, find how they were trained."""

    inspect: CliSubCommand[Inspect] = Field(description="Tell what a model is.")
    download: CliSubCommand[Download] = Field(description="Fetch a model of the hub.")
    convert: CliSubCommand[Convert] = Field(description="Write a published model as a folder.")
    eras: CliSubCommand[Eras] = Field(description="Find how a published model was trained.")

    def cli_cmd(self) -> None:
        """Run the command that was chosen."""
        CliApp.run_subcommand(self, cli_exit_on_error=False)


def _here(name: str) -> Path:
    """Return the local path of a model, fetched if need be.

    Raises:
        CheckpointError: It is not to be had.
    """
    from models.checkpoints.hub import locate

    return locate(name, offline=Settings().offline)
