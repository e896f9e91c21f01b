"""`valle-serve models`: download checkpoints."""

from pathlib import Path

from pydantic import BaseModel, Field
from pydantic_settings import CliApp, CliPositionalArg, CliSubCommand

from app.commands.errors import CommandError
from app.settings import Settings

_DEFAULT = "ecker/vall-e"
MODEL_NAMES = "A folder, a published file, ecker/vall-e, or owner/name@COMMIT:path/of/file."


class DownloadModel(BaseModel):
    """Download a model into the hub's cache, and its codec into TTS_CACHE."""

    model: CliPositionalArg[str] = Field(_DEFAULT, description=MODEL_NAMES)

    def cli_cmd(self) -> None:
        """Download what is missing and print the paths."""
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


class Models(BaseModel):
    """Download checkpoints."""

    download: CliSubCommand[DownloadModel] = Field(description="Download a model.")

    def cli_cmd(self) -> None:
        """Run the subcommand."""
        CliApp.run_subcommand(self, cli_exit_on_error=False)
