"""`valle-serve calibrate`: measure the model's entropy and write a matching entropix preset."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import AliasChoices, BaseModel, Field
from tqdm import tqdm

from app.commands.errors import CommandError
from app.commands.output import check_folder, write_file
from app.engine.errors import SpeechError
from app.settings import Settings
from app.storage.preset_files import PresetName, read_presets
from samplers.knobs.presets import Presets

if TYPE_CHECKING:
    from app.calibration import Calibration, CalibrationTask


class Calibrate(BaseModel):
    """Speak sentences, print the entropy of the predictions, and write an entropix preset."""

    model: str | None = Field(None, description="Model folder; default that of TTS_MODEL.")
    sentences: Path | None = Field(
        None, description="Text file, one sentence a line; default a built-in list of 40."
    )
    count: int = Field(
        200, ge=1, description="Number of utterances; sentences repeat with other seeds."
    )
    preset: str = Field("auto", description="Preset to measure with and to extend.")
    name: PresetName = Field("calibrated", description="Name of the preset to write.")
    output: Path | None = Field(
        None,
        validation_alias=AliasChoices("o", "output"),
        description="The preset file to write; by default figures are only printed.",
    )

    def cli_cmd(self) -> None:
        """Measure, print the figures and write the preset.

        Raises:
            CommandError: A file, the model or the preset is invalid.
        """
        from app.calibration import CalibrationTask

        if self.output is not None:
            check_folder(self.output, "output")
        settings = Settings() if self.model is None else Settings(model=self.model)
        presets = read_presets(settings.presets or None)
        if self.name in presets:
            raise CommandError(f"name: preset {self.name!r} exists already")
        task = CalibrationTask(_sentences(self.sentences), self.count, self.preset)
        try:
            calibration = _measure(settings, task, presets)
        except SpeechError as error:
            raise CommandError(f"{error.param or 'calibrate'}: {error.message}") from error
        print(calibration.table())
        if self.output is not None:
            content = json.dumps(calibration.preset_file(self.name, task), indent=1) + "\n"
            write_file(self.output, content.encode(), "output")
            print(f"wrote preset {self.name}; load it with TTS_PRESETS={self.output}")


def _sentences(path: Path | None) -> list[str]:
    """Return the sentences to speak.

    Raises:
        CommandError: The file cannot be read or is empty.
    """
    from app.calibration import SENTENCES, read_sentences

    try:
        return read_sentences(path or SENTENCES)
    except OSError as error:
        raise CommandError(f"sentences: {path}: {error.strerror}") from error
    except ValueError as error:
        raise CommandError(f"sentences: {path}: {error}") from error


def _measure(settings: Settings, task: "CalibrationTask", presets: Presets) -> "Calibration":
    """Load the model and measure, with a progress bar.

    Raises:
        CommandError: The model cannot be loaded.
    """
    from app.calibration import Calibration
    from app.main import load_synthesizer
    from models.checkpoints import CheckpointError

    try:
        synthesizer = load_synthesizer(settings, presets)
    except CheckpointError as error:
        raise CommandError(f"model: {error}") from error
    with tqdm(total=2 * task.count, unit=" utterances", disable=None, leave=False) as bar:
        return Calibration.measure(synthesizer, task, on_utterance=bar.update)
