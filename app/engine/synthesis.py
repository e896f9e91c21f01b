"""One job from text to samples with the loaded model, synchronously.

Owns the model and its voices, and says what they cannot do. Knows nothing of threads, queues or
other jobs: that is `app.engine.engine`.
"""

from collections.abc import Iterator
from dataclasses import replace as changed
from pathlib import Path
from time import perf_counter
from typing import Literal, Self

import numpy as np
import torch

from app.engine.errors import InvalidRequest
from app.engine.finer import nar_plan
from app.engine.job import AudioChunk, Progress, SpeechJob, Timings
from app.engine.masked import choose_level_0
from app.engine.plan import Chunks
from app.engine.run import Run
from app.engine.sound import UtteranceSound
from app.engine.speaking import ModelInfo, OnProgress, Plan, Replay
from app.engine.stream import Joiner
from app.engine.voices import Voices
from app.engine.windows import check_windows
from app.voice_store import VoiceStore
from models.checkpoints import CheckpointError, DecoderName, SpeechModel, open_speech_model
from models.checkpoints.hub import CACHE
from models.prefix_cache import PrefixCache
from models.quantized import is_quantized, quantize_linears
from models.silence import silent_codes
from models.text import FrontEnd, TextError, Utterance
from models.voice import MAX_AUDIO_S, BuiltinVoices, PromptCodes, Voice
from samplers.conflicts import ConflictError
from samplers.params import SamplingParams, resolve
from samplers.presets import PRESETS, Presets, UnknownPreset


