"""`valle-serve serve`: run the HTTP server until interrupted."""

import logging
from contextlib import suppress
from time import monotonic

from app import logs
from app.commands.checks.device import check_device, driver_version
from app.commands.checks.host import (
    check_model_path,
    check_open_files,
    check_port,
    check_state,
    check_voices,
)
from app.commands.errors import CheckWarning, CommandError, CommandFailed
from app.engine.child_process import ModelWorkers, audio_worker, text_worker
from app.imports import gc_paused
from app.settings import Settings

log = logging.getLogger(__name__)


class Serve(Settings):
    """Run the HTTP server."""

    def cli_cmd(self) -> None:
        """Serve until interrupted."""
        began_s = monotonic()
        logs.configure(self.log_level, self.log_format)
        self._check()
        log.info(
            "loading; %s answers 503 until it is ready", f"http://{self.host}:{self.port}/ready"
        )
        text_start = text_worker() if self.text_process else None
        sound_start = audio_worker() if self.voice_process and self._on_cpu() else None
        with gc_paused():
            from app.api.middleware.access.keys import KeyringError
            from app.main import create_app, create_engine
            from app.server import serve
            from app.storage.files import UnknownStore

        try:
            app = create_app(self, create_engine(self, ModelWorkers(sound_start, text_start)))
        except (KeyringError, UnknownStore) as error:
            raise CommandError(str(error)) from error
        if not serve(app, self, began_s):
            raise CommandFailed

    def _on_cpu(self) -> bool:
        """Return, without importing torch, whether the model certainly runs on a CPU."""
        return self.device == "cpu" or (self.device == "auto" and driver_version() is None)

    def _check(self) -> None:
        """Check device, port, files, model path, state and voices before anything is loaded."""
        if self.device == "cuda":
            log.info("using %s", check_device(self))
        check_model_path(self.model)
        check_port(self)
        check_open_files(self)
        with suppress(CheckWarning):  # a Redis that is away may come back
            check_state(self)
        try:
            log.info("uploaded voices lie in %s", check_voices(self))
        except CheckWarning as error:  # a store that is away may come back, too
            log.warning("%s: until it answers there are built-in voices only", error)
        except CommandError as error:
            if "://" in self.voices:
                raise
            log.warning("voices cannot be uploaded: %s", error)
