"""From a job to its plan: knobs resolved, voice found, text read; or the job refused.

Which method draws a model's codes, and which knobs act, is decided before any work.
"""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from app.engine.backend.limits import check_limit, check_limits, limits_of, schemas_of
from app.engine.durations import check_audio_s, spoken_symbols, stretched
from app.engine.durations import pauses_s as pauses_of
from app.engine.errors import InvalidRequest, UnknownVoice, VoiceDamaged
from app.engine.interface import Plan, PromptedVoice, Reading
from app.engine.job import USUAL_PHONEME_S, Codes, KeptTake, NarPlan, SpeechJob
from app.engine.reading import TextProcess
from app.engine.voices import Voices
from app.storage.dictionary_files import DEFAULT, Dictionaries
from app.storage.voice_store import VoiceStore
from models.checkpoints.files import CheckpointError
from models.checkpoints.sources import SpeechModel
from models.config import ModelConfig
from models.cuda.graphs import alone
from models.cuda.streams import new_stream
from models.text import FrontEnd, Prepared, TextError, Utterance
from models.text.pronunciations import PronunciationError
from models.text.published.tags import language_pattern
from models.text.words import WordSpan
from models.voices.recording import MAX_AUDIO_S, Recording
from models.voices.voice import BuiltinVoices, PromptCodes, Voice
from samplers.knobs.features import FEATURES, heeds, is_guided, is_on, rows_needed
from samplers.knobs.params import SamplingParams, hints, off_value
from samplers.knobs.presets import AUTO, PRESETS, Presets
from samplers.knobs.resolve import ConflictError, UnknownPreset, look_up, resolve

if TYPE_CHECKING:
    from app.settings import Settings  # needs pydantic-settings, absent where torch is alone

MOST_SPEAKERS = 8
"""Voices that one text may name: each may have to be encoded."""

MAX_TRANSCRIPT = 1_000
"""Characters of what a recording says."""

_CACHED_TRANSCRIPTS = 256
USUAL_ROWS = 2
MORE_FEATURES = 4
"""Rows, and features beside those of the model's own preset, of a job whose cost is usual."""


@dataclass(frozen=True, slots=True)
class Catalog:
    """What requests may name beside what the model comes with."""

    presets: Presets = field(default_factory=lambda: PRESETS)
    uploads: VoiceStore | None = None
    dictionaries: Dictionaries = field(default_factory=dict)


