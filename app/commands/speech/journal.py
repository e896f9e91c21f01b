"""What is spoken of a long text so far, on disk: an interrupted command goes on from there."""

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from app.commands.errors import CommandError, CommandFailed
from app.engine.job import (
    Samples,
    SpeechJob,
    SpeechResult,
    SpokenUtterance,
    Timings,
)
from samplers.knobs.params import SamplingParams

_SUFFIX = ".npz"
_KEPT = (
    "finish_reason",
    "seed",
    "voice",
    "language",
    "codes_sha256",
    "frames",
    "audio_s",
    "nar",
    "decoder",
    "pause_owed_s",
)


@dataclass(frozen=True, slots=True)
class Part:
    """One piece of a text, spoken.

    Args:
        samples: ``[N]``.
        sample_rate_hz: Of them.
        result: What became of the piece; from a journal without trace and backtracks.
    """

    samples: Samples
    sample_rate_hz: int
    result: SpeechResult


class Journal:
    """A folder with a file a part; each is written whole or not at all.

    A part is known by what made it: how, and the text up to its end. So a text may be changed
    behind what is spoken, and only what comes after the change is spoken again.
    """

    def __init__(self, folder: Path, job: SpeechJob, pieces: Sequence[str], made_by: str) -> None:
        """Look into a folder, which need not exist.

        Args:
            folder: Where the parts are.
            job: How to speak; its text is left out.
            pieces: The text.
            made_by: What else decides how a part sounds: the model, and how it runs.

        Raises:
            CommandError: It holds parts of another speech.
        """
        self.folder, self._job = folder, job
        self._keys = list(_keys(job, pieces, made_by))
        if self.get(0) is None and self.begun:
            raise CommandError(
                f"out: {folder} keeps parts of another speech: ask for the same to go on with it,"
                " or remove the folder"
            )

    @property
    def begun(self) -> bool:
        """Whether there is anything to go on with."""
        return any(self.folder.glob(f"*{_SUFFIX}"))

    def get(self, number: int) -> Part | None:
        """Return a part, or None if it is not there or not of this speech."""
        try:
            with np.load(self._path(number), allow_pickle=False) as file:
                account = json.loads(str(file["account"]))
                if account.pop("key") != self._keys[number]:
                    return None
                part = _part(file["samples"], file["codes"], account, self._job)
        except (OSError, BadZipFile, KeyError, TypeError, ValueError):
            return None
        wanted = self._job.params.seed
        return part if wanted in {None, part.result.seed} else None

    def put(self, number: int, part: Part) -> None:
        """Keep a part.

        Raises:
            CommandFailed: It cannot be written.
        """
        account = {"key": self._keys[number], "sample_rate_hz": part.sample_rate_hz}
        account |= _account(part.result)
        codes = np.concatenate([spoken.codes for spoken in part.result.utterances])
        path = self._path(number)
        partial = path.with_name(path.name + ".partial")
        try:
            self.folder.mkdir(exist_ok=True)
            with partial.open("wb") as file:
                np.savez(file, samples=part.samples, codes=codes, account=json.dumps(account))
            partial.replace(path)
        except OSError as error:
            raise CommandFailed(f"out: {path}: {error.strerror}") from error

    def drop(self) -> None:
        """Forget all parts; what is not ours stays."""
        for file in [*self.folder.glob(f"*{_SUFFIX}"), *self.folder.glob("*.partial")]:
            file.unlink(missing_ok=True)
        if self.folder.is_dir() and not any(self.folder.iterdir()):
            self.folder.rmdir()

    def _path(self, number: int) -> Path:
        return self.folder / f"{number + 1:06}{_SUFFIX}"


def _keys(job: SpeechJob, pieces: Sequence[str], made_by: str) -> Iterator[str]:
    """Yield what each part is known by; the seed is not in it, as one may have been drawn."""
    knobs = job.params.model_dump(mode="json", include=set(SamplingParams.model_fields) - {"seed"})
    how = [made_by, knobs, job.voice, job.language, job.max_duration_s]
    digest = hashlib.sha256(json.dumps(how, sort_keys=True).encode())
    for piece in pieces:
        digest.update(f"{len(piece)}:{piece}".encode())
        yield digest.hexdigest()


def _account(result: SpeechResult) -> dict[str, Any]:
    """Return what a later part or the last word on a speech needs of a result, but for codes."""
    return {
        **{name: getattr(result, name) for name in _KEPT},
        "timings": asdict(result.timings),
        "utterances": [
            {
                "frames": len(spoken.codes),
                "finish_reason": spoken.finish_reason,
                "pause_after_s": spoken.pause_after_s,
                "phonemes": spoken.phonemes,
            }
            for spoken in result.utterances
        ],
    }


def _part(samples: Samples, codes: NDArray[np.int16], account: Any, job: SpeechJob) -> Part:
    """Return the part that was kept.

    Raises:
        KeyError: The account is not ours.
        TypeError: The same.
    """
    rate_hz, timings = account.pop("sample_rate_hz"), Timings(**account.pop("timings"))
    utterances, at = [], 0
    for spoken in account.pop("utterances"):
        frames = spoken.pop("frames")
        utterances.append(SpokenUtterance(codes[at : at + frames], **spoken))
        at += frames
    result = SpeechResult(
        job_id=job.id,
        params=job.params,
        timings=timings,
        utterances=tuple(utterances),
        **account,
    )
    return Part(samples, rate_hz, result)
