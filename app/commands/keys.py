"""`valle-serve keys`: generate API keys."""

from pydantic import BaseModel, Field
from pydantic_settings import CliApp, CliPositionalArg, CliSubCommand

from app.api.middleware.access.keys import NAME, hashed, new_key


class New(BaseModel):
    """Generate an API key. It is shown only once: the service stores its hash."""

    name: CliPositionalArg[str] = Field(
        pattern=f"^{NAME}$",
        description="Owner of the key: up to 32 of a-z 0-9 _ -. An owner may have several keys.",
    )

    def cli_cmd(self) -> None:
        """Print the key and its line for the key file."""
        key = new_key()
        print(f"key   {key}")
        print(f"line  {self.name}:{hashed(key)}")


class Keys(BaseModel):
    """Generate API keys."""

    new: CliSubCommand[New] = Field(
        description="Generate a key and its line for TTS_API_KEYS_FILE."
    )

    def cli_cmd(self) -> None:
        """Run the subcommand."""
        CliApp.run_subcommand(self, cli_exit_on_error=False)
