"""`valle-serve serve`: run the HTTP server until interrupted."""

import logging

from app import logs
from app.commands.checks.device import check_device, driver_version
from app.commands.checks.host import check_model_path, check_port, check_voices
from app.commands.errors import CommandError, CommandFailed
from app.engine.reading.start import start as start_text
from app.engine.sound.process.start import start as start_sound
from app.imports import uncollected
from app.settings import Settings

log = logging.getLogger(__name__)


class Serve(Settings):
    """Run the HTTP server."""

    def cli_cmd(self) -> None:
        """Serve until interrupted.

        Raises:
            CommandError: The port is in use, the model does not exist, the keys are invalid, or
                there is no GPU to use where one is asked for.
            CommandFailed: The engine failed; the log says why.
            KeyboardInterrupt: Stopped by Ctrl-C.
        """
        logs.configure(self.log_level, self.log_format)
        self._check()
        log.info(
            "loading; %s answers 503 until it is ready", f"http://{self.host}:{self.port}/ready"
        )
        text_start = start_text() if self.text_process else None
        sound_start = start_sound() if self.voice_process and self._on_cpu() else None
        with uncollected():
            from app.api.gate.keys import KeyringError
            from app.main import create_app, create_engine
            from app.server import serve

        try:
            app = create_app(self, create_engine(self, sound_start, text_start))
        except KeyringError as error:
            raise CommandError(str(error)) from error
        if not serve(app, self):
            raise CommandFailed

    def _on_cpu(self) -> bool:
        """Return, without importing torch, whether the model certainly runs on a CPU."""
        return self.device == "cpu" or (self.device == "auto" and driver_version() is None)

    def _check(self) -> None:
        """Check device, port, model path and voices folder before anything is loaded.

        Raises:
            CommandError: The port is in use, the model does not exist, or there is no GPU to use
                where one is asked for.
        """
        if self.device == "cuda":
            log.info("using %s", check_device(self))
        check_model_path(self.model)
        check_port(self)
        try:
            check_voices(self)
        except CommandError as error:
            log.warning("voices cannot be uploaded: %s", error)
