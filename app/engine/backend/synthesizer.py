"""The loaded model as the engine needs it: plans of jobs, and what speaks them.

Owns the model and its voices, and says what they cannot do. Knows nothing of threads and queues:
that is `app.engine.engine`.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing
from dataclasses import replace as changed
from functools import partial
from pathlib import Path
from time import monotonic, perf_counter
from typing import Literal, Self

import numpy as np
import torch
from torch import nn

from app.engine.backend.golden import GoldenError, compare, read_golden
from app.engine.backend.loading import batching_of, choose_device, load_speech, weights_of
from app.engine.backend.planner import Planner
from app.engine.backend.residence import Residence
from app.engine.interface import GoldenResult, ModelInfo, Plan, Replay
from app.engine.job import AudioChunk, Progress, Samples, SpeechJob, SpeechResult, Timings
from app.engine.level_0.job_batch import JobBatch
from app.engine.playback import Playback
from app.engine.serving.capacity import Capacity
from app.engine.sound.job import SoundJob
from app.engine.sound.joiner import Joiner
from app.engine.sound.local import LocalSoundDecoder
from app.engine.sound.process.client import SoundProcess
from app.engine.sound.process.start import SoundStart
from app.engine.voices import Voices
from app.voice_store import VoiceStore
from models.checkpoints import CheckpointError, DecoderName, SpeechModel
from models.checkpoints.hub import CACHE
from models.codecs.silence import known_silence
from models.cuda.streams import SideStream
from models.stack.prefix_cache import PrefixCache
from models.text import FrontEnd
from models.voices.voice import MAX_AUDIO_S, BuiltinVoices
from samplers.knobs.params import SamplingParams, resolve
from samplers.knobs.presets import PRESETS, Presets

OnProgress = Callable[[Progress], bool]
"""Called after every frame; False stops the job."""

_CHECK_TEXTS = ("One, two, three.", "Hello.", "Good morning.")
_CHECK_S = 0.3
_MEASURED_S = 1.0


class Synthesizer:
    """A loaded model."""

    def __init__(
        self,
        speech: SpeechModel,
        device: torch.device,
        *,
        max_text_chars: int,
        max_audio_s: float = math.inf,
        presets: Presets = PRESETS,
        uploads: VoiceStore | None = None,
        voice: SoundProcess | None = None,
    ) -> None:
        """Take a loaded model.

        Args:
            speech: On ``device``.
            device: Where the model is.
            max_text_chars: Longer texts are refused.
            max_audio_s: What would last longer is refused; see `app.engine.backend.duration`.
            presets: Those that a request may name.
            uploads: Where uploaded voices lie; None: there are none.
            voice: Makes the sound; None: whoever asks for it, in his thread.

        Raises:
            CheckpointError: A voice's files, the vocabulary or the model's preset are not valid.
        """
        self._speech, self._device = speech, device
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
        self._planner = Planner(
            speech,
            device,
            front_end=self._front_end,
            voices=self.voices,
            presets=presets,
            max_text_chars=max_text_chars,
            max_audio_s=max_audio_s,
        )
        self._prefixes = PrefixCache(speech.model)
        self._voice = voice or LocalSoundDecoder(speech)
        weights: list[nn.Module] = [speech.model, speech.codec]
        if isinstance(speech.decoder, nn.Module):
            weights.append(speech.decoder)
        self._residence = Residence(weights, device, torch.device("cpu"))
        self._silent = known_silence(speech.codec, speech.folder)
        self.info = ModelInfo(
            speech.name,
            speech.sha256,
            str(device),
            speech.codec.config.sample_rate_hz,
            config.languages,
            weights_of(speech.model),
            speech.decoder_name,
            speech.codec.config.frame_rate_hz,
            batching_of(speech.model, device),
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
        max_audio_s: float = math.inf,
        presets: Presets = PRESETS,
        uploads: VoiceStore | None = None,
        cache: str | Path = CACHE,
        offline: bool = False,
        sound_process: bool = False,
        sound_start: SoundStart | None = None,
    ) -> Self:
        """Load a model, in the thread that will speak.

        Args:
            model: A folder, a published file, or a name of the hub.
            device: Where it runs.
            weights: Of the language model's matrices, on a CPU.
            decoder: What makes samples of codes.
            threads: Of one step.
            max_text_chars: Longer texts are refused.
            max_audio_s: What would last longer is refused; see `app.engine.backend.duration`.
            presets: Those that a request may name.
            uploads: Where uploaded voices lie; None: there are none.
            cache: Folder of codecs that were downloaded and converted.
            offline: Whether the network is out of bounds.
            sound_process: Whether a process of its own makes the sound, on a CPU.
            sound_start: That process, if it was started before.

        Raises:
            CheckpointError: The weights are missing, damaged or not what their description says.
        """
        torch.set_num_threads(threads)
        place = choose_device(device)
        load = partial(
            load_speech,
            model,
            place,
            weights=weights,
            decoder=decoder,
            threads=threads,
            cache=Path(cache),
            offline=offline,
        )
        voice: SoundProcess | None = None
        if sound_process and place.type == "cpu":
            # It starts, and loads what is here, while this one does.
            at_once = (Path(model) / "codec.json").is_file()
            voice = SoundProcess(load, sound_start, at_once=at_once)
        try:
            speech = load()  # first, so that what must be downloaded is so once
            return cls(
                speech,
                place,
                max_text_chars=max_text_chars,
                max_audio_s=max_audio_s,
                presets=presets,
                uploads=uploads,
                voice=voice,
            )
        except BaseException:
            if voice is not None:
                voice.close()
            raise

    def prepare_sound(self) -> None:
        """Make ready for sound, anew if the process that made it is gone.

        Raises:
            GenerationFailed: The process cannot load the model.
        """
        if isinstance(self._voice, SoundProcess):
            self._voice.ready()

    def sound_context(self) -> AbstractContextManager[None]:
        """Return a queue of its own on a GPU, so that sound never stands before a step."""
        return SideStream(self._device).entered()

    def unload(self, still: Callable[[], bool]) -> None:
        """Free a GPU while nobody needs it; the next `plan` or `replay` takes it again.

        Args:
            still: Whether nobody does.
        """
        self._prefixes.clear()
        self._voice.rest()
        self._residence.send_away(still)

    def close(self) -> None:
        """End the process that makes sound, if there is one."""
        self._voice.close()

    def plan(self, job: SpeechJob) -> Plan:
        """Settle how a job is spoken, or refuse it; in a thread that is no worker's.

        Raises:
            InvalidRequest: The text or language is not for this model, there is no such preset,
                knobs contradict, or the model cannot honour one.
            UnknownVoice: There is no such voice.
        """
        self._residence.bring()
        return self._planner.plan(job)

    def batch(self, slots: int) -> JobBatch:
        """Return a batch without jobs; see `app.engine.interface.Backend`."""
        return JobBatch(
            self._speech,
            front_end=self._front_end,
            silent=self._silent,
            prefixes=self._prefixes,
            slots=slots,
        )

    def sound_stream(self, plan: Plan, playback: Playback) -> SoundJob:
        """Return what makes sound of a job; see `app.engine.interface.Backend`."""
        return SoundJob(self._speech, plan, voice=self._voice, playback=playback)

    def speak(self, plan: Plan, *, queue_s: float, on_progress: OnProgress) -> Iterator[AudioChunk]:
        """Yield the sound of one job by itself, all in this thread, the last chunk with the result.

        What the engine's two workers do together, for those who have no engine; no engine may run.

        Args:
            plan: From `plan`.
            queue_s: Seconds the job waited before.
            on_progress: Called after every frame; False stops, and nothing more comes.

        Raises:
            SpeechError: The model or the codec gave no numbers.
        """
        playback = Playback(monotonic() - queue_s - plan.text_s)
        with (
            closing(self.batch(plan.rows)) as batch,
            closing(self.sound_stream(plan, playback)) as sound_stream,
        ):
            drawing = batch.begin(plan)
            while not drawing.over:
                batch.step([drawing])
                if not on_progress(drawing.progress):
                    return
                for drawn in drawing.news():
                    yield from sound_stream.push(drawn)
                if drawing.error is not None:
                    raise drawing.error

    def measure(self, capacity: Capacity) -> None:
        """Speak for about a second and note what sound costs; see `app.engine.interface.Backend`.

        Both stages take turns in this thread, so where they share a processor, as under a quota,
        each is as slow as it will be.
        """
        plan = self.plan(SpeechJob("measure", _CHECK_TEXTS[0], SamplingParams(seed=0)))
        began_s = monotonic()
        while monotonic() - began_s < _MEASURED_S:
            self._measure_once(plan, capacity)

    def _measure_once(self, plan: Plan, capacity: Capacity) -> None:
        rate_hz, playback = self.info.frame_rate_hz, Playback(monotonic())
        with (
            closing(self.batch(plan.rows)) as batch,
            closing(self.sound_stream(plan, playback)) as sound_stream,
        ):
            started_s = perf_counter()
            drawing = batch.begin(plan)
            capacity.note_admission(perf_counter() - started_s)
            while not drawing.over:
                started_s, frames = perf_counter(), drawing.frames
                batch.step([drawing])
                drawn_s = (drawing.frames - frames) / rate_hz
                capacity.note_level_0(perf_counter() - started_s, max(0.0, drawn_s))
                for drawn in drawing.news():
                    started_s, given_s = perf_counter(), playback.given_s
                    for _ in sound_stream.push(drawn):
                        pass
                    capacity.note_sound(perf_counter() - started_s, playback.given_s - given_s)
        if playback.first_s is not None:
            capacity.note_start(playback.first_audio_s)

    def check_golden(self) -> GoldenResult | None:
        """Compare the codes of the model's golden requests with those stored with it.

        Returns:
            None where no codes are stored, or those of other weights than the ones in use.

        Raises:
            CheckpointError: The file of requests is damaged.
        """
        try:
            requests = read_golden(self._speech.folder)
        except GoldenError as error:
            raise CheckpointError(str(error)) from error
        if not requests or self.info.weights != "int8":
            return None
        return compare(self, requests)

    def check_deterministic(self) -> bool:
        """Return whether a job alone has the codes that it has among others; warms up, too.

        A machine whose matrix products round by the number of rows would say no.
        """
        plans = [
            self.plan(
                SpeechJob(f"check-{seed}", text, SamplingParams(seed=seed), max_duration_s=_CHECK_S)
            )
            for seed, text in enumerate(_CHECK_TEXTS)
        ]
        *_, last = self.speak(plans[0], queue_s=0.0, on_progress=lambda _: True)
        alone = [one.codes[:, 0] for one in last.result.utterances] if last.result else []
        with closing(self.batch(sum(plan.rows for plan in plans))) as batch:
            drawings = [batch.begin(plan) for plan in plans]
            while going := [drawing for drawing in drawings if not drawing.over]:
                batch.step(going)
        codes = [drawn.codes for drawn in drawings[0].news()]
        return torch.equal(torch.cat(codes).cpu(), torch.from_numpy(np.concatenate(alone)).long())

    def replay(self, replay: Replay, playback: Playback) -> Iterator[AudioChunk]:
        """Yield the chunks of a speech once more, from its codes: the same samples.

        Args:
            replay: The speech; of this very model.
            playback: Told of every chunk.

        Raises:
            GenerationFailed: What came out is no sound.
        """
        self._residence.bring()
        queue_s = monotonic() - playback.submitted_s
        spoken = replay.result.utterances
        joiner = Joiner(self.info.sample_rate_hz, replay.result.params.pause_s)

        def chunk(samples: Samples, result: SpeechResult | None = None) -> AudioChunk:
            playback.give(len(samples) / self.info.sample_rate_hz)
            return AudioChunk(samples, self.info.sample_rate_hz, result)

        for number, utterance in enumerate(spoken):
            rest: Samples = np.zeros(0, np.float32)
            for sound in self._voice.decode(torch.from_numpy(utterance.codes).long()):
                if len(rest):
                    yield chunk(rest)
                rest = joiner.push(sound)
            last = number + 1 == len(spoken)
            rest = np.concatenate([rest, joiner.finish(utterance.pause_after_s, last=last)])
            total_s = monotonic() - playback.submitted_s
            timings = Timings(queue_s, 0.0, 0.0, 0.0, total_s - queue_s, total_s)
            yield chunk(rest, changed(replay.result, timings=timings) if last else None)
