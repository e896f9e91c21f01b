"""Recording of takes: a model speaks sentences with given knobs, and judges rate the speech.

Each take is a line of a JSON Lines file, written at once, so that a run can be interrupted and
resumed; a line is reused only for the same model, knobs, sentence and seed.
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

from app.engine.backend.loading import choose_weights
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
    """Named knobs; all others have their defaults."""

    name: str
    knobs: Mapping[str, Any]


@dataclass(frozen=True)
class TakeTask:
    """A take to record: knobs, sentence and seed."""

    setting: Setting
    text: str
    seed: int


@dataclass(frozen=True)
class Take:
    """A recorded take.

    Args:
        setting: Name of the setting.
        knobs: Its knobs.
        model: From `model_hash`.
        phonemes: Number of phonemes of the sentence.
        frames: Number of frames of the response.
        looped: Whether level 0 repeats itself, by `training.judging.endings.has_loop`.
        finish_reason: The engine's finish reason.
        backtracks: Cause of each backtrack.
        judgement: The judges' ratings.
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


class TakeRecorder:
    """The loaded model and judges of one process."""

    def __init__(self, settings: Settings) -> None:
        self._frame_rate_hz = read_codec_config(Path(settings.model)).frame_rate_hz
        self._voice, self._model = load_synthesizer(settings, PRESETS), model_hash(settings)
        self._teacher = Teacher()
        self._panel = Panel({EAR: Whisper(whisper_folder(EAR))}, self._teacher)

    def take(self, task: TakeTask) -> Take:
        """Record and judge one take."""
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
    """The JSON Lines file of takes, which may hold takes of other models and settings too."""

    def __init__(self, path: Path, model: str) -> None:
        """Read the file; an incomplete last line is dropped.

        Args:
            path: The file; need not exist.
            model: `model_hash` of the current model.

        Raises:
            ValueError: Another line is invalid.
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
        """Append a take."""
        self._takes[_key(take.knobs, take.judgement.text, take.judgement.seed)] = take
        with self._path.open("ab") as file:
            file.write(_TAKE.dump_json(take) + b"\n")

    def find(self, task: TakeTask) -> Take | None:
        """Return the take of a task, or None."""
        return self._takes.get(_key(task.setting.knobs, task.text, task.seed))


def _key(knobs: Mapping[str, Any], text: str, seed: int) -> str:
    """Return the key of a take; equal knobs, sentence and seed give equal codes."""
    return json.dumps([knobs, text, seed], sort_keys=True)


def model_hash(settings: Settings) -> str:
    """Return what codes depend on beside the request: hash and number format of the weights."""
    speech = load_speech_model(settings.model, torch.device("cpu"))
    return f"{speech.sha256} {choose_weights(settings.weights)}"


def plan(settings: Sequence[Setting], texts: Sequence[str], seeds: int) -> list[TakeTask]:
    """Return all tasks, ordered so that any beginning of the list is balanced over settings."""
    return [
        TakeTask(setting, text, seed)
        for seed in range(seeds)
        for text in texts
        for setting in settings
    ]


def record(
    tasks: Sequence[TakeTask], file: TakeFile, *, settings: Settings, workers: int, minutes: float
) -> None:
    """Record the missing takes, with one line on stderr each.

    Args:
        tasks: The takes, in order.
        file: Where takes are appended.
        settings: Model and settings.
        workers: Number of processes, of one thread each.
        minutes: Time after which no further take is started.
    """
    missing = [task for task in tasks if file.find(task) is None]
    print(f"{len(tasks)} takes, {len(tasks) - len(missing)} there already", file=sys.stderr)
    for number, take in enumerate(_make(missing, settings, workers, minutes), 1):
        file.add(take)
        row = take.judgement
        flaws = [name for name, there in vars(row.ending).items() if there]
        print(
            f"{number}/{len(missing)} {take.setting}, seed {row.seed}: {row.received[EAR]!r}"
            f" {row.duration_s:.2f} s {' '.join(flaws)}",
            file=sys.stderr,
            flush=True,
        )


def argument_parser(
    description: str | None, name: str, *, sentences: int, seeds: int, minutes: float
) -> argparse.ArgumentParser:
    """Return the command line arguments that all benchmarks of takes share.

    Args:
        description: Description of the command.
        name: Name of the file of takes in the training cache.
        sentences: Default number of sentences.
        seeds: Default number of takes a sentence.
        minutes: Default time limit.
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


def record_as_asked(tasks: Sequence[TakeTask], args: argparse.Namespace) -> TakeFile:
    """Record the missing takes by the arguments of `argument_parser`; return their file."""
    settings = Settings(model=args.model, device="cpu")
    file = TakeFile(args.takes, model_hash(settings))
    record(tasks, file, settings=settings, workers=args.workers, minutes=args.minutes)
    return file


def _make(
    tasks: Iterable[TakeTask], settings: Settings, workers: int, minutes: float
) -> Iterator[Take]:
    """Yield takes as they are completed; start none after the time limit."""
    ends_s = monotonic() + 60 * minutes
    waiting = iter(tasks)
    context = multiprocessing.get_context("spawn")  # forked threads of torch would hang
    with ProcessPoolExecutor(workers, context, _start_recorder, (settings,)) as pool:
        running = {pool.submit(_take, task) for task in islice(waiting, workers)}
        while running:
            done, running = wait(running, return_when=FIRST_COMPLETED)
            if monotonic() < ends_s:
                running |= {pool.submit(_take, task) for task in islice(waiting, len(done))}
            for future in done:
                yield future.result()


_recorders: list[TakeRecorder] = []  # the one of this worker process


def _start_recorder(settings: Settings) -> None:
    _recorders.append(TakeRecorder(settings))


def _take(task: TakeTask) -> Take:
    return _recorders[0].take(task)
