"""Stand-ins with the interfaces of the real parts, for tests that need no model."""

import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from app.engine.engine import SpeechEngine
from app.engine.errors import InvalidRequest
from app.engine.job import AudioChunk, Progress, SpeechJob, SpeechResult, SpokenUtterance, Timings
from app.engine.speaking import ModelInfo, OnProgress, Plan, Replay
from app.engine.voices import Voices
from models.voice import BuiltinVoices

SAMPLE_RATE_HZ = 24_000
SAMPLES_A_FRAME = 320


class FakeSpeaking:
    """Speaks a ramp, a frame a character.

    A text with "break" raises in the middle; one with "wait" takes each frame only when `let` is
    called. Reading a text with "hard" in it takes until `read_on` is set.

    Args:
        chunk_s: Seconds of sound that are given after every frame; 0 gives all at the end.
    """

    def __init__(self, chunk_s: float = 0.0) -> None:
        self._chunk = np.linspace(-0.5, 0.5, round(chunk_s * SAMPLE_RATE_HZ), dtype=np.float32)
        self.info = ModelInfo("fake", "0" * 64, "cpu", SAMPLE_RATE_HZ, ("en",))
        self.voices = Voices(BuiltinVoices(Path("/nonexistent")))
        self.spoken: list[str] = []
        self.frames_made: dict[str, int] = {}
        self._steps = threading.Semaphore(0)
        self.began = threading.Event()
        self.read_on = threading.Event()
        self.readers: set[str] = set()

    def let(self, frames: int = 1) -> None:
        """Let waiting jobs make some more frames."""
        self._steps.release(frames)

    def plan(self, job: SpeechJob) -> Plan:
        self.readers.add(threading.current_thread().name)
        if "hard" in job.text:
            assert self.read_on.wait(20), "the test never let this text be read"
        if "unreadable" in job.text:
            raise RuntimeError("unreadable on purpose")
        if not job.text.strip():
            raise InvalidRequest("nothing to say", param="input")
        voice = self.voices.speaker(job.voice, job.owner)
        return Plan(job, job.params, job.params.seed or 7, voice, "en", (), 0.0)

    def speak(self, plan: Plan, *, queue_s: float, on_progress: OnProgress) -> Iterator[AudioChunk]:
        job = plan.job
        self.spoken.append(job.id)
        for frame in range(1, len(job.text) + 1):
            if "wait" in job.text:
                self.began.set()
                assert self._steps.acquire(timeout=20), "the test never let this frame be made"
            if "break" in job.text and frame == 3:
                raise RuntimeError("broken on purpose")
            self.frames_made[job.id] = frame
            if not on_progress(Progress(0, 1, frame)):
                return
            if len(self._chunk):
                yield AudioChunk(self._chunk, SAMPLE_RATE_HZ)
        left = 0 if len(self._chunk) else SAMPLES_A_FRAME * len(job.text)
        samples = np.linspace(-0.5, 0.5, left, dtype=np.float32)
        result = SpeechResult(
            job_id=job.id,
            finish_reason="stop",
            seed=plan.seed,
            params=plan.params,
            voice=plan.voice.name,
            language=plan.language,
            codes_sha256="f" * 64,
            frames=len(job.text),
            audio_s=(len(samples) + len(self._chunk) * len(job.text)) / SAMPLE_RATE_HZ,
            timings=Timings(queue_s, 0.0, 0.0, 0.0, 0.0, queue_s + 0.01),
            utterances=(SpokenUtterance(np.zeros((len(job.text), 1), np.int16), "stop"),),
        )
        yield AudioChunk(samples, SAMPLE_RATE_HZ, result)

    def replay(
        self, replay: Replay, *, queue_s: float, on_progress: OnProgress
    ) -> Iterator[AudioChunk]:
        assert queue_s >= 0
        assert on_progress(Progress())
        samples = np.ones(SAMPLES_A_FRAME * replay.result.frames, dtype=np.float32)
        yield AudioChunk(samples, SAMPLE_RATE_HZ, replay.result)


def fake_engine(
    speaking: FakeSpeaking | None = None,
    *,
    max_queue: int = 4,
    request_timeout_s: float = 60.0,
    stall_timeout_s: float = 30.0,
) -> SpeechEngine:
    """An engine around a fake."""
    loaded = speaking or FakeSpeaking()
    return SpeechEngine(
        lambda: loaded,
        max_queue=max_queue,
        request_timeout_s=request_timeout_s,
        stall_timeout_s=stall_timeout_s,
    )
