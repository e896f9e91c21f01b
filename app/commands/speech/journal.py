"""Finished parts of a long speech on disk, so that an interrupted command can continue."""

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
_STORED = (
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
    """A spoken piece of a text.

    Args:
        samples: ``[N]``.
        sample_rate_hz: Sample rate.
        result: The engine's result; without trace and backtracks if read from a journal.
    """

    samples: Samples
    sample_rate_hz: int
    result: SpeechResult


class Journal:
    """A folder with one file per part, each written atomically.

    A part's key is a hash of how it was spoken and of the text up to its end. If the text is
    edited, the parts before the edit remain valid.

    Args:
        made_by: Everything else that determines the samples: model and versions.

    Raises:
        CommandError: The folder holds parts of another speech.
    """

    def __init__(self, folder: Path, job: SpeechJob, pieces: Sequence[str], made_by: str) -> None:
        self.folder, self._job = folder, job
        self._keys = list(_keys(job, pieces, made_by))
        if self.get(0) is None and self.begun:
            raise CommandError(
                f"out: {folder} keeps parts of another speech: repeat its command to continue it,"
                " or remove the folder"
            )

    @property
    def begun(self) -> bool:
        """Whether there are any parts."""
        return any(self.folder.glob(f"*{_SUFFIX}"))

    def get(self, number: int) -> Part | None:
        """Return a part; None if it is missing, unreadable or of another speech."""
        try:
            with np.load(self._path(number), allow_pickle=False) as file:
                metadata = json.loads(str(file["account"]))
                if metadata.pop("key") != self._keys[number]:
                    return None
                part = _part(file["samples"], file["codes"], metadata, self._job)
        except (OSError, BadZipFile, KeyError, TypeError, ValueError):
            return None
        wanted = self._job.params.seed
        return part if wanted in {None, part.result.seed} else None

    def put(self, number: int, part: Part) -> None:
        """Store a part.

        Raises:
            CommandFailed: It cannot be written.
        """
        metadata = {"key": self._keys[number], "sample_rate_hz": part.sample_rate_hz}
        metadata |= _metadata(part.result)
        codes = np.concatenate([spoken.codes for spoken in part.result.utterances])
        path = self._path(number)
        partial = path.with_name(path.name + ".partial")
        try:
            self.folder.mkdir(exist_ok=True)
            with partial.open("wb") as file:
                np.savez(file, samples=part.samples, codes=codes, account=json.dumps(metadata))
            partial.replace(path)
        except OSError as error:
            raise CommandFailed(f"out: {path}: {error.strerror}") from error

    def drop(self) -> None:
        """Delete all parts, and the folder if it is then empty."""
        for file in [*self.folder.glob(f"*{_SUFFIX}"), *self.folder.glob("*.partial")]:
            file.unlink(missing_ok=True)
        if self.folder.is_dir() and not any(self.folder.iterdir()):
            self.folder.rmdir()

    def _path(self, number: int) -> Path:
        return self.folder / f"{number + 1:06}{_SUFFIX}"


def _keys(job: SpeechJob, pieces: Sequence[str], made_by: str) -> Iterator[str]:
    """Yield the key of each part. The seed is not part of it, as it may be random."""
    knobs = job.params.model_dump(mode="json", include=set(SamplingParams.model_fields) - {"seed"})
    how = [made_by, knobs, job.voice, job.language, job.max_duration_s]
    digest = hashlib.sha256(json.dumps(how, sort_keys=True).encode())
    for piece in pieces:
        digest.update(f"{len(piece)}:{piece}".encode())
        yield digest.hexdigest()


def _metadata(result: SpeechResult) -> dict[str, Any]:
    """Return the fields of a result that are stored, without its codes."""
    return {
        **{name: getattr(result, name) for name in _STORED},
        "timings": asdict(result.timings),
        "utterances": [
            {
                "frames": len(spoken.codes),
                "finish_reason": spoken.finish_reason,
                "pause_after_s": spoken.pause_after_s,
                "phonemes": spoken.phonemes,
                "text": spoken.text,
                "voice": spoken.voice,
                "rate": spoken.rate,
                "start_s": spoken.start_s,
                "duration_s": spoken.duration_s,
                "trimmed_s": spoken.trimmed_s,
                "frame_s": spoken.frame_s,
            }
            for spoken in result.utterances
        ],
    }


def _part(samples: Samples, codes: NDArray[np.int16], metadata: Any, job: SpeechJob) -> Part:
    """Return the part from stored data."""
    rate_hz, timings = metadata.pop("sample_rate_hz"), Timings(**metadata.pop("timings"))
    utterances, at = [], 0
    for spoken in metadata.pop("utterances"):
        frames = spoken.pop("frames")
        utterances.append(SpokenUtterance(codes[at : at + frames], **spoken))
        at += frames
    result = SpeechResult(
        job_id=job.id,
        params=job.params,
        timings=timings,
        utterances=tuple(utterances),
        **metadata,
    )
    return Part(samples, rate_hz, result)
