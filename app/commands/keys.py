"""`valle-serve keys`: keys for those who may use a service."""

from pydantic import BaseModel, Field
from pydantic_settings import CliApp, CliPositionalArg, CliSubCommand

from app.api.gate.keys import NAME, hashed, new_key


class New(BaseModel):
    """Make a key. It is shown this once: a service keeps no more than the line for its file."""

    name: CliPositionalArg[str] = Field(
        pattern=f"^{NAME}$",
        description="Whose it is: up to 32 of a-z 0-9 _ -. A name may have several keys.",
    )

    def cli_cmd(self) -> None:
        """Print the key, and the line that lets it in."""
        key = new_key()
        print(f"key   {key}")
        print(f"line  {self.name}:{hashed(key)}")


class Keys(BaseModel):
    """Make keys for those who may use a service."""

    new: CliSubCommand[New] = Field(
        description="Make a key and the line of TTS_API_KEYS_FILE that lets it in."
    )

    def cli_cmd(self) -> None:
        """Run the command that was chosen."""
        CliApp.run_subcommand(self, cli_exit_on_error=False)
