"""Takes: the built-in voice says a sentence with some knobs, and the judges of training listen.

Every take is one line of a JSON file, written as it comes, so that a run can be stopped and taken
up again; a line is only used again for the same model, knobs, sentence and seed.
"""

import argparse
import json
import multiprocessing
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np
import torch
from pydantic import TypeAdapter

from app.engine.job import SpeechJob
from app.main import load_synthesizer
from app.settings import BUILTIN_MODEL, Settings
from models.checkpoints import load_speech_model, read_codec_config
from samplers.knobs.params import SamplingParams
from samplers.knobs.presets import PRESETS
from training.cache import cache_folder
from training.judging.endings import has_loop
from training.judging.judges import Whisper, resample, whisper_folder
from training.judging.panel import Judgement, Panel
from training.judging.speakers import Speech, Teacher
from training.speech.corpus import SAMPLE_RATE_HZ

EAR = "tiny.en"


@dataclass(frozen=True)
class Setting:
    """A name for some knobs; what they do not say is the declared default."""

    name: str
    knobs: Mapping[str, Any]


@dataclass(frozen=True)
class Task:
    """One take that is wanted."""

    setting: Setting
    text: str
    seed: int


@dataclass(frozen=True)
class Take:
    """One take that was made.

    Args:
        setting: Name of the setting.
        knobs: Its knobs.
        model: Of `model_hash`.
        phonemes: How many the sentence has.
        frames: How many were drawn and stayed.
        looped: Whether level 0 repeats itself, seen from outside.
        finish_reason: What the engine says.
        backtracks: How often it was taken back, by cause.
        judgement: What the judges say.
    """

    setting: str
    knobs: Mapping[str, Any]
    model: str
    phonemes: int
    frames: int
    looped: bool
    finish_reason: str
    backtracks: tuple[str, ...]
    judgement: Judgement


_TAKE = TypeAdapter(Take)


class Booth:
    """The loaded voice and the judges, in one process."""

    def __init__(self, settings: Settings) -> None:
        self._frame_rate_hz = read_codec_config(Path(settings.model)).frame_rate_hz
        self._voice, self._model = load_synthesizer(settings, PRESETS), model_hash(settings)
        self._teacher = Teacher()
        self._panel = Panel({EAR: Whisper(whisper_folder(EAR))}, self._teacher)

    def take(self, task: Task) -> Take:
        """Speak one task and judge it."""
        params = SamplingParams(seed=task.seed, **task.setting.knobs)
        plan = self._voice.plan(SpeechJob("take", task.text, params))
        chunks = list(self._voice.speak(plan, queue_s=0.0, on_progress=lambda _: True))
        result, rate_hz = chunks[-1].result, chunks[-1].sample_rate_hz
        assert result is not None
        codes = np.concatenate([piece.codes for piece in result.utterances]).astype(np.int64)
        samples = np.concatenate([chunk.samples for chunk in chunks])
        speech = Speech(
            samples=resample(samples, rate_hz, SAMPLE_RATE_HZ),
            codes=codes,
            wall_s=result.timings.total_s,
            gave_up=result.finish_reason in {"stuck", "length"},
            trimmed_s=max(0.0, result.frames / self._frame_rate_hz - result.audio_s),
        )
        return Take(
            setting=task.setting.name,
            knobs=task.setting.knobs,
            model=self._model,
            phonemes=sum(len(piece.phonemes) for piece in plan.utterances),
            frames=len(codes),
            looped=has_loop(codes[:, 0]),
            finish_reason=result.finish_reason,
            backtracks=tuple(
                back.cause for piece in result.utterances for back in piece.backtracks
            ),
            judgement=self._panel.judge(task.text, task.seed, speech),
        )


class TakeFile:
    """The takes of a run on disk, a JSON line each, those of other models and settings too."""

    def __init__(self, path: Path, model: str) -> None:
        """Read what is there; a last line cut off in mid-writing is dropped.

        Args:
            path: The file; it need not exist.
            model: Of `model_hash`, what speaks now.

        Raises:
            ValueError: A line other than the last is broken.
        """
        self._path, self._takes = path, dict[str, Take]()
        lines = path.read_text("utf-8").splitlines(keepends=True) if path.exists() else []
        if lines and not lines[-1].endswith("\n"):
            path.write_text("".join(lines[:-1]), "utf-8")
            lines.pop()
        for line in lines:
            take = _TAKE.validate_json(line)
            if take.model == model:
                self._takes[_key(take.knobs, take.judgement.text, take.judgement.seed)] = take

    def add(self, take: Take) -> None:
        """Write one more take."""
        self._takes[_key(take.knobs, take.judgement.text, take.judgement.seed)] = take
        with self._path.open("ab") as file:
            file.write(_TAKE.dump_json(take) + b"\n")

    def find(self, task: Task) -> Take | None:
        """Return the take of a task, if it was made."""
        return self._takes.get(_key(task.setting.knobs, task.text, task.seed))


