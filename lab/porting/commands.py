"""`valle-serve tools`: inspect, convert and measure the models of others."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import AliasChoices, BaseModel, Field
from pydantic_settings import CliApp, CliPositionalArg, CliSubCommand
from tqdm import tqdm

from app.commands.errors import CommandError
from app.commands.models import MODEL_NAMES
from app.commands.output import check_out, write_file
from app.engine.errors import SpeechError
from app.settings import Settings
from app.storage.preset_files import PresetName, read_presets
from samplers.knobs.presets import Presets

if TYPE_CHECKING:
    from lab.porting.calibration import Calibration, CalibrationTask
    from lab.porting.convert import Switches


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
        """Measure, print the figures and write the preset."""
        from lab.porting.calibration import CalibrationTask

        if self.output is not None:
            check_out(self.output, "output")
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
    """Return the sentences to speak."""
    from app.commands.sentences import SENTENCES, read_sentences

    try:
        return read_sentences(path or SENTENCES)
    except OSError as error:
        raise CommandError(f"sentences: {path}: {error.strerror}") from error
    except ValueError as error:
        raise CommandError(f"sentences: {path}: {error}") from error


def _measure(settings: Settings, task: "CalibrationTask", presets: Presets) -> "Calibration":
    """Load the model and measure, with a progress bar."""
    from app.main import load_synthesizer
    from lab.porting.calibration import Calibration
    from models.checkpoints.files import CheckpointError

    try:
        synthesizer = load_synthesizer(settings, presets)
    except CheckpointError as error:
        raise CommandError(f"model: {error}") from error
    with tqdm(total=2 * task.count, unit=" utterances", disable=None, leave=False) as bar:
        return Calibration.measure(synthesizer, task, on_utterance=bar.update)


class Inspect(BaseModel):
    """Describe a model from the headers of its files."""

    model: CliPositionalArg[str] = Field(description=MODEL_NAMES)

    def cli_cmd(self) -> None:
        """Print one fact per line."""
        from lab.porting.summary import summarise
        from models.checkpoints.files import CheckpointError
        from models.checkpoints.hub import find

        try:
            wanted = find(self.model)
            if wanted is None:
                facts = summarise(Path(self.model)).lines()
            else:
                here = wanted.local()
                facts = {"hub": f"{wanted.repo}, commit {wanted.revision}, {wanted.path}"}
                if here.is_file():
                    facts |= summarise(here, wanted.licence).lines()
                else:
                    facts |= {
                        "here": f"no: `valle-serve models download {self.model}`",
                        "bytes": f"{wanted.size_bytes:,}" if wanted.size_bytes else "unknown",
                        "licence": wanted.licence or "unknown: see its page",
                    }
        except CheckpointError as error:
            raise CommandError(f"model: {error}") from error
        for name, fact in facts.items():
            print(f"{name:<10} {fact}")


class Convert(BaseModel):
    """Convert a published model to a folder of our format, with its switches and LoRAs applied."""

    source: CliPositionalArg[str] = Field(description=MODEL_NAMES)
    target: CliPositionalArg[Path] = Field(description="The folder to write.")
    code_sums: Literal["inclusive", "exclusive", "none"] | None = Field(
        None, description="Which lower levels are summed for a level; default by the model's era."
    )
    nar_mask: Literal["causal", "full"] | None = Field(
        None, description="Attention mask of NAR passes; default as in the file."
    )
    language_segment: bool | None = Field(
        None, description="Whether the input has a language; default as in the file."
    )
    lora: list[Path] = Field([], description="LoRA files to merge; the flag may be repeated.")

    def cli_cmd(self) -> None:
        """Convert and print a summary."""
        from lab.porting.convert import convert
        from models.checkpoints.files import CheckpointError

        try:
            found = convert(_local_path(self.source), self.target, self._switches(), self.lora)
        except CheckpointError as error:
            raise CommandError(f"convert: {error}") from error
        print(f"{self.target}: from {found}")

    def _switches(self) -> "Switches":
        from lab.porting.convert import Switches

        return Switches(self.code_sums, self.nar_mask, self.language_segment)


class Eras(BaseModel):
    """Find the switches that a published model was trained with, likeliest first."""

    model: CliPositionalArg[str] = Field(description=MODEL_NAMES)
    codes: list[Path] = Field(
        min_length=1,
        description="Codes with their phonemes, .enc or .json; the flag may be repeated.",
    )

    def cli_cmd(self) -> None:
        """Print the loss of every combination."""
        from lab.porting.eras import eras
        from lab.porting.pairs import read_pair
        from models.checkpoints.files import CheckpointError
        from models.checkpoints.published.load import read_public
        from models.text import FrontEnd

        try:
            path = _local_path(self.model)
            config = read_public(path).config
            encode = FrontEnd(config).encode
            losses = eras(path, [read_pair(file, config, encode) for file in self.codes])
        except ValueError as error:  # CheckpointError, or an invalid vocabulary
            place = "model" if isinstance(error, CheckpointError) else "codes"
            raise CommandError(f"{place}: {error}") from error
        print("nats per code, level 0 and the NAR levels; the switches:")
        for loss in losses:
            print(loss)


class Tools(BaseModel):
    """Inspect and convert models of others, find how they were trained, and calibrate presets."""

    inspect: CliSubCommand[Inspect] = Field(description="Describe a model.")
    convert: CliSubCommand[Convert] = Field(description="Convert a published model to a folder.")
    eras: CliSubCommand[Eras] = Field(description="Find how a published model was trained.")
    calibrate: CliSubCommand[Calibrate] = Field(description="Measure entropy; write a preset.")

    def cli_cmd(self) -> None:
        """Run the subcommand."""
        CliApp.run_subcommand(self, cli_exit_on_error=False)


def _local_path(name: str) -> Path:
    """Return the local path of a model, downloaded if necessary."""
    from models.checkpoints.hub import locate

    return locate(name, offline=Settings().offline)
