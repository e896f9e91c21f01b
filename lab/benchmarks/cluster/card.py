"""A card that only keeps time: an engine whose steps take as long as those of a card would.

For measurements of what stands before the engines, on a machine that could not run several. A step
draws a frame of every row and sleeps; the processor does next to nothing. A text of N
characters is N frames of `FRAME_S`. Codes are drawn from the seed, and the sound is made of the
codes, so that a repeated or broken speech is seen by its bytes.
"""

import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np
import torch
from fastapi import FastAPI

from app.engine.admission.cost_model import CostModel
from app.engine.admission.playback import Playback
from app.engine.core import AudioChunk, Plan, Progress, SpeechJob, SpeechResult, Timings
from app.engine.engine import SpeechEngine
from app.engine.errors import InvalidRequest, SpeechError
from app.engine.interface import ArStream, AudioStream, FirstChunk, GoldenResult, ModelInfo, Reading
from app.engine.messages import ArMessage, FramesReady, UtteranceDone
from app.engine.results import Codes, Samples, UtteranceResult
from app.engine.voices import Voices
from app.main import create_app as service
from app.server import serve
from app.settings import Settings
from models.text import Utterance
from models.voices.recording import Recording
from models.voices.voice import BuiltinVoices
from samplers.knobs.features import rows_needed
from samplers.knobs.params import SamplingParams

RATE_HZ: Final = 24_000
FRAME_S: Final = 0.08
LEVELS: Final = 8
_SAMPLES: Final = round(FRAME_S * RATE_HZ)


STEP_S: Final = 0.025


def create_app(settings: Settings | None = None, step_s: float = STEP_S) -> FastAPI:
    """Return the service with a card that keeps time, by default of the environment's settings."""
    settings = settings or Settings()
    card = Card(step_s)
    return service(settings, SpeechEngine(lambda: card, settings))


fast_app = partial(create_app, step_s=0.002)
"""40 times as fast as it is listened to."""

even_app = partial(create_app, step_s=0.05)
"""20 steps a second."""

slow_app = partial(create_app, step_s=0.1)
"""So slow that eight of them are little work for a processor."""


def codes_of(seed: int, frames: int) -> np.ndarray[tuple[int, int], np.dtype[np.int16]]:
    """Return the codes ``[frames, LEVELS]`` of a speech."""
    codes = np.random.default_rng(seed).integers(0, 1024, (frames, LEVELS))
    return codes.astype(np.int16)


def sound_of(codes: np.ndarray[tuple[int, int], np.dtype[np.int16]]) -> Samples:
    """Return the samples of codes: of each frame a tone whose pitch is that of level 0."""
    times = np.arange(_SAMPLES, dtype=np.float32) / RATE_HZ
    pitches = 100 + codes[:, :1].astype(np.float32)
    tones = 0.3 * np.sin(2 * np.pi * pitches * times)
    return tones.reshape(-1).astype(np.float32)


class Card:
    """A model for `SpeechEngine` whose step takes ``step_s`` with any rows; see the module."""

    def __init__(self, step_s: float) -> None:
        self.step_s = step_s
        self.info = ModelInfo(
            "card", "0" * 64, "cpu", RATE_HZ, ("en",), frame_rate_hz=round(1 / FRAME_S, 3)
        )
        self.voices = Voices(BuiltinVoices(Path("/nonexistent")))
        self.presets = {"auto": SamplingParams(preset="default")}

    @property
    def planner(self) -> "Card":
        """Every part of its model is itself."""
        return self

    encoder = ar = audio = memory = checks = planner

    def plan(self, job: SpeechJob, on_piece: Callable[[], None] = lambda: None) -> Plan:
        """Resolve a job, or refuse one without text; its seed is drawn if it has none."""
        on_piece()
        if not job.text.strip():
            raise InvalidRequest("nothing to say", param="input")
        seed = job.params.seed
        seed = int(np.random.default_rng().integers(2**31)) if seed is None else seed
        voice = self.voices.speaker(job.voice, job.owner)
        return Plan(job, job.params, seed, voice, "en", (), 0.0, rows_needed(job.params, 1.0))

    def read_audio(self, content: bytes, start_s: float | None = None) -> Recording:
        """Return a frame of silence: nothing is read."""
        del content, start_s
        return Recording(np.zeros(_SAMPLES, np.float32), RATE_HZ)

    def encode(self, audio: Recording) -> Codes:
        """Return the codes of a frame."""
        del audio
        return np.zeros((1, LEVELS), np.int16)

    def read(self, job: SpeechJob, on_piece: Callable[[], None] = lambda: None) -> Reading:
        """Return the text as one utterance."""
        on_piece()
        return Reading("en", (Utterance(job.text, job.text),))

    def batch(self, slots: int) -> "CardBatch":
        """Return an empty batch."""
        del slots  # the scheduler keeps count
        return CardBatch(self.step_s)

    def fits(self, plan: Plan, running: Iterable[Plan]) -> bool:
        """Return True: it has no memory that could be full."""
        del plan, running
        return True

    @property
    def cache_bytes(self) -> Mapping[str, int]:
        """Nothing."""
        return {}

    def audio_stream(self, plan: Plan, playback: Playback) -> "CardAudio":
        """Return what makes the sound of a job."""
        return CardAudio(plan, playback)

    def replay(self, result: SpeechResult, playback: Playback) -> Iterator[AudioChunk]:
        """Yield the sound of the codes once more."""
        samples = sound_of(result.utterances[0].codes)
        playback.add(len(samples) / RATE_HZ)
        yield AudioChunk(samples, RATE_HZ, result)

    chunks_at_once = 1

    def make_together(
        self,
        streams: Sequence[AudioStream],  # noqa: ARG002
    ) -> Sequence[AudioStream]:
        """Make nothing: each is made by itself."""
        return ()

    def prepare_audio(self) -> None:
        """Do nothing."""

    def sound_context(self) -> AbstractContextManager[None]:
        """Return a context that does nothing."""
        return nullcontext()

    def unload(self, is_idle: Callable[[], bool]) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""

    def measure(self, costs: CostModel, slots: int) -> "CardBatch":  # noqa: ARG002
        """Record nothing: every slot is offered."""
        return self.batch(slots)

    def check_golden(self) -> GoldenResult | None:
        """Return None: there are no golden requests."""
        return None

    def check_deterministic(self) -> bool:
        """Return True: codes are those of the seed."""
        return True