class Planner:
    """Plans jobs for one model. One thread only, but not one of the workers'.

    The text process reads the texts, or the calling thread. Raises CheckpointError if a voice's
    files, the vocabulary or the model's preset are not valid.
    """

    def __init__(
        self,
        speech: SpeechModel,
        device: torch.device,
        settings: "Settings",
        catalog: Catalog,
        *,
        codec_sha256: str,
        text_process: TextProcess | None = None,
    ) -> None:
        self._config = config = speech.model.config
        self._codec = speech.codec
        self._decoder = speech.decoder_name
        self._frame_rate_hz = speech.codec.config.frame_rate_hz
        self._max_text_chars = settings.max_text_chars
        self._max_audio_s = settings.max_audio_s
        self._unreadable = settings.unreadable
        self._presets = catalog.presets
        self._dictionaries = catalog.dictionaries
        self._limits = limits_of(config)
        try:
            self.front_end = FrontEnd(config)
            builtin = BuiltinVoices(speech.folder / "voices")
            resolve(SamplingParams(), config.preset, self._presets)
        except ValueError as error:
            raise CheckpointError(f"{speech.folder}: {error}") from error
        self._reader = text_process or self.front_end
        for name, entries in self._dictionaries.items():
            try:
                self.front_end.check_entries(entries)
            except PronunciationError as error:
                raise CheckpointError(f"pronunciations: {name}: {error}") from error
        prompt_s = min(config.max_prompt_frames / self._frame_rate_hz, MAX_AUDIO_S)
        self.voices = Voices(
            builtin,
            catalog.uploads,
            prompt_s=prompt_s,
            languages=config.languages,
            names=settings.names,
        )
        self._device = device
        # Ids of what recordings say, by the voices' keys
        self._transcripts: dict[tuple[str | None, str], Sequence[int]] = {}
        # No step waits for a voice that is encoded, and no voice for a recording.
        self._stream = new_stream(device)
        self._own_stream = new_stream(device)
        self._prompts = PromptCodes(
            speech.codec, device, max_frames=config.max_prompt_frames, digest=codec_sha256
        )

    def presets(self) -> Mapping[str, SamplingParams]:
        """Return each preset with every knob resolved for this model, `auto` first.

        `auto` is what a request without knobs gets; its `preset` names the set that it is, or is
        `auto` if the model's card has knobs of its own. The seed of each is None.
        """
        resolved = {}
        for name in (AUTO, *self._presets):
            params = resolve(SamplingParams(preset=name), self._config.preset, self._presets)
            params = choose_level_0(params, (), self._config)
            resolved[name] = params.model_copy(update={"seed": None})
        return resolved

    def schemas(self) -> Mapping[str, Mapping[str, Any]]:
        """Return what to add to the JSON schema of fields, as the model takes fewer values."""
        names = [one for one in self._dictionaries if one != DEFAULT]
        return {
            **schemas_of(self._limits),
            "preset": {"enum": [AUTO, *self._presets]},
            "language": {"pattern": language_pattern(self._config.languages)},
            "dictionaries": {"items": {"enum": names}} if names else {"maxItems": 0},
            "input": {"maxLength": self._max_text_chars},
            "text": {"maxLength": self._max_text_chars},
        }

    def plan(self, job: SpeechJob, on_piece: Callable[[], None] = lambda: None) -> Plan:
        """Resolve the knobs, find the voice, convert the text to phonemes; or refuse the job.

        Reads nothing that the workers change, so it runs in a thread beside theirs. ``on_piece`` is
        called after each piece of the text; it may plan other jobs. Raises InvalidRequest if text
        or language is not for this model, the speech would last too long, there is no such preset,
        knobs contradict, or the model cannot honour one.
        """
        started_s = perf_counter()
        config = self._config
        self._check_length(job.text)
        voice = self.voices.speaker(job.voice, job.owner)
        language = self.voices.language(job.language, voice)
        try:
            params = resolve(job.params, config.preset, self._presets)
        except UnknownPreset as error:
            raise InvalidRequest(str(error), param="preset") from error
        except ConflictError as error:
            raise InvalidRequest(str(error), param=error.fields[0]) from error
        moved = self._moved(job.params, params)
        check_limits(params, self._limits)
        params = choose_level_0(params, moved, config)
        check_prompted(params, voice)
        assert params.seed is not None
        aligned = job.timestamps != "none"
        if aligned:
            check_limit("timestamps", job.timestamps, self._limits)
        prepared = self._read(job, language, on_piece)
        utterances = tuple(prepared.utterances)
        named = self._named(utterances, job.owner, params)
        if job.kept is not None:
            check_kept(job, job.kept, utterances, params, config)
        words: list[tuple[WordSpan, ...]] = []
        lengths: list[Sequence[int]] = []
        for one in utterances if aligned else ():
            words.append(self._reader.words(one, language=language))
            lengths.append(self.front_end.lengths(one.phonemes))
            on_piece()
        job = limited(job, utterances, params.pause_s, self._frame_rate_hz, self._max_audio_s)
        text_s = perf_counter() - started_s
        heard = any(one.voice is None for one in utterances)
        own = self._speaker(voice) if heard else PromptedVoice(voice)
        return Plan(
            job,
            params,
            params.seed,
            voice,
            language,
            utterances,
            text_s,
            rows=rows_needed(params),
            usual=self._is_usual(job, params),
            nar=nar_plan(config, params),
            decoder=self._decoder,
            words=tuple(words),
            lengths=tuple(lengths),
            speakers=tuple(named[one.voice.lower()] if one.voice else own for one in utterances),
            left_out=prepared.left_out,
        )

    def read(self, job: SpeechJob, on_piece: Callable[[], None] = lambda: None) -> Reading:
        """Convert the text of a job to phonemes, and nothing else; its knobs are not looked at."""
        self._check_length(job.text)
        voice = self.voices.default if job.voice is None else self.voices.find(job.voice, job.owner)
        language = self.voices.language(job.language, voice)
        prepared = self._read(job, language, on_piece)
        utterances = tuple(prepared.utterances)
        named(utterances, lambda name: self.voices.find(name, job.owner))
        return Reading(language, utterances, prepared.left_out)

    @torch.inference_mode()
    def encode(self, recording: Recording) -> Codes:
        """Return the codes ``[T, K]`` of a recording, as of a voice's; in any one thread."""
        import soxr

        rate_hz = self._codec.config.sample_rate_hz
        samples = soxr.resample(recording.samples, recording.rate_hz, rate_hz)
        device = self._codec.quantizer.codebooks.device
        with alone(self._device), torch.cuda.stream(self._own_stream):
            codes = self._codec.encode(torch.from_numpy(samples.astype(np.float32)).to(device))
            return codes.cpu().numpy().astype(np.int16)

    def _is_usual(self, job: SpeechJob, params: SamplingParams) -> bool:
        """Return whether a job's steps cost about what those of a job without knobs do."""
        default = resolve(SamplingParams(), self._config.preset, self._presets)
        more = sum(is_on(one, params) for one in FEATURES) - sum(
            is_on(one, default) for one in FEATURES
        )
        return rows_needed(params) <= USUAL_ROWS and not job.trace and more <= MORE_FEATURES

    def _check_length(self, text: str) -> None:
        """Do nothing if a text is short enough."""
        if len(text) > self._max_text_chars:
            raise InvalidRequest(
                f"the text has {len(text)} characters, at most {self._max_text_chars} fit",
                param="input",
            )

    def _moved(self, asked: SamplingParams, params: SamplingParams) -> Collection[str]:
        """Return the names of the knobs that the caller set to other values than the preset's."""
        card = self._config.preset
        knobs = look_up(params.preset, self._presets) if params.preset != AUTO else card
        preset = SamplingParams.model_validate(knobs)
        return {
            knob
            for knob in asked.model_fields_set & SamplingParams.model_fields.keys()
            if knob not in {"preset", "seed"} and getattr(params, knob) != getattr(preset, knob)
        }

    def _prompt(self, voice: Voice) -> Tensor | None:
        """Return the prompt codes ``[Tp, K]`` of a voice, complete for every CUDA stream."""
        with alone(self._device), torch.cuda.stream(self._stream):
            prompt = self._prompts.of(voice)
            if prompt is not None and prompt.is_cuda:
                torch.cuda.current_stream(prompt.device).synchronize()
            return prompt

    def _named(
        self, utterances: Sequence[Utterance], owner: str, params: SamplingParams
    ) -> dict[str, PromptedVoice]:
        """Return the voices that a text names, in lower case, with their prompts."""
        speakers: dict[str, PromptedVoice] = {}
        for name, voice in named(utterances, lambda one: self.voices.speaker(one, owner)).items():
            check_prompted(params, voice)
            speakers[name] = self._speaker(voice)
        return speakers

    def _speaker(self, voice: Voice) -> PromptedVoice:
        """Return a voice with its prompt, and what that says where the model reads it."""
        prompt = self._prompt(voice)
        if self._config.prompt == "segment":
            return PromptedVoice(voice, prompt)
        if prompt is None:
            if not self._config.start_token:
                raise InvalidRequest(
                    f"the model goes on from a recording, and the voice {voice.name!r} has none",
                    param="voice",
                )
            return PromptedVoice(voice)
        return PromptedVoice(voice, prompt, self._said(voice))

    def _said(self, voice: Voice) -> Sequence[int]:
        """Return the ids of what a voice's recording says."""
        key = voice.owner, voice.key
        if key not in self._transcripts:
            if not (voice.transcript or "").strip():
                raise InvalidRequest(
                    f"the model goes on from what a recording says, and of the voice {voice.name!r}"
                    " nobody told: upload it again with its words as `transcript`",
                    param="voice",
                )
            if len(self._transcripts) >= _CACHED_TRANSCRIPTS:
                self._transcripts.pop(next(iter(self._transcripts)))
            self._transcripts[key] = self._transcribed(voice)
        return self._transcripts[key]

    def _transcribed(self, voice: Voice) -> Sequence[int]:
        language = self.voices.language(voice.language)
        try:
            prepared = self._reader.prepared(
                voice.transcript or "", language=language, max_chars=MAX_TRANSCRIPT
            )
            with closing(prepared) as pieces:
                read = [one for one in pieces if one is not None]
        except TextError as error:
            raise InvalidRequest(
                f"the transcript of the voice {voice.name!r} cannot be read: {error}", param="voice"
            ) from error
        phonemes = " ".join(one.phonemes for part in read for one in part.utterances)
        return self.front_end.encode(phonemes, language)

    def _read(
        self,
        job: SpeechJob,
        language: str,
        on_piece: Callable[[], None],
    ) -> Prepared:
        """Return the utterances of a job's text, as phonemes, and what is left out of it."""
        try:
            prepared = self._reader.prepared(
                job.text,
                language=language,
                max_chars=self._max_text_chars,
                pronunciations=self._pronunciations(job),
                strict=(job.unreadable or self._unreadable) == "refuse",
                more=job.more,
                thoughts=job.thoughts == "speak",
            )
            with closing(prepared) as pieces:
                for read in pieces:
                    if read is not None:
                        return read
                    on_piece()
        except PronunciationError as error:
            raise InvalidRequest(str(error), param="pronunciations") from error
        except TextError as error:
            raise InvalidRequest(str(error), param="input") from error
        return Prepared([])

    def _pronunciations(self, job: SpeechJob) -> dict[str, str]:
        """Return the entries of a job and of the dictionaries that it uses."""
        entries = dict(self._dictionaries.get(DEFAULT, {}))
        for name in job.dictionaries:
            if name.lower() not in self._dictionaries:
                known = ", ".join(self._dictionaries) or "none"
                raise InvalidRequest(
                    f"there is no dictionary {name!r}; there are: {known}", param="dictionaries"
                )
            entries |= self._dictionaries[name.lower()]
        self.front_end.check_entries(job.pronunciations)
        return entries | dict(job.pronunciations)


