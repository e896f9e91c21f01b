"""Recordings of people, for judging alone: none of them is in the repository or in training.

They come in Debian packages whose licence allows it, are fetched by `apt-get download` into the
cache and unpacked there. Many of them are of single words, and few in English: recordings that
people send are no better. What a file says is joined with what the next ones say until there are
some seconds.
"""

import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import av
import numpy as np
import soundfile

from lab.training.cache import cache_folder
from lab.training.judging.speakers import Samples

RECORDINGS, RECORDING_S = 5, 6.0
"""How many recordings there are of a person, and how long each is at least."""
PAUSE_S: Final = 0.15  # between two files
_WORD_S: Final = 0.4  # a file that is shorter is not worth its pauses
_SILENT: Final = 0.01
_TELEPHONY: Final = {".g722": "g722", ".gsm": "gsm"}  # files without a header


@dataclass(frozen=True)
class Person:
    """Somebody who can be heard in a Debian package."""

    name: str
    language: str
    package: str
    licence: str
    files: str
    """Pattern, from the root of the package."""


def _asterisk(name: str, language: str, part: str, folder: str, licence: str) -> Person:
    """Return a person whom a telephone exchange speaks with, at 16 kHz."""
    files = f"usr/share/asterisk/sounds/{folder}/*.g722"
    return Person(name, language, f"asterisk-core-sounds-{part}-g722", licence, files)


def _game(language: str, folder: str) -> Person:
    """Return a person who names what children stick to a potato, at 44.1 kHz."""
    files = f"usr/share/ktuberling/sounds/{folder}/*.*"
    return Person(f"potato-{folder}", language, "ktuberling-data", "GPL-2+", files)


def _letters(language: str, folder: str) -> Person:
    """Return a person who names letters and syllables, at 44.1 kHz."""
    files = f"usr/share/klettres/{folder}/*/*.ogg"
    return Person(f"letters-{folder}", language, "klettres-data", "GPL-2+", files)


PEOPLE: Final = (
    _game("German", "de"),
    _game("Danish", "da"),
    _game("English", "en"),
    _game("Galician", "gl"),
    _game("Slovenian", "sl"),
    _game("Greek", "el"),
    _letters("Czech", "cs"),
    _letters("French", "fr"),
    _asterisk("allison", "English", "en", "en_US_f_Allison", "CC-BY-SA-3.0"),
    _asterisk("june", "French", "fr", "fr_CA_f_June", "CC-BY-SA-3.0"),
    _asterisk("ivrvoice", "Russian", "ru", "ru_RU_f_IvrvoiceRU", "CC-BY-3.0"),
    Person(
        "librivox",
        "English",
        "pocketsphinx-testdata",
        "BSD-2-clause; the reading is of LibriVox, in the public domain",
        "usr/share/pocketsphinx/test/data/librivox/*.wav",
    ),
)
"""Twelve people, the last four at 16 kHz; each is like herself and unlike the others (resemblyzer:
0.88 and more between recordings of one, 0.78 at most between two people)."""


def recordings(person: Person) -> list[tuple[Samples, int]]:
    """Return recordings ``[N]`` of a person, each with its sample rate.

    Raises FileNotFoundError if the package does not hold enough of what is expected.
    """
    folder = _unpacked(person.package)
    found: list[tuple[Samples, int]] = []
    parts: list[Samples] = []
    for path in sorted(folder.glob(person.files)):
        if not path.is_file():
            continue
        samples, rate_hz = _read(path)
        if len(samples) < _WORD_S * rate_hz or np.abs(samples).max() < _SILENT:
            continue
        parts += [samples, np.zeros(round(PAUSE_S * rate_hz), np.float32)]
        if sum(map(len, parts)) >= RECORDING_S * rate_hz:
            found.append((np.concatenate(parts), rate_hz))
            parts = []
        if len(found) == RECORDINGS:
            return found
    if parts:
        found.append((np.concatenate(parts), rate_hz))
    if len(found) < 2:
        raise FileNotFoundError(f"{person.package}: too little in {person.files}")
    return found


def _unpacked(package: str) -> Path:
    """Return the folder of a Debian package in the cache, fetched if it is missing."""
    folder = cache_folder() / "judged-people" / package
    if folder.is_dir():
        return folder
    partial = folder.with_suffix(".partial")
    partial.mkdir(parents=True, exist_ok=True)
    try:
        subprocess.run(
            ["apt-get", "download", package], cwd=partial, check=True, capture_output=True
        )
        archive = next(partial.glob(f"{package}_*.deb"))
        subprocess.run(["dpkg-deb", "-x", archive, partial], check=True, capture_output=True)
        archive.unlink()
    except (OSError, subprocess.CalledProcessError, StopIteration) as error:
        raise RuntimeError(f"Debian's {package} cannot be fetched: {error}") from error
    partial.rename(folder)
    return folder


def _read(path: Path) -> tuple[Samples, int]:
    """Return mono samples ``[N]`` in [-1, 1] of a sound file, and their rate."""
    if path.suffix in _TELEPHONY:
        with av.open(str(path), format=_TELEPHONY[path.suffix]) as container:
            frames = list(container.decode(audio=0))
        samples = np.concatenate([frame.to_ndarray().ravel() for frame in frames])
        return np.asarray(samples / 32768, np.float32), int(frames[0].sample_rate)
    sound, rate_hz = soundfile.read(path, dtype="float32", always_2d=True)
    return np.asarray(sound.mean(1), np.float32), int(rate_hz)
