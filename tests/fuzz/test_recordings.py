"""Whatever is changed in a recording: it is read or refused, and the next one is read.

Files of twelve kinds are changed at random and read as the service reads them, in a process of
their own. `FUZZ_RECORDINGS` says how many; CI takes 240, the same every time. With `-s` the test
prints how many were read, and what the worst of them took.
"""

import random
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from typing import Final

import psutil
import pytest

from app.engine.errors import InvalidRequest
from app.engine.recordings import RecordingProcess
from tests.fuzz.settings import cases_of, seed_of
from tests.models.voices.test_recording import container
from tests.speech_like import packed, speech_like

CI_CASES: Final = 240
CASES: Final = cases_of("FUZZ_RECORDINGS", CI_CASES)
SEED: Final = seed_of(CASES, CI_CASES)
SPEECH: Final = speech_like(1.2)
GOOD: Final = packed(SPEECH)
FILES: Final[dict[str, Callable[[], bytes]]] = {
    "WAV": lambda: GOOD,
    "FLAC": lambda: packed(SPEECH, format="FLAC"),
    "AIFF": lambda: packed(SPEECH, format="AIFF"),
    "CAF": lambda: packed(SPEECH, format="CAF"),
    "MP3": lambda: packed(SPEECH, format="MP3"),
    "Vorbis": lambda: packed(SPEECH, format="OGG", subtype="VORBIS"),
    "Opus": lambda: container("ogg", "libopus", SPEECH),
    "WebM": lambda: container("webm", "libopus", SPEECH),
    "MKV": lambda: container("matroska", "pcm_s16le", SPEECH),
    "M4A": lambda: container("mp4", "aac", SPEECH),
    "MOV": lambda: container("mov", "pcm_s16le", SPEECH),
    "AAC": lambda: container("adts", "aac", SPEECH),
}
EXTREMES: Final = (b"\0\0\0\0", b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\xff\xff\xff\x7f")
HEADER_BYTES: Final = 512


def _some_bytes(file: bytearray, chance: random.Random) -> None:
    for _ in range(chance.choice((1, 2, 8, 64))):
        file[chance.randrange(len(file))] = chance.randrange(256)


def _header_bytes(file: bytearray, chance: random.Random) -> None:
    for _ in range(chance.choice((1, 2, 4))):
        file[chance.randrange(min(HEADER_BYTES, len(file)))] ^= 1 << chance.randrange(8)


def _number(file: bytearray, chance: random.Random) -> None:
    place = chance.randrange(min(HEADER_BYTES, len(file) - 4))
    file[place : place + 4] = chance.choice(EXTREMES)


def _cut(file: bytearray, chance: random.Random) -> None:
    del file[chance.randrange(1, len(file)) :]


def _loss(file: bytearray, chance: random.Random) -> None:
    place = chance.randrange(len(file))
    del file[place : place + chance.choice((1, 3, 100, 5000))]


def _repeat(file: bytearray, chance: random.Random) -> None:
    place = chance.randrange(len(file))
    part = bytes(file[place : place + chance.choice((4, 100, 2000))])
    file[place:place] = part * chance.choice((1, 2, 50))


def _zeros(file: bytearray, chance: random.Random) -> None:
    place = chance.randrange(len(file))
    length = min(chance.choice((16, 1000, 20_000)), len(file) - place)
    file[place : place + length] = bytes(length)


CHANGES: Final = (_some_bytes, _header_bytes, _number, _cut, _loss, _repeat, _zeros)


def changed(file: bytes, chance: random.Random) -> bytes:
    """Return a file with one to three changes."""
    result = bytearray(file)
    for _ in range(chance.choice((1, 1, 2, 3))):
        if len(result) > 8:
            chance.choice(CHANGES)(result, chance)
    return bytes(result)


@pytest.mark.slow
@pytest.mark.timeout(max(300, CASES // 5))
def test_a_changed_recording_is_read_or_refused_and_the_next_is_read() -> None:
    """Any other exception fails the test, and so does a process that ends but for its limits."""
    chance = random.Random(SEED)
    files = {name: make() for name, make in FILES.items()}
    results = Counter[str]()
    crashes = list[bytes]()
    longest_s = 0.0
    most_bytes = 0
    with closing(RecordingProcess()) as process:
        for file in files.values():
            assert process.read(file).audio_s > 1
        assert process.worker is not None
        first_pid = process.worker.pid
        assert first_pid is not None
        before = psutil.Process(first_pid).memory_info().rss
        for number in range(CASES):
            name = list(files)[number % len(files)]
            content = changed(files[name], chance)
            began_s = time.monotonic()
            try:
                process.read(content)
                results[f"{name} read"] += 1
            except InvalidRequest as error:
                results[f"{name} refused"] += 1
                results["too large or slow"] += "it takes more than" in str(error)
                results["too large or slow"] += "it takes too much memory" in str(error)
                if "ends the process" in str(error):
                    crashes.append(content)
            longest_s = max(longest_s, time.monotonic() - began_s)
            if process.worker.pid == first_pid:
                most_bytes = max(most_bytes, psutil.Process(first_pid).memory_info().rss - before)
        assert process.read(GOOD).audio_s > 1
    assert not crashes, f"seed {SEED}: {crashes[0][:200]!r}... ended the process that read it"
    assert any(results[f"{name} read"] for name in files)
    assert all(results[f"{name} refused"] for name in files)
    rows = [f"{name}: {count}" for name, count in sorted(results.items())]
    worst = f"seed {SEED}, longest {longest_s:.2f} s, {most_bytes / 1e6:.0f} MB more"
    sys.stdout.write("\n".join(["", worst, *rows, ""]))
