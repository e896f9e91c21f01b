"""Stand-ins with the interfaces of the real parts, for tests that need no model."""

import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from app.engine.admission.cost_model import CostModel
from app.engine.admission.playback import Playback
from app.engine.core import AudioChunk, Plan, Progress, SpeechJob, SpeechResult, Timings
from app.engine.engine import SpeechEngine
from app.engine.errors import GenerationFailed, InvalidRequest, SpeechError, broken
from app.engine.interface import ArStream, AudioStream, FirstChunk, GoldenResult, ModelInfo, Reading
from app.engine.messages import ArMessage, FramesReady, UtteranceDone
from app.engine.results import Codes, Samples, UtteranceResult
from app.engine.voices import Voices
from app.settings import Settings
from models.text import Utterance
from models.voices.recording import Recording
from models.voices.voice import BuiltinVoices
from samplers.knobs.features import rows_needed
from samplers.knobs.params import SamplingParams

SAMPLE_RATE_HZ = 24_000
SAMPLES_A_FRAME = 320


Part = Literal["text", "ar", "audio", "ar thread", "audio thread"]
"""What a job fails in: reading, sampling, or making sound of it; or what fails with its thread."""


class FakeBackend:
    """Speaks a ramp, a frame a character.

    Args:
        chunk_s: Seconds of sound that are given after every frame; 0 gives all at the end.
        block: Which jobs wait where, by a part of their text. In "ar" each frame is taken only when
            `let` is called. In "text" reading takes until `read_on` is set; of files, too.
        fail_at: Which jobs fail where, by a part of their text; in "ar" after two frames.
    """

    def __init__(
        self,
        chunk_s: float = 0.0,
        *,
        block: Mapping[str, Literal["text", "ar"]] | None = None,
        fail_at: Mapping[str, Part] | None = None,
    ) -> None:
        self._chunk = np.linspace(-0.5, 0.5, round(chunk_s * SAMPLE_RATE_HZ), dtype=np.float32)
        self._block = dict(block or {})
        self._fail_at = dict(fail_at or {})
        self.info = ModelInfo(
            "fake", "0" * 64, "cpu", SAMPLE_RATE_HZ, ("en",), frame_rate_hz=1 / (chunk_s or 1 / 75)
        )
        self.voices = Voices(BuiltinVoices(Path("/nonexistent")))
        self.presets = {"auto": SamplingParams(preset="default")}
        self.spoken: list[str] = []
        self.frames_made: dict[str, int] = {}
        self.steps = threading.Semaphore(0)
        self.began = threading.Event()
        self.read_on = threading.Event()
        self.readers: set[str] = set()
        self.unloaded = 0

    def blocks(self, text: str, part: Literal["text", "ar"]) -> bool:
        """Return whether a text waits in a part."""
        return any(one in text for one, where in self._block.items() if where == part)

    def fails(self, text: str, part: Part) -> bool:
        """Return whether a text fails in a part."""
        return any(one in text for one, where in self._fail_at.items() if where == part)

    def forget(self) -> None:
        """Forget what was spoken, and the frames that were let go and not taken."""
        while self.steps.acquire(blocking=False):
            pass
        self.spoken.clear()
        self.frames_made.clear()

    @property
    def planner(self) -> "FakeBackend":
        """It is every part of its model itself."""
        return self

    encoder = ar = audio = memory = checks = planner

    def let(self, frames: int = 1) -> None:
        """Let waiting jobs make some more frames."""
        self.steps.release(frames)

    def _read(self, text: str) -> None:
        if self.blocks(text, "text"):
            assert self.read_on.wait(20), "the test never let this be read"
        if self.fails(text, "text"):
            raise RuntimeError("unreadable on purpose")

    def plan(self, job: SpeechJob, on_piece: Callable[[], None] = lambda: None) -> Plan:
        self.readers.add(threading.current_thread().name)
        self._read(job.text)
        on_piece()
        if not job.text.strip():
            raise InvalidRequest("nothing to say", param="input")
        voice = self.voices.speaker(job.voice, job.owner)
        rows = rows_needed(job.params, 1.0)
        return Plan(job, job.params, job.params.seed or 7, voice, "en", (), 0.0, rows)

    def read(self, job: SpeechJob, on_piece: Callable[[], None] = lambda: None) -> Reading:
        self._read(job.text)
        return Reading("en", (Utterance(job.text, job.text),))

    def read_audio(self, content: bytes, start_s: float | None = None) -> Recording:
        self._read(content.decode("latin-1"))
        return Recording(np.zeros(len(content), np.float32), SAMPLE_RATE_HZ)

    def encode(self, audio: Recording) -> Codes:
        return np.zeros((len(audio.samples), 1), np.int16)

    def batch(self, slots: int) -> "FakeBatch":
        return FakeBatch(self)

    def fits(self, plan: Plan, running: Iterable[Plan]) -> bool:
        return True

    @property
    def cache_bytes(self) -> Mapping[str, int]:
        return {"level_0": 1000}

    def audio_stream(self, plan: Plan, playback: Playback) -> "FakeAudioStream":
        return FakeAudioStream(self, plan, playback, self._chunk)

    chunks_at_once = 1

    def make_together(self, streams: Sequence[AudioStream]) -> Sequence[AudioStream]:
        return ()

    def prepare_audio(self) -> None:
        pass

    def sound_context(self) -> AbstractContextManager[None]:
        return nullcontext()

    def unload(self, is_idle: Callable[[], bool]) -> None:
        if is_idle():
            self.unloaded += 1

    def close(self) -> None:
        pass

    def measure(self, costs: CostModel, slots: int) -> "FakeBatch":
        return self.batch(slots)

    def check_golden(self) -> GoldenResult | None:
        return GoldenResult(2, 1)

    def check_deterministic(self) -> bool:
        return True

    def replay(self, result: SpeechResult, playback: Playback) -> Iterator[AudioChunk]:
        samples = np.ones(SAMPLES_A_FRAME * result.frames, dtype=np.float32)
        playback.add(len(samples) / SAMPLE_RATE_HZ)
        yield AudioChunk(samples, SAMPLE_RATE_HZ, result)


