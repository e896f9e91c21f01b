"""Whose speech is judged: teacher, codec round trip, built-in model, a server, recordings.

A speaker is any callable ``(text, seed) -> samples`` at ``SAMPLE_RATE_HZ``; one that knows more
about what it said returns a ``Speech``.
"""

import asyncio
import io
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import soundfile
import torch
from numpy.typing import NDArray

from lab.training.judging.judges import resample
from lab.training.speech.corpus import SAMPLE_RATE_HZ
from models.checkpoints.builtin import read_codec_config
from samplers.knobs.params import SamplingParams

if TYPE_CHECKING:
    from models.codecs.interface import Codec

Samples: TypeAlias = NDArray[np.float32]  # [N]

TIMEOUT_S = 300.0
_GAVE_UP = {"stuck", "length", "error"}  # finish reasons of the service


@dataclass(frozen=True)
class Speech:
    """What a speaker said, and what else is known of it."""

    samples: Samples
    codes: NDArray[np.int64] | None = None  # [T, K]
    wall_s: float | None = None
    """How long it took, if not the whole call counts."""
    gave_up: bool | None = None
    """Whether it came to no end, if the speaker tells."""
    trimmed_s: float = 0.0
    """Silence that was cut off at both ends before anybody could hear it."""


Speaker: TypeAlias = Callable[[str, int], Samples | Speech]

SpeakFunction: TypeAlias = Callable[[str, int], Samples]


class Teacher:
    """The voice that the model learned from."""

    def __init__(self) -> None:
        from hibari import Hibari

        self._voice = Hibari()

    def __call__(self, text: str, seed: int) -> Samples:
        """Read ``text`` aloud."""
        return np.asarray(self._voice(text, seed=seed), dtype=np.float32)


class RoundTrip:
    """The teacher's speech, encoded and decoded: no model can sound better than this."""

    def __init__(self, teacher: SpeakFunction, codec: "Codec", levels: int | None = None) -> None:
        self._teacher, self._codec, self._levels = teacher, codec, levels

    def __call__(self, text: str, seed: int) -> Speech:
        """Pass the teacher's reading of ``text`` through the codec."""
        return self.pass_through(self._teacher(text, seed))

    @torch.inference_mode()
    def pass_through(self, samples: Samples) -> Speech:
        """Return ``samples`` ``[N]`` as the codec renders them."""
        started = time.perf_counter()
        codes = self._codec.encode(torch.from_numpy(samples))[:, : self._levels]
        decoded = self._codec.decode(codes)
        return Speech(
            # The last frame is filled up with silence, which the teacher did not say.
            samples=decoded.cpu().numpy().astype(np.float32)[: len(samples)],
            codes=codes.cpu().numpy(),
            wall_s=time.perf_counter() - started,
        )


class BuiltIn:
    """The built-in model through the service's own engine."""

    def __init__(self, folder: Path) -> None:
        from app.main import create_engine
        from app.settings import Settings

        self._frame_rate_hz = read_codec_config(folder).frame_rate_hz
        self._engine = create_engine(Settings(model=str(folder)))
        self._loop = asyncio.Runner()
        self._engine.start()
        self._loop.run(self._engine.lifecycle.wait_ready())

    def __call__(self, text: str, seed: int) -> Speech:
        """Have the engine speak ``text`` in the default voice with the default preset."""
        return self.speak_as(None, text, seed)

    def speak_as(
        self, voice: str | None, text: str, seed: int, knobs: Mapping[str, object] | None = None
    ) -> Speech:
        """Have the engine speak ``text`` in a voice of the model's folder, with other knobs."""
        params = SamplingParams.model_validate({**(knobs or {}), "seed": seed})
        return self._loop.run(self._speak(voice, text, params))

    async def _speak(self, voice: str | None, text: str, params: SamplingParams) -> Speech:
        from app.engine.core import SpeechJob

        job = SpeechJob(f"evaluate-{params.seed}", text, params, voice)
        chunks = [chunk async for chunk in self._engine.submit(job)]
        result = chunks[-1].result
        assert result is not None  # the engine ends a stream with its result or an exception
        samples = np.concatenate([chunk.samples for chunk in chunks])
        return Speech(
            samples=resample(samples, chunks[-1].sample_rate_hz, SAMPLE_RATE_HZ),
            gave_up=result.finish_reason in _GAVE_UP,
            trimmed_s=max(0.0, result.frames / self._frame_rate_hz - result.audio_s),
        )


class Server:
    """A running valle-serve, asked through ``POST /tts``."""

    def __init__(self, url: str) -> None:
        import httpx

        self._client = httpx.Client(base_url=url, timeout=TIMEOUT_S)

    def __call__(self, text: str, seed: int) -> Speech:
        """Ask for ``text``; raises RuntimeError if the answer is an error."""
        answer = self._client.post("/tts", json={"input": text, "seed": seed})
        if answer.is_error:
            raise RuntimeError(f"{answer.request.url}: {answer.status_code} {answer.text[:500]}")
        samples, rate_hz = soundfile.read(io.BytesIO(answer.content), dtype="float32")
        return Speech(
            samples=resample(samples, rate_hz, SAMPLE_RATE_HZ),
            gave_up=answer.headers.get("x-finish-reason") in _GAVE_UP,
        )

    def close(self) -> None:
        """Let go of the connection."""
        self._client.close()


class Recordings:
    """WAV files of a folder: ``0001-s0.wav`` is the first sentence with seed 0."""

    def __init__(self, folder: Path, sentences: Sequence[str]) -> None:
        self._folder = folder
        self._numbers = {text: number for number, text in enumerate(sentences, start=1)}

    def __call__(self, text: str, seed: int) -> Speech:
        """Return the recording of ``text``."""
        path = recording_path(self._folder, self._numbers[text], seed)
        samples, rate_hz = soundfile.read(path, dtype="float32")
        return Speech(resample(samples, rate_hz, SAMPLE_RATE_HZ))


def recording_path(folder: Path, number: int, seed: int) -> Path:
    """Return where the recording of sentence ``number`` (from 1) lies."""
    return folder / f"{number:04d}-s{seed}.wav"
