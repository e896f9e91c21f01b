"""`valle-serve warm`: compile the CPU kernels before the first start."""

import logging
from collections.abc import Sequence
from typing import ClassVar

from app.commands.errors import CommandError
from app.settings import Settings


class Warm(Settings):
    """Compile and cache the CPU kernels, so that the first start is fast.

    The machine code is specific to this kind of processor; another one compiles again.
    """

    shown: ClassVar[Sequence[str]] = ("model", "decoder", "threads", "cache", "offline")

    def cli_cmd(self) -> None:
        """Load the model as `serve` does, speak a few words, and print what was compiled."""
        logging.basicConfig(level=logging.INFO, format="%(message)s")
        from app import server  # noqa: F401 - so that all that a start imports has its bytecode
        from app.main import load_synthesizer
        from cpu.first_start import compilations
        from models.checkpoints.files import CheckpointError

        # One process is enough: the sound process uses the same cache.
        settings = self.model_copy(update={"device": "cpu"})
        try:
            synthesizer = load_synthesizer(settings)
        except CheckpointError as error:
            raise CommandError(f"model: {error}") from error
        synthesizer.checks.check_deterministic()
        synthesizer.close()
        print(f"{compilations()} functions were compiled, all others were cached")