class FakeArStream:
    """A frame a character."""

    def __init__(
        self, backend: FakeBackend, plan: Plan, on_message: Callable[[ArMessage], None]
    ) -> None:
        self._backend, self._job, self._on_message = backend, plan.job, on_message
        self.over = False
        self.error: SpeechError | None = None
        self.frames = 0

    waits = False

    @property
    def ready_s(self) -> float:
        return self.frames / self._backend.info.frame_rate_hz

    @property
    def progress(self) -> Progress:
        return Progress(0, 1, self.frames)

    def step(self) -> None:
        backend, text = self._backend, self._job.text
        if backend.blocks(text, "ar"):
            backend.began.set()
            if not backend.steps.acquire(timeout=0.002):
                return
        if backend.fails(text, "ar thread") and self.frames == 2:
            raise SystemExit("crashed on purpose")
        if backend.fails(text, "ar") and self.frames == 2:
            self.over, self.error = True, broken(self._job.id, RuntimeError("broken on purpose"))
            return
        self.frames += 1
        backend.frames_made[self._job.id] = self.frames
        self.over = self.frames == len(text)
        frame = torch.zeros(1, dtype=torch.int64)
        self._on_message(UtteranceDone("stop") if self.over else FramesReady(frame))


class FakeBatch:
    """Samples for all jobs, one after the other."""

    def __init__(self, backend: FakeBackend) -> None:
        self._backend = backend
        self._streams: dict[ArStream, FakeArStream] = {}

    def begin(self, plan: Plan, on_message: Callable[[ArMessage], None]) -> FakeArStream:
        self._backend.spoken.append(plan.job.id)
        stream = FakeArStream(self._backend, plan, on_message)
        self._streams[stream] = stream
        return stream

    def extend(self, job: ArStream, plan: Plan) -> None:
        raise AssertionError("it is told all of its text at once")

    def step(self, jobs: Collection[ArStream]) -> None:
        for job in jobs:
            self._streams[job].step()

    def end(self, job: ArStream) -> None:
        self._streams.pop(job).over = True

    def close(self) -> None:
        pass


class FakeAudioStream:
    """A ramp."""

    first_chunks: tuple[FirstChunk, ...] = ()

    def __init__(
        self, backend: FakeBackend, plan: Plan, playback: Playback, chunk: Samples
    ) -> None:
        self._backend = backend
        self._plan = plan
        self._playback = playback
        self._chunk = chunk
        self._queue_s = time.monotonic() - playback.submitted_s

    def close(self) -> None:
        pass

    def push(self, message: ArMessage) -> Iterator[AudioChunk]:
        job = self._plan.job
        if self._backend.fails(job.text, "audio"):
            raise GenerationFailed("muted on purpose")
        if self._backend.fails(job.text, "audio thread"):
            raise SystemExit("crashed on purpose")
        if len(self._chunk):
            self._playback.add(len(self._chunk) / SAMPLE_RATE_HZ)
            yield AudioChunk(self._chunk, SAMPLE_RATE_HZ)
        if message.kind != "done":
            return
        left = 0 if len(self._chunk) else SAMPLES_A_FRAME * len(job.text)
        samples = np.linspace(-0.5, 0.5, left, dtype=np.float32)
        self._playback.add(len(samples) / SAMPLE_RATE_HZ)
        yield AudioChunk(samples, SAMPLE_RATE_HZ, self._result(len(samples)))

    def _result(self, samples: int) -> SpeechResult:
        plan, text = self._plan, self._plan.job.text
        return result_of(
            UtteranceResult(np.zeros((len(text), 1), np.int16), "stop", phonemes=text),
            job_id=plan.job.id,
            seed=plan.seed,
            params=plan.params,
            voice=plan.voice.name,
            audio_s=(samples + len(self._chunk) * len(text)) / SAMPLE_RATE_HZ,
            timings=Timings(self._queue_s, 0.0, 0.0, 0.0, 0.0, self._queue_s + 0.01),
        )


def result_of(*utterances: UtteranceResult, **fields: Any) -> SpeechResult:
    """What came of a job that spoke these, and lasted a second unless something else is said."""
    usual: dict[str, Any] = {
        "job_id": "a", "finish_reason": "stop", "seed": 1, "params": SamplingParams(), "voice": "v",
        "language": "en", "codes_sha256": "f" * 64, "audio_s": 1.0, "timings": Timings(*[0.0] * 6),
        "frames": sum(len(one.codes) for one in utterances),
    }  # fmt: skip
    return SpeechResult(**usual | fields, utterances=utterances)


def fake_engine(backend: FakeBackend | None = None, **limits: Any) -> SpeechEngine:
    """An engine around a fake, which speaks one job at a time unless it has more slots."""
    loaded = backend or FakeBackend()
    options = {"max_queue": 4, "request_timeout_s": 60.0, "slots": 1} | limits
    return SpeechEngine(lambda: loaded, Settings(**options))


def engine_that_loads() -> tuple[SpeechEngine, threading.Event]:
    """An engine around a fake that is loaded once an event is set, and the event."""
    may_load = threading.Event()

    def load() -> FakeBackend:
        assert may_load.wait(60), "the test never let this model be loaded"
        return FakeBackend()

    return SpeechEngine(load, Settings(max_queue=1, request_timeout_s=60)), may_load
