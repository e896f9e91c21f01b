"""Finished parts of a long speech on disk, so that an interrupted command can continue."""

import hashlib
import json
from collections.abc import Iterator, Sequence
from errno import ENOSPC
from pathlib import Path

import numpy as np

from app.api.history.packing import pack_outcome, unpack_outcome
from app.api.history.report import AskedSpeech
from app.commands.errors import CommandError, CommandFailed
from app.engine.core import SpeechJob, SpeechResult
from app.engine.results import Samples

_SUFFIX = ".part"
_SAMPLES = "samples.f32"
_SAMPLE_BYTES = 4
MB_AN_HOUR = 350
"""What parts take on disk."""


class Journal:
    """A folder with the results of the parts, each written atomically, and a file of their samples.

    A part's key is a hash of how it was spoken, of model and versions (``made_by``), and of the
    text up to its end. If the text is edited, the parts before the edit remain valid. Parts are
    read and written in order. Raises CommandError if the folder holds parts of another speech.
    """

    def __init__(
        self, folder: Path, asked: AskedSpeech, pieces: Sequence[str], made_by: str
    ) -> None:
        self.folder = folder
        self._asked = asked
        self._keys = list(_keys(asked.job, pieces, made_by))
        self._mapped: Samples = np.zeros(0, np.float32)
        self._end = 0
        if self.get(0) is None and any(folder.glob(f"*{_SUFFIX}")):
            raise CommandError(
                f"out: {folder} keeps parts of another speech: repeat its command to continue it,"
                " or remove the folder"
            )
        self._end = 0

    def get(self, number: int) -> tuple[Samples, SpeechResult] | None:
        """Return samples ``[N]`` and result of a part; None if it is missing or of another speech.

        The samples are mapped from the file, so that they take no memory.
        """
        try:
            head, _, packed = self._path(number).read_bytes().partition(b"\n")
            about = json.loads(head)
            if (about["key"], about["begin"]) != (self._keys[number], self._end):
                return None
            result = unpack_outcome(packed)[1]
            samples = self._map(about["begin"], about["end"])
        except (OSError, KeyError, TypeError, ValueError):
            return None
        wanted = self._asked.job.params.seed
        if not isinstance(result, SpeechResult) or wanted not in {None, result.seed}:
            return None
        self._end = about["end"]
        return samples, result

    def put(self, number: int, samples: Samples, result: SpeechResult) -> Samples:
        """Store a part; return its samples ``[N]``, mapped from the file.

        Raises CommandFailed if it cannot be written.
        """
        begin = self._end
        self._end += len(samples)
        about = {"key": self._keys[number], "begin": begin, "end": self._end}
        path = self._path(number)
        partial = path.with_name(path.name + ".partial")
        try:
            self.folder.mkdir(exist_ok=True)
            with (self.folder / _SAMPLES).open("r+b" if begin else "wb") as file:
                file.seek(begin * _SAMPLE_BYTES)
                file.write(samples.astype("<f4").tobytes())
            packed = pack_outcome(self._asked, result, traces=False)
            partial.write_bytes(json.dumps(about).encode() + b"\n" + packed)
            partial.replace(path)
        except OSError as error:
            if error.errno == ENOSPC:
                raise CommandFailed(
                    f"out: no space is left for {self.folder}, which takes {MB_AN_HOUR} MB an hour"
                    " of speech: free some, and run the same command again"
                ) from error
            raise CommandFailed(f"out: {path}: {error.strerror}") from error
        return self._map(begin, self._end)

    def drop(self) -> None:
        """Delete all parts, and the folder if it is then empty."""
        for file in (*self.folder.glob(f"*{_SUFFIX}*"), self.folder / _SAMPLES):
            file.unlink(missing_ok=True)
        if self.folder.is_dir() and not any(self.folder.iterdir()):
            self.folder.rmdir()

    def _path(self, number: int) -> Path:
        return self.folder / f"{number + 1:06}{_SUFFIX}"

    def _map(self, begin: int, end: int) -> Samples:
        """Return samples of the file; it is grown to twice the size if they are not mapped yet."""
        if begin == end:
            return np.zeros(0, np.float32)
        if end > len(self._mapped):
            path = self.folder / _SAMPLES
            if path.stat().st_size < end * _SAMPLE_BYTES:
                raise ValueError("the file of the samples is too short")
            with path.open("r+b") as file:
                file.truncate(max(path.stat().st_size, 2 * end * _SAMPLE_BYTES))
            self._mapped = np.memmap(path, "<f4", mode="r")
        return self._mapped[begin:end]


def _keys(job: SpeechJob, pieces: Sequence[str], made_by: str) -> Iterator[str]:
    """Yield the key of each part. The seed is not part of it, as it may be random."""
    knobs = job.params.model_dump(mode="json", exclude={"seed"})
    how = [made_by, knobs, job.voice, job.reading.language, job.max_duration_s]
    digest = hashlib.sha256(json.dumps(how, sort_keys=True).encode())
    for piece in pieces:
        digest.update(f"{len(piece)}:{piece}".encode())
        yield digest.hexdigest()
