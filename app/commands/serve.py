"""`valle-serve serve`: speech over HTTP until interrupted."""

import logging

from app import logs
from app.commands.checks.device import driver_version
from app.commands.checks.host import check_port, check_there, check_voices
from app.commands.errors import CommandError, CommandFailed
from app.engine.sound.process.start import start
from app.settings import Settings

log = logging.getLogger(__name__)


class Serve(Settings):
    """Serve speech over HTTP."""

    def cli_cmd(self) -> None:
        """Serve until interrupted.

        Raises:
            CommandError: The port is taken, there is no such model, or the keys cannot be read.
            CommandFailed: The engine could not go on; the log says why.
            KeyboardInterrupt: It was ended by a Ctrl-C.
        """
        logs.configure(self.log_level, self.log_format)
        self._check()
        log.info(
            "loading; %s answers 503 until it is ready", f"http://{self.host}:{self.port}/ready"
        )
        started = start() if self.voice_process and self._on_cpu() else None
        from app.api.gate.keys import KeyringError
        from app.main import create_app, create_engine
        from app.server import serve

        try:
            app = create_app(self, create_engine(self, started))
        except KeyringError as error:
            raise CommandError(str(error)) from error
        if not serve(app, self):
            raise CommandFailed

    def _on_cpu(self) -> bool:
        """Tell, before torch is there to ask, whether the model runs on a CPU for certain."""
        return self.device == "cpu" or (self.device == "auto" and driver_version() is None)

    def _check(self) -> None:
        """Find out before anything is loaded what would stop it, and tell what would disappoint.

        Raises:
            CommandError: The port is taken, or there is no such model.
        """
        check_there(self.model)
        check_port(self)
        try:
            check_voices(self)
        except CommandError as error:
            log.warning("voices cannot be uploaded: %s", error)
