"""One job from text to samples with the loaded model, synchronously.

Owns the model, its voices and the rule of how long speech may get. Knows nothing of threads,
queues or other jobs: that is `app.engine.engine`.
"""

import hashlib
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter
from typing import Literal, Self

import numpy as np
import torch
from torch import Tensor

from app.engine.decode import Decoded, Piece, decode_utterance
from app.engine.errors import GenerationFailed, InvalidRequest, UnknownVoice
from app.engine.job import (
    AudioChunk,
    FinishReason,
    Progress,
    Samples,
    SpeechJob,
    SpeechResult,
    SpokenUtterance,
    Timings,
)
from app.engine.speaking import ModelInfo, OnProgress, Plan
from app.engine.stream import Joiner
from models.checkpoints import CheckpointError, SpeechModel, load_speech_model
from models.silence import silent_codes
from models.text import TextError, Utterance, encode_phonemes, prepare
from models.voice import BuiltinVoices, PromptCodes, Voice
from samplers.conflicts import ConflictError
from samplers.params import SamplingParams, resolve
from samplers.presets import PRESETS, Presets, UnknownPreset

# Generous: speech has 10 to 15 phonemes a second, so a sane utterance ends long before.
SECONDS_A_PHONEME = 0.16
SECONDS_MORE = 1.0
LONGEST_UTTERANCE_S = 60.0

_GRAVITY: tuple[FinishReason, ...] = ("stop", "length", "stuck", "cancelled", "error")


class Synthesizer:
    """A loaded model that speaks one job at a time."""

    def __init__(
        self,
        speech: SpeechModel,
        device: torch.device,
        *,
        max_text_chars: int,
        presets: Presets = PRESETS,
    ) -> None:
        """Take a loaded model.

        Args:
            speech: On ``device``.
            device: Where the model is.
            max_text_chars: Longer texts are refused.
            presets: Those that a request may name.

        Raises:
            CheckpointError: A voice's files or the model's preset are not valid.
        """
        self._speech = speech
        self._max_text_chars = max_text_chars
        self._presets = presets
        config = speech.model.config
        try:
            self.voices = BuiltinVoices(speech.folder / "voices")
            resolve(SamplingParams(), config.preset, presets)
        except ValueError as error:
            raise CheckpointError(f"{speech.folder}: {error}") from error
        self._prompts = PromptCodes(speech.codec, device, max_frames=config.max_prompt_frames)
        self._silent = silent_codes(speech.codec)
        self.info = ModelInfo(
            speech.name,
            speech.sha256,
            str(device),
            speech.codec.config.sample_rate_hz,
            config.languages,
        )

    @classmethod
    def load(
        cls,
        model: str | Path,
        device: Literal["auto", "cpu", "cuda"],
        *,
        threads: int,
        max_text_chars: int,
        presets: Presets = PRESETS,
    ) -> Self:
        """Load a model folder, in the thread that will speak.

        Raises:
            CheckpointError: The weights are missing, damaged or not what their description says.
        """
        torch.set_num_threads(threads)
        place = choose_device(device)
        speech = load_speech_model(model, place)
        return cls(speech, place, max_text_chars=max_text_chars, presets=presets)

    def plan(self, job: SpeechJob) -> Plan:
        """Check what can be checked without work, and fill in what was left open.

        Raises:
            InvalidRequest: The text or language is not for this model, there is no such preset,
                or knobs contradict.
            UnknownVoice: There is no such voice.
        """
        if len(job.text) > self._max_text_chars:
            raise InvalidRequest(
                f"the text has {len(job.text)} characters, at most {self._max_text_chars} fit",
                param="input",
            )
        voice = self._voice(job.voice)
        language = job.language or voice.language
        if language not in self.info.languages:
            spoken = ", ".join(self.info.languages)
            raise InvalidRequest(
                f"the model does not speak {language!r}, only {spoken}", param="language"
            )
        try:
            params = resolve(job.params, self._speech.model.config.preset, self._presets)
        except UnknownPreset as error:
            raise InvalidRequest(str(error), param="preset") from error
        except ConflictError as error:
            raise InvalidRequest(str(error), param=error.fields[0]) from error
        if params.cfg_strength > 1 and not self._speech.model.config.has_null_condition:
            raise InvalidRequest(
                "the model was not trained for guidance: cfg_strength must be 1",
                param="cfg_strength",
            )
        assert params.seed is not None
        return Plan(job, params, params.seed, voice, language)

    def speak(self, plan: Plan, *, queue_s: float, on_progress: OnProgress) -> Iterator[AudioChunk]:
        """Yield one chunk an utterance, the last with the result; nothing more once stopped.

        Args:
            plan: From `plan`.
            queue_s: Seconds the job waited before.
            on_progress: Called after every frame; False stops.

        Raises:
            InvalidRequest: The text cannot be spoken.
            GenerationFailed: What came out is no sound.
        """
        started_s = perf_counter()
        utterances = self._utterances(plan)
        run = _Run(self._speech, plan, self._prompts.of(plan.voice), self._silent, on_progress)
        run.text_s = perf_counter() - started_s
        for number, utterance in enumerate(utterances):
            samples = run.speak(utterance, number, len(utterances))
            if run.stopped:
                return
            last = number + 1 == len(utterances)
            if not last and run.frames_left <= 0:
                run.note("length")
                last = True
            result = run.result(queue_s, queue_s + perf_counter() - started_s) if last else None
            yield AudioChunk(samples, self.info.sample_rate_hz, result)
            if last:
                return

    def _utterances(self, plan: Plan) -> list[Utterance]:
        try:
            return prepare(
                plan.job.text,
                language=plan.language,
                max_phonemes=self._speech.model.config.max_phonemes,
                max_chars=self._max_text_chars,
                symbols=self._speech.model.config.phonemes,
            )
        except TextError as error:
            raise InvalidRequest(str(error), param="input") from error

    def _voice(self, name: str | None) -> Voice:
        if name is None:
            return self.voices.default
        if name not in self.voices:
            names = ", ".join(voice.name for voice in self.voices)
            raise UnknownVoice(f"there is no voice {name!r}; there are: {names}")
        return self.voices[name]