class CardAr:
    """A job's frames, counted."""

    def __init__(self, plan: Plan, on_message: Callable[[ArMessage], None]) -> None:
        self._frames, self._on_message = len(plan.job.text), on_message
        self.over, self.frames = False, 0
        self.error: SpeechError | None = None

    waits = False

    @property
    def ready_s(self) -> float:
        """Seconds of sound of its frames."""
        return self.frames * FRAME_S

    @property
    def progress(self) -> Progress:
        """How far it is."""
        return Progress(0, 1, self.frames)

    def step(self) -> None:
        """Draw a frame."""
        self.frames += 1
        self.over = self.frames >= self._frames
        frame = torch.zeros(1, dtype=torch.int64)
        self._on_message(UtteranceDone("stop") if self.over else FramesReady(frame))


class CardBatch:
    """Draws a frame of every job in the time of a step."""

    def __init__(self, step_s: float) -> None:
        self._step_s, self._due_s = step_s, 0.0
        self._jobs: dict[ArStream, CardAr] = {}

    def begin(self, plan: Plan, on_message: Callable[[ArMessage], None]) -> CardAr:
        """Add a job."""
        job = CardAr(plan, on_message)
        self._jobs[job] = job
        return job

    def extend(self, job: ArStream, plan: Plan) -> None:
        """Do nothing: its jobs know all of their texts."""

    def step(self, jobs: Collection[ArStream]) -> None:
        """Draw a frame of each job; steps follow each other at the card's pace."""
        now_s = time.monotonic()
        late = now_s - self._due_s > self._step_s  # it was idle
        self._due_s = (now_s if late else self._due_s) + self._step_s
        time.sleep(max(0.0, self._due_s - now_s))
        for job in jobs:
            self._jobs[job].step()

    def end(self, job: ArStream) -> None:
        """Remove a job."""
        self._jobs.pop(job).over = True

    def close(self) -> None:
        """Do nothing."""


class CardAudio:
    """The tones of a job's codes."""

    first_chunks: tuple[FirstChunk, ...] = ()

    def __init__(self, plan: Plan, playback: Playback) -> None:
        self._plan, self._playback = plan, playback
        self._codes = codes_of(plan.seed, len(plan.job.text))
        self._queue_s = time.monotonic() - playback.submitted_s
        self._made = 0

    def close(self) -> None:
        """Do nothing."""

    def push(self, message: ArMessage) -> Iterator[AudioChunk]:
        """Yield the tone of a frame."""
        samples = sound_of(self._codes[self._made : self._made + 1])
        self._made += 1
        self._playback.add(FRAME_S)
        ended = message.kind == "done"
        yield AudioChunk(samples, RATE_HZ, self._result() if ended else None)

    def _result(self) -> SpeechResult:
        plan, frames = self._plan, len(self._codes)
        total_s = time.monotonic() - self._playback.submitted_s
        audio_s = frames * FRAME_S
        return SpeechResult(
            job_id=plan.job.id,
            finish_reason="stop",
            seed=plan.seed,
            params=plan.params,
            voice=plan.voice.name,
            language=plan.language,
            codes_sha256=f"{plan.seed:064x}",
            frames=frames,
            audio_s=audio_s,
            timings=Timings(self._queue_s, 0.0, total_s - self._queue_s, 0.0, 0.0, total_s),
            utterances=(UtteranceResult(self._codes, "stop", duration_s=audio_s),),
        )


APPS: Final[Mapping[str, Callable[[Settings], FastAPI]]] = {
    "even": even_app,
    "usual": create_app,
    "slow": slow_app,
    "fast": fast_app,
}


def main() -> None:
    """Serve one card in this process, as `valle-serve serve` does; an argument says which."""
    settings = Settings()
    serve(APPS[sys.argv[1] if len(sys.argv) > 1 else "usual"](settings), settings)


if __name__ == "__main__":
    main()