def named(utterances: Sequence[Utterance], find: Callable[[str], Voice]) -> dict[str, Voice]:
    """Return the voices that a text names, in lower case; ``find`` returns that of a name.

    Raises InvalidRequest if one is not there, or if they are too many.
    """
    names = dict.fromkeys(one.voice.lower() for one in utterances if one.voice is not None)
    if len(names) > MOST_SPEAKERS:
        raise InvalidRequest(
            f"the text names {len(names)} voices, at most {MOST_SPEAKERS} may speak",
            param="input",
        )
    voices: dict[str, Voice] = {}
    for name in names:
        try:
            voices[name] = find(name)
        except (UnknownVoice, VoiceDamaged) as error:
            raise InvalidRequest(f"[voice:{name}]: {error.message}", param="input") from error
    return voices


def choose_level_0(
    params: SamplingParams, moved: Collection[str], config: ModelConfig
) -> SamplingParams:
    """Return ``params`` with `level_0` either `ar`, token by token, or `masked`.

    ``moved`` are the knobs that the caller set to other values than the preset's: where one of them
    acts only token by token, `auto` is that. Raises InvalidRequest for guidance without training.
    """
    method = params.level_0
    if method == "auto":
        masked = config.masked_level_0 and all(_masked_heeds(one, params) for one in moved)
        method = "masked" if masked else "ar"
    guided = method == "masked" and is_guided(params, "masked")
    if guided and not config.has_null_condition:
        raise InvalidRequest(
            "the model was not trained for guidance: nar_len_cfg_strength must be 1",
            param="nar_len_cfg_strength",
        )
    return params.model_copy(update={"level_0": method})