class _Run:
    """A job while it is spoken: what is made so far."""

    def __init__(
        self,
        speech: SpeechModel,
        plan: Plan,
        prompt: Tensor | None,
        silent: Tensor,
        on_progress: OnProgress,
    ) -> None:
        self._speech, self._plan, self._prompt, self._silent = speech, plan, prompt, silent
        self._on_progress = on_progress
        self._frame_rate_hz = speech.codec.config.frame_rate_hz
        self._joiner = Joiner(speech.codec.config.sample_rate_hz)
        self._digest = hashlib.sha256()
        self._spoken: list[SpokenUtterance] = []
        self._finish_reason: FinishReason = "stop"
        self._frames = self._samples = 0
        self._ar_s = self._nar_s = self._codec_s = 0.0
        self.text_s = 0.0
        self.stopped = False
        limit_s = plan.job.max_duration_s
        self.frames_left = (
            sys.maxsize if limit_s is None else math.ceil(limit_s * self._frame_rate_hz)
        )

    def speak(self, utterance: Utterance, number: int, utterances: int) -> Samples:
        """Return the samples of one more utterance, with the pause before it.

        Raises:
            GenerationFailed: They are no numbers.
        """
        decoded = self._decode(utterance, number, utterances)
        if self.stopped:
            return np.zeros(0, np.float32)
        started_s = perf_counter()
        codes, kept = decoded.codes, decoded.codes.cpu().numpy().astype("<i2")
        self._digest.update(kept.tobytes())
        self._spoken.append(
            SpokenUtterance(kept, decoded.finish_reason, decoded.trace, decoded.backtracks)
        )
        self._frames += len(codes)
        self.frames_left -= len(codes)
        sound = np.zeros(0, np.float32)
        if len(codes):
            sound = self._speech.codec.decode(codes).float().cpu().numpy()
        if not np.isfinite(sound).all():
            raise GenerationFailed(
                f"utterance {number}: the codec gave samples that are no numbers"
            )
        last = number + 1 == utterances
        joined = self._joiner.add(sound, utterance.pause_after_s, last=last)
        self._samples += len(joined)
        self._codec_s += perf_counter() - started_s
        return joined

    def note(self, reason: FinishReason) -> None:
        """Take an utterance's finish reason for the job's, if it is graver."""
        self._finish_reason = max(self._finish_reason, reason, key=_GRAVITY.index)

    def result(self, queue_s: float, total_s: float) -> SpeechResult:
        """Return the account of all that was spoken."""
        plan = self._plan
        return SpeechResult(
            job_id=plan.job.id,
            finish_reason=self._finish_reason,
            seed=plan.seed,
            params=plan.params,
            voice=plan.voice.name,
            language=plan.language,
            codes_sha256=self._digest.hexdigest(),
            frames=self._frames,
            audio_s=self._samples / self._speech.codec.config.sample_rate_hz,
            timings=Timings(queue_s, self.text_s, self._ar_s, self._nar_s, self._codec_s, total_s),
            utterances=tuple(self._spoken),
        )

    def _decode(self, utterance: Utterance, number: int, utterances: int) -> Decoded:
        """Decode an utterance; one without phonemes is a mere pause."""
        config = self._speech.model.config
        if not utterance.phonemes:
            nothing = torch.zeros((0, config.levels), dtype=torch.int64)
            return Decoded(nothing, "stop", 0.0, 0.0, {} if self._plan.job.trace else None)

        def on_frame(frames: int) -> bool:
            going = self._on_progress(Progress(number, utterances, self._frames + frames))
            self.stopped = not going
            return going

        ids = encode_phonemes(utterance.phonemes, config.phoneme_ids)
        plan = self._plan
        piece = Piece(
            ids,
            plan.params,
            plan.seed,
            number,
            max_frames=min(self.frames_left, longest(len(ids), self._frame_rate_hz)),
            prompt=self._prompt,
            language=config.languages.index(plan.language),
            trace=plan.job.trace,
            silent=self._silent,
        )
        codebooks = self._speech.codec.quantizer.codebooks
        decoded = decode_utterance(self._speech.model, codebooks, piece, on_frame)
        self._ar_s += decoded.ar_s
        self._nar_s += decoded.nar_s
        self.note(decoded.finish_reason)
        return decoded


def longest(phonemes: int, frame_rate_hz: float) -> int:
    """Return how many frames an utterance may have: 0.16 s a phoneme and 1 s, at most 60 s."""
    seconds = SECONDS_A_PHONEME * phonemes + SECONDS_MORE
    return math.ceil(min(seconds, LONGEST_UTTERANCE_S) * frame_rate_hz)


def choose_device(wanted: Literal["auto", "cpu", "cuda"]) -> torch.device:
    """Return the device to use; `auto` is the GPU if there is one."""
    if wanted == "auto":
        wanted = "cuda" if torch.cuda.is_available() else "cpu"
    return torch.device(wanted)
