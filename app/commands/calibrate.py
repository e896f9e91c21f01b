"""`valle-serve calibrate`: measure the model's uncertainty, and write a preset that fits it."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import AliasChoices, BaseModel, Field
from tqdm import tqdm

from app.commands.errors import CommandError
from app.commands.output import check_folder, write_whole
from app.engine.errors import SpeechError
from app.preset_files import PresetName, read_presets
from app.settings import Settings
from samplers.knobs.presets import Presets

if TYPE_CHECKING:
    from app.calibration import Calibration, Task


class Calibrate(BaseModel):
    """Speak sentences, print how sure the model is of its codes, and write a preset of entropix."""

    model: str | None = Field(None, description="Model folder; none is what TTS_MODEL names.")
    sentences: Path | None = Field(
        None, description="Text file, one sentence a line; none is a list of 40 plain ones."
    )
    count: int = Field(
        200, ge=1, description="Utterances; past the last sentence they start again, reseeded."
    )
    preset: str = Field("auto", description="What to draw with, and what the new preset is over.")
    name: PresetName = Field("calibrated", description="Name of the preset to write.")
    output: Path | None = Field(
        None,
        validation_alias=AliasChoices("o", "output"),
        description="The preset file to write; none only prints.",
    )

    def cli_cmd(self) -> None:
        """Measure, print and write.

        Raises:
            CommandError: A file, the model or the preset is wrong.
        """
        from app.calibration import Task

        if self.output is not None:
            check_folder(self.output, "output")
        settings = Settings() if self.model is None else Settings(model=self.model)
        presets = read_presets(settings.presets or None)
        if self.name in presets:
            raise CommandError(f"name: there is a preset {self.name!r} already")
        task = Task(_sentences(self.sentences), self.count, self.preset)
        try:
            calibration = _measure(settings, task, presets)
        except SpeechError as error:
            raise CommandError(f"{error.param or 'calibrate'}: {error.message}") from error
        print(calibration.table())
        if self.output is not None:
            content = json.dumps(calibration.preset_file(self.name, task), indent=1) + "\n"
            write_whole(self.output, content.encode(), "output")
            print(f"wrote preset {self.name}; serve it with TTS_PRESETS={self.output}")


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


def _measure(settings: Settings, task: "Task", presets: Presets) -> "Calibration":
    """Load the model and measure, with a bar on the terminal.

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