def _masked_heeds(knob: str, params: SamplingParams) -> bool:
    """Return whether masked passes heed a knob, or it is at the value that does nothing."""
    off = "off" in hints(knob) and getattr(params, knob) == off_value(knob)
    return off or knob == "level_0" or heeds(knob, "masked")


def nar_plan(config: ModelConfig, params: SamplingParams) -> NarPlan:
    """Return how much of an utterance the finer levels are drawn from at a time."""
    if config.nar_mask != "full":
        return "chunks"
    return "windows" if params.nar_window_frames else "whole"


def check_kept(
    job: SpeechJob,
    kept: KeptTake,
    utterances: Sequence[Utterance],
    params: SamplingParams,
    config: ModelConfig,
) -> None:
    """Raise InvalidRequest if a take cannot be gone on from.

    That is, if the text up to the cut differs, other levels are asked for, level 0 is not drawn
    token by token, or no room is left for new frames.
    """
    if job.more and not any(one.phonemes for one in utterances):
        return  # nothing is drawn of it
    first = len(job.before.utterances) if job.before else 0
    if params.level_0 != "ar":
        raise InvalidRequest(
            "masked passes draw all frames at once: level_0 must be ar to go on from a take",
            param="continue_from",
        )
    levels = 1 + min(params.nar_levels, config.levels - 1)
    for number, earlier in enumerate(kept.utterances):
        own = number - first
        if own < 0 or (own >= len(utterances) and job.more):
            continue
        if own >= len(utterances) or utterances[own].phonemes != earlier.phonemes:
            raise InvalidRequest(
                f"utterance {number} of the text is not read as that of the take, so its frames"
                " cannot be kept",
                param="continue_from",
            )
        if len(earlier.codes) and earlier.codes.shape[1] != levels:
            raise InvalidRequest(
                f"the take has {earlier.codes.shape[1]} levels of codes, this request would draw"
                f" {levels}: nar_levels must be {earlier.codes.shape[1] - 1}",
                param="nar_levels",
            )


