"""Files made to harm: each is read or refused in a process of its own, and the next one is read."""

from collections.abc import Callable, Iterator
from contextlib import closing, suppress

import psutil
import pytest

from app.engine.errors import InvalidRequest, Unavailable
from app.engine.recordings import RecordingProcess
from lab.benchmarks.harness.hostile_files import HUGE, TINY
from models.voices import container
from models.voices.container import AudioContainer, ContainerError, libav_format
from tests.speech_like import packed, speech_like

MOST_GROWTH_BYTES = 30_000_000
GOOD = packed(speech_like(1.2))
QUICK = {  # the others take a second or more
    "MP4: 60 million samples",
    "MP4: tables of 2^31 entries",
    "MP4: 300 tracks",
    "WebM: an element of 2^50 bytes",
    "WAV: 65,535 channels",
    "RF64: 2^62 bytes",
    "FLAC: 2^36 samples of 8 channels",
    "CAF: 2^40 packets",
}
SLOW = [pytest.param(name, marks=pytest.mark.slow) for name in HUGE if name not in QUICK]


@pytest.fixture(scope="module")
def process() -> Iterator[RecordingProcess]:
    with closing(RecordingProcess()) as process:
        process.read(GOOD)
        yield process


@pytest.mark.parametrize("name", [*sorted(QUICK), *SLOW])
def test_a_small_file_that_says_it_is_huge_takes_no_memory_here(
    process: RecordingProcess, name: str
) -> None:
    content = HUGE[name]()
    assert len(content) < 3_000_000
    own = psutil.Process()
    before = own.memory_info().rss
    with suppress(InvalidRequest, Unavailable):
        process.read(content)
    assert own.memory_info().rss - before < MOST_GROWTH_BYTES
    assert process.read(GOOD).audio_s > 1


@pytest.mark.parametrize("make", TINY.values(), ids=TINY)
def test_of_tiny_and_damaged_packets_no_more_are_looked_at_than_may_be(
    make: Callable[[int], bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """So the work is bounded, however many a file of the greatest size holds."""
    monkeypatch.setattr(container, "MOST_PACKETS", 300)
    content = make(60_000)
    form = libav_format(content)
    assert form is not None
    with suppress(ContainerError):
        file = AudioContainer(content, form)
        with suppress(ContainerError):
            for block in file.blocks():
                assert block.shape[0] == file.channels
        assert file.packets <= 301
        assert file.frames <= 301


@pytest.mark.parametrize("name", [name for name in HUGE if "picture" in name or "video" in name])
@pytest.mark.slow
def test_no_picture_is_decoded(name: str) -> None:
    """Of 32 megapixels 256 MB would be: the process has not had them, and does not end."""
    with closing(RecordingProcess()) as process:
        process.read(GOOD)
        assert process.worker is not None
        assert process.worker.pid is not None
        before = psutil.Process(process.worker.pid).memory_info().rss
        with suppress(InvalidRequest):
            process.read(HUGE[name]())
        assert process.worker.generation == 1
        assert psutil.Process(process.worker.pid).memory_info().rss - before < MOST_GROWTH_BYTES
