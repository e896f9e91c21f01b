"""`valle-serve warm`: compile what a CPU needs, so that the first start is as quick as any."""

import logging

from app.commands.errors import CommandError
from app.settings import Settings


class Warm(Settings):
    """Compile what a CPU needs, once, and keep it: the first start is then as quick as any.

    The machine code is for the processor that this runs on; another one compiles anew.
    """

    def cli_cmd(self) -> None:
        """Load the model as `serve` would, let it say a few words, and tell what was compiled.

        Raises:
            CommandError: The model cannot be loaded.
        """
        logging.basicConfig(level=logging.INFO, format="%(message)s")
        from app.main import load_synthesizer
        from app.preset_files import read_presets
        from models.checkpoints import CheckpointError
        from models.int8.first_start import compilations

        # One process alone, as what is compiled for the one is kept for the other.
        settings = self.model_copy(update={"device": "cpu", "voice_process": False})
        try:
            synthesizer = load_synthesizer(settings, read_presets(self.presets or None))
        except CheckpointError as error:
            raise CommandError(f"model: {error}") from error
        synthesizer.check_deterministic()
        synthesizer.close()
        print(f"{compilations()} functions were compiled, all others were there")