def check_prompted(params: SamplingParams, voice: Voice) -> None:
    """Raise InvalidRequest for knobs of a prompt that a voice does not have."""
    for knob in ("penalty_includes_prompt", "prompt_as_prefix"):
        if getattr(params, knob) and voice.audio is None:
            raise InvalidRequest(
                f"the model hears no prompt of this voice: {knob} must be false", param=knob
            )


def limited(
    job: SpeechJob,
    utterances: Sequence[Utterance],
    pause_s: float,
    frame_rate_hz: float,
    max_audio_s: float,
) -> SpeechJob:
    """Return a job with `max_duration_s` such that its audio cannot exceed ``max_audio_s``.

    The audio of earlier jobs of the same speech counts, and a `speed` above 1 does not raise the
    limit. What has more, by its pauses and its text at the usual pace, is refused.
    """
    if math.isinf(max_audio_s):
        return job
    pauses_s = pauses_of(utterances, pause_s, more=job.more)
    spoken_s = USUAL_PHONEME_S * spoken_symbols(utterances)
    before_s = job.before.audio_s + job.before.pause_owed_s if job.before else 0.0
    drawn_s = job.before.sound_frames / frame_rate_hz if job.before else 0.0
    if job.max_duration_s is not None:
        spoken_s = min(spoken_s, max(0.0, job.max_duration_s - drawn_s))
    if job.kept is not None:
        kept = sum(len(one.codes) / one.rate for one in job.kept.utterances)
        spoken_s = max(spoken_s, kept / frame_rate_hz)
    check_audio_s(before_s + spoken_s, pauses_s, job.speed, max_audio_s)
    left_s = drawn_s + max_audio_s / stretched(1.0, job.speed) - before_s - pauses_s
    return replace(job, max_duration_s=min(left_s, job.max_duration_s or left_s))