class Synthesizer:
    """A loaded model that speaks one job at a time."""

    def __init__(
        self,
        speech: SpeechModel,
        device: torch.device,
        *,
        max_text_chars: int,
        presets: Presets = PRESETS,
        uploads: VoiceStore | None = None,
    ) -> None:
        """Take a loaded model.

        Args:
            speech: On ``device``.
            device: Where the model is.
            max_text_chars: Longer texts are refused.
            presets: Those that a request may name.
            uploads: Where uploaded voices lie; None: there are none.

        Raises:
            CheckpointError: A voice's files, the vocabulary or the model's preset are not valid.
        """
        self._speech = speech
        self._max_text_chars = max_text_chars
        self._presets = presets
        config = speech.model.config
        try:
            self._front_end = FrontEnd(config)
            builtin = BuiltinVoices(speech.folder / "voices")
            resolve(SamplingParams(), config.preset, presets)
        except ValueError as error:
            raise CheckpointError(f"{speech.folder}: {error}") from error
        heard_s = config.max_prompt_frames / speech.codec.config.frame_rate_hz
        self.voices = Voices(
            builtin, uploads, prompt_s=min(heard_s, MAX_AUDIO_S), languages=config.languages
        )
        self._prompts = PromptCodes(speech.codec, device, max_frames=config.max_prompt_frames)
        self._prefixes = PrefixCache(speech.model)
        self._silent = silent_codes(speech.codec)
        self.info = ModelInfo(
            speech.name,
            speech.sha256,
            str(device),
            speech.codec.config.sample_rate_hz,
            config.languages,
            "int8" if is_quantized(speech.model) else "float32",
            speech.decoder_name,
        )

    @property
    def silent_codes(self) -> tuple[int, ...]:
        """The codes of level 0 that are silence, as measured on the codec."""
        return tuple(torch.nonzero(self._silent)[:, 0].tolist())

    @classmethod
    def load(
        cls,
        model: str | Path,
        device: Literal["auto", "cpu", "cuda"],
        *,
        weights: Literal["int8", "float32"] = "float32",
        decoder: DecoderName = "codec",
        threads: int,
        max_text_chars: int,
        presets: Presets = PRESETS,
        uploads: VoiceStore | None = None,
        cache: str | Path = CACHE,
        offline: bool = False,
    ) -> Self:
        """Load a model, in the thread that will speak.

        Args:
            model: A folder, a published file, or a name of the hub.
            device: Where it runs.
            weights: Of the language model's matrices, on a CPU.
            decoder: What makes samples of codes.
            threads: Of one step.
            max_text_chars: Longer texts are refused.
            presets: Those that a request may name.
            uploads: Where uploaded voices lie; None: there are none.
            cache: Folder of what was downloaded.
            offline: Whether the network is out of bounds.

        Raises:
            CheckpointError: The weights are missing, damaged or not what their description says.
        """
        torch.set_num_threads(threads)
        place = choose_device(device)
        speech = open_speech_model(
            model, place, cache=Path(cache), offline=offline, decoder=decoder
        )
        if weights == "int8" and place.type == "cpu":
            quantize_linears(speech.model)
        return cls(speech, place, max_text_chars=max_text_chars, presets=presets, uploads=uploads)

    def plan(self, job: SpeechJob) -> Plan:
        """Fill in what was left open, read the text, and refuse what cannot be spoken.

        Touches nothing that `speak` changes, so that another thread may do it meanwhile.

        Raises:
            InvalidRequest: The text or language is not for this model, there is no such preset,
                knobs contradict, or the model cannot honour one.
            UnknownVoice: There is no such voice.
        """
        started_s = perf_counter()
        if len(job.text) > self._max_text_chars:
            raise InvalidRequest(
                f"the text has {len(job.text)} characters, at most {self._max_text_chars} fit",
                param="input",
            )
        voice = self.voices.speaker(job.voice, job.owner)
        language = job.language or voice.language
        if language not in self.info.languages:
            spoken = ", ".join(self.info.languages)
            raise InvalidRequest(
                f"the model does not speak {language!r}, only {spoken}", param="language"
            )
        try:
            card = self._speech.model.config.preset
            params = resolve(job.params, card, self._presets)
            named = SamplingParams(preset=job.params.preset, seed=params.seed)
            preset = resolve(named, card, self._presets)
        except UnknownPreset as error:
            raise InvalidRequest(str(error), param="preset") from error
        except ConflictError as error:
            raise InvalidRequest(str(error), param=error.fields[0]) from error
        config = self._speech.model.config
        params = choose_level_0(params, preset, config)
        check_windows(params, preset, config)
        self._check_honoured(params, voice)
        assert params.seed is not None
        utterances = self._read(job.text, language)
        text_s = perf_counter() - started_s
        return Plan(
            job,
            params,
            params.seed,
            voice,
            language,
            utterances,
            text_s,
            nar_plan(config, params),
            self.info.decoder,
        )

    def speak(self, plan: Plan, *, queue_s: float, on_progress: OnProgress) -> Iterator[AudioChunk]:
        """Yield the sound as it comes, the last with the result; nothing more once stopped.

        Args:
            plan: From `plan`.
            queue_s: Seconds the job waited before.
            on_progress: Called after every frame; False stops.

        Raises:
            GenerationFailed: What came out is no sound.
        """
        run = Run(
            self._speech,
            plan,
            front_end=self._front_end,
            prompts=self._prompts,
            prefixes=self._prefixes,
            silent=self._silent,
            queue_s=queue_s,
            on_progress=on_progress,
        )
        yield from run.chunks()

    def replay(
        self, replay: Replay, *, queue_s: float, on_progress: OnProgress
    ) -> Iterator[AudioChunk]:
        """Yield the chunks of a speech once more, from its codes: the same samples.

        Args:
            replay: The speech; of this very model.
            queue_s: Seconds it waited before.
            on_progress: Called before every chunk; False stops.

        Raises:
            GenerationFailed: What came out is no sound.
        """
        started_s = perf_counter()
        speech, spoken = self._speech, replay.result.utterances
        device, block_frames = speech.model.separator.device, speech.model.config.block_frames
        joiner = Joiner(self.info.sample_rate_hz, replay.result.params.pause_s)
        frames = 0
        for number, utterance in enumerate(spoken):
            codes = torch.from_numpy(utterance.codes).to(device, torch.int64)
            sound = UtteranceSound(speech.decoder, block_frames)
            for chunk in Chunks(block_frames).push(codes, ended=True):
                if not on_progress(Progress(number, len(spoken), frames)):
                    return
                frames += len(chunk)
                samples = joiner.push(sound.push(chunk))
                if len(samples):
                    yield AudioChunk(samples, self.info.sample_rate_hz)
            rest = joiner.push(sound.push(codes[:0], ended=True))
            last = number + 1 == len(spoken)
            rest = np.concatenate([rest, joiner.finish(utterance.pause_after_s, last=last)])
            work_s = perf_counter() - started_s
            timings = Timings(queue_s, 0.0, 0.0, 0.0, work_s, queue_s + work_s)
            result = changed(replay.result, timings=timings) if last else None
            yield AudioChunk(rest, self.info.sample_rate_hz, result)

    def _check_honoured(self, params: SamplingParams, voice: Voice) -> None:
        """Refuse knobs that the loaded model cannot honour.

        Raises:
            InvalidRequest: It names the knob.
        """
        config = self._speech.model.config
        prompted = voice.audio is not None and config.max_prompt_frames > 0
        untrained = "the model was not trained for this guidance: {} must be 1"
        for knob, asked, can, reason in (
            ("cfg_strength", params.cfg_strength > 1, config.has_null_condition, untrained),
            (
                "nar_cfg_strength",
                params.nar_cfg_strength > 1,
                config.nar_has_null_condition,
                untrained,
            ),
            (
                "penalty_includes_prompt",
                params.penalty_includes_prompt,
                prompted,
                "the model hears no prompt of this voice: {} must be false",
            ),
            (
                "prompt_as_prefix",
                params.prompt_as_prefix,
                prompted,
                "the model hears no prompt of this voice: {} must be false",
            ),
        ):
            if asked and not can:
                raise InvalidRequest(reason.format(knob), param=knob)

    def _read(self, text: str, language: str) -> tuple[Utterance, ...]:
        """Return the utterances of a text.

        Raises:
            InvalidRequest: It cannot be spoken.
        """
        try:
            utterances = self._front_end.prepare(
                text, language=language, max_chars=self._max_text_chars
            )
        except TextError as error:
            raise InvalidRequest(str(error), param="input") from error
        return tuple(utterances)


def choose_device(wanted: Literal["auto", "cpu", "cuda"]) -> torch.device:
    """Return the device to use; `auto` is the GPU if there is one."""
    if wanted == "auto":
        wanted = "cuda" if torch.cuda.is_available() else "cpu"
    return torch.device(wanted)