def _key(knobs: Mapping[str, Any], text: str, seed: int) -> str:
    """Return what names a take: the same knobs, sentence and seed give the same codes."""
    return json.dumps([knobs, text, seed], sort_keys=True)


def model_hash(settings: Settings) -> str:
    """Return what the codes depend on beside the request: the weights, and how they are held."""
    speech = load_speech_model(settings.model, torch.device("cpu"))
    return f"{speech.sha256} {settings.weights}"


def plan(settings: Sequence[Setting], texts: Sequence[str], seeds: int) -> list[Task]:
    """Return all tasks, so ordered that whatever was made when time is up is balanced."""
    return [
        Task(setting, text, seed) for seed in range(seeds) for text in texts for setting in settings
    ]


def record(
    tasks: Sequence[Task], file: TakeFile, *, settings: Settings, workers: int, minutes: float
) -> None:
    """Make the takes that are missing, and say so on stderr, one line each.

    Args:
        tasks: In order.
        file: Where they go, each as it comes.
        settings: Which model, and how it runs.
        workers: Processes, one thread each.
        minutes: After which none is begun any more.
    """
    missing = [task for task in tasks if file.find(task) is None]
    print(f"{len(tasks)} takes, {len(tasks) - len(missing)} there already", file=sys.stderr)
    for number, take in enumerate(_make(missing, settings, workers, minutes), 1):
        file.add(take)
        row = take.judgement
        flaws = [name for name, there in vars(row.ending).items() if there]
        print(
            f"{number}/{len(missing)} {take.setting}, seed {row.seed}: {row.heard[EAR]!r}"
            f" {row.duration_s:.2f} s {' '.join(flaws)}",
            file=sys.stderr,
            flush=True,
        )


def argument_parser(
    description: str | None, name: str, *, sentences: int, seeds: int, minutes: float
) -> argparse.ArgumentParser:
    """Return what every command that makes takes can be asked, with its own defaults.

    Args:
        description: Of the command.
        name: Of the file of takes, in the training cache.
        sentences: How many it says.
        seeds: How many of each sentence.
        minutes: After which it begins no take.
    """
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sentences", type=int, default=sentences, help="how many")
    parser.add_argument("--seeds", type=int, default=seeds, help="of each sentence")
    parser.add_argument(
        "--minutes", type=float, default=minutes, help="after which no take is begun"
    )
    parser.add_argument("--workers", type=int, default=2, help="processes")
    parser.add_argument("--model", default=str(BUILTIN_MODEL), help="folder")
    parser.add_argument("--takes", type=Path, default=cache_folder() / f"{name}.jsonl")
    parser.add_argument("--out", type=Path, help="JSON file")
    return parser


def record_as_asked(tasks: Sequence[Task], args: argparse.Namespace) -> TakeFile:
    """Make the takes that are missing, as the arguments of `argument_parser` say."""
    settings = Settings(model=args.model, device="cpu")
    file = TakeFile(args.takes, model_hash(settings))
    record(tasks, file, settings=settings, workers=args.workers, minutes=args.minutes)
    return file


def _make(
    tasks: Iterable[Task], settings: Settings, workers: int, minutes: float
) -> Iterator[Take]:
    """Yield takes as they come, none begun after the time is up."""
    ends_s = monotonic() + 60 * minutes
    waiting = iter(tasks)
    context = multiprocessing.get_context("spawn")  # forked threads of torch would hang
    with ProcessPoolExecutor(workers, context, _open_booth, (settings,)) as pool:
        running = {pool.submit(_take, task) for task in islice(waiting, workers)}
        while running:
            done, running = wait(running, return_when=FIRST_COMPLETED)
            if monotonic() < ends_s:
                running |= {pool.submit(_take, task) for task in islice(waiting, len(done))}
            for future in done:
                yield future.result()


_booths: list[Booth] = []  # of this worker process, which makes one when it begins


def _open_booth(settings: Settings) -> None:
    _booths.append(Booth(settings))


def _take(task: Task) -> Take:
    return _booths[0].take(task)
