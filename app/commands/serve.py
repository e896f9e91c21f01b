"""`valle-serve serve`: speech over HTTP until interrupted."""

from app import logs
from app.commands.errors import CommandError
from app.settings import Settings


class Serve(Settings):
    """Serve speech over HTTP."""

    def cli_cmd(self) -> None:
        """Serve until interrupted.

        Raises:
            CommandError: The keys cannot be read.
        """
        from app.api.keys import KeyringError
        from app.main import create_app
        from app.server import serve

        logs.configure(self.log_level, self.log_format)
        try:
            app = create_app(self)
        except KeyringError as error:
            raise CommandError(str(error)) from error
        serve(app, self)
