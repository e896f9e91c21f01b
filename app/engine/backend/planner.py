"""From a job to its plan: knobs resolved, voice found, text read; or the job refused.

Which method samples a model's codes, and which knobs act, is decided before any work.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import TYPE_CHECKING, Any

from app.engine.backend.encoder import AudioEncoder
from app.engine.backend.limits import check_limit, check_limits, limits_of, schemas_of
from app.engine.backend.plan_checks import (
    check_kept,
    check_prompted,
    choose_ar,
    limited,
    nar_plan,
)
from app.engine.backend.speakers import Speakers, voices_by_name
from app.engine.core import MadeBy, Plan, PromptedVoice, SpeechJob
from app.engine.errors import InvalidRequest
from app.engine.interface import Reading
from app.engine.memory import pages_of
from app.engine.reading import TextProcess
from app.engine.voices import Voices
from app.storage.dictionary_files import DEFAULT_DICTIONARY, Dictionaries
from app.storage.voice_store import VoiceStore
from models.checkpoints.files import CheckpointError
from models.checkpoints.sources import SpeechModel
from models.text import FrontEnd, Prepared, TextError, Utterance
from models.text.pronunciations import PronunciationError
from models.text.published.tags import language_pattern
from models.text.words import WordSpan
from models.voices.recording import MAX_AUDIO_S
from models.voices.voice import BuiltinVoices
from samplers.knobs.features import FEATURES, is_on, rows_needed
from samplers.knobs.params import SamplingParams
from samplers.knobs.presets import AUTO, PRESETS, Presets
from samplers.knobs.resolve import ConflictError, UnknownPreset, look_up, resolve

if TYPE_CHECKING:
    from app.settings import Settings  # needs pydantic-settings, absent where torch is alone

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
        settings: "Settings",
        catalog: Catalog,
        encoder: AudioEncoder,
        *,
        made_by: MadeBy,
        text_process: TextProcess | None = None,
    ) -> None:
        self._config = config = speech.model.config
        self._decoder = speech.decoder_name
        self._frame_rate_hz = speech.codec.config.frame_rate_hz
        self._settings = settings
        self._offloader = encoder.offloader
        self._made_by = made_by
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
        self._speakers = Speakers(config, self.voices, encoder, self.front_end, self._reader)
        self.presets = self._resolved_presets()

    def _resolved_presets(self) -> Mapping[str, SamplingParams]:
        """Return each preset with every knob resolved for this model, `auto` first, no seed."""
        # `auto` is what a request without knobs gets. Its `preset` names the set that it is, or is
        # `auto` if the model's card has knobs of its own.
        resolved = {}
        for name in (AUTO, *self._presets):
            params = resolve(SamplingParams(preset=name), self._config.preset, self._presets)
            params = choose_ar(params, (), self._config)
            resolved[name] = params.model_copy(update={"seed": None})
        return resolved

    def schemas(self) -> Mapping[str, Mapping[str, Any]]:
        """Return what to add to the JSON schema of fields, as the model takes fewer values."""
        names = [one for one in self._dictionaries if one != DEFAULT_DICTIONARY]
        longest = {"maxLength": self._settings.max_text_chars}
        return {
            **schemas_of(self._limits),
            "preset": {"enum": [AUTO, *self._presets]},
            "language": {"pattern": language_pattern(self._config.languages)},
            "dictionaries": {"items": {"enum": names}} if names else {"maxItems": 0},
            "input": longest,
            "text": longest,
        }

    def plan(self, job: SpeechJob, on_piece: Callable[[], None] = lambda: None) -> Plan:
        """Resolve the knobs, find the voice, convert the text to phonemes; or refuse the job.

        Reads nothing that the workers change, so it runs in a thread beside theirs. ``on_piece`` is
        called after each piece of the text; it may plan other jobs. Raises InvalidRequest if text
        or language is not for this model, the speech would last too long, there is no such preset,
        knobs contradict, or the model cannot honour one.
        """
        self._offloader.load()
        started_s = perf_counter()
        config = self._config
        self._check_length(job.text)
        voice = self.voices.speaker(job.voice, job.owner)
        language = self.voices.language(job.reading.language, voice)
        try:
            params = resolve(job.params, config.preset, self._presets)
        except UnknownPreset as error:
            raise InvalidRequest(str(error), param="preset") from error
        except ConflictError as error:
            raise InvalidRequest(str(error), param=error.fields[0]) from error
        overridden = self._overridden(job.params, params)
        check_limits(params, self._limits)
        params = choose_ar(params, overridden, config)
        check_prompted(params, voice)
        assert params.seed is not None
        aligned = job.report.timestamps != "none"
        if aligned:
            check_limit("timestamps", job.report.timestamps, self._limits)
        lookahead = params.text_lookahead_words if params.level_0 == "ar" else 0
        prepared = self._read(job, language, on_piece, lookahead)
        utterances = tuple(prepared.utterances)
        speakers = self._named(utterances, job.owner, params)
        if job.part.kept is not None:
            check_kept(job, job.part.kept, utterances, params, config)
        words: list[tuple[WordSpan, ...]] = []
        lengths: list[Sequence[int]] = []
        for one in utterances if aligned else ():
            words.append(self._reader.words(one, language=language))
            lengths.append(self.front_end.lengths(one.phonemes))
            on_piece()
        job = limited(
            job, utterances, params.pause_s, self._frame_rate_hz, self._settings.max_audio_s
        )
        text_s = perf_counter() - started_s
        is_used = any(one.voice is None for one in utterances)
        own = self._speakers.speaker(voice) if is_used else PromptedVoice(voice)
        plan = Plan(
            job,
            params,
            params.seed,
            voice,
            language,
            utterances,
            text_s,
            rows=rows_needed(params, config.one_row_strength),
            usual=self._is_usual(job, params),
            nar=nar_plan(config, params),
            decoder=self._decoder,
            words=tuple(words),
            lengths=tuple(lengths),
            speakers=tuple(speakers[one.voice.lower()] if one.voice else own for one in utterances),
            left_out=prepared.left_out,
            made_by=self._made_by,
        )
        return replace(plan, pages=pages_of(plan, config, self._frame_rate_hz))

    def read(self, job: SpeechJob, on_piece: Callable[[], None] = lambda: None) -> Reading:
        """Convert the text of a job to phonemes, and nothing else; its knobs are not looked at."""
        self._check_length(job.text)
        voice = self.voices.default if job.voice is None else self.voices.find(job.voice, job.owner)
        language = self.voices.language(job.reading.language, voice)
        prepared = self._read(job, language, on_piece)
        utterances = tuple(prepared.utterances)
        voices_by_name(utterances, lambda name: self.voices.find(name, job.owner))
        return Reading(language, utterances, prepared.left_out)

    def _is_usual(self, job: SpeechJob, params: SamplingParams) -> bool:
        """Return whether a job's steps cost about what those of a job without knobs do."""
        default = resolve(SamplingParams(), self._config.preset, self._presets)
        more = sum(is_on(one, params) for one in FEATURES) - sum(
            is_on(one, default) for one in FEATURES
        )
        rows = rows_needed(params, self._config.one_row_strength)
        return rows <= USUAL_ROWS and not job.report.trace and more <= MORE_FEATURES

    def _check_length(self, text: str) -> None:
        """Do nothing if a text is short enough."""
        if len(text) > self._settings.max_text_chars:
            raise InvalidRequest(
                f"the text has {len(text)} characters, at most {self._settings.max_text_chars} fit;"
                " `valle-serve speak --file` speaks a longer one",
                param="input",
            )

    def _overridden(self, asked: SamplingParams, params: SamplingParams) -> Collection[str]:
        """Return the names of the knobs that the caller set to other values than the preset's."""
        card = self._config.preset
        knobs = look_up(params.preset, self._presets) if params.preset != AUTO else card
        preset = SamplingParams.model_validate(knobs)
        return {
            knob
            for knob in asked.model_fields_set & SamplingParams.model_fields.keys()
            if knob not in {"preset", "seed"} and getattr(params, knob) != getattr(preset, knob)
        }

    def _named(
        self, utterances: Sequence[Utterance], owner: str, params: SamplingParams
    ) -> dict[str, PromptedVoice]:
        """Return the voices that a text names, in lower case, with their prompts."""
        speakers: dict[str, PromptedVoice] = {}
        for name, voice in voices_by_name(
            utterances, lambda one: self.voices.speaker(one, owner)
        ).items():
            check_prompted(params, voice)
            speakers[name] = self._speakers.speaker(voice)
        return speakers

    def _read(
        self,
        job: SpeechJob,
        language: str,
        on_piece: Callable[[], None],
        lookahead: int = 0,
    ) -> Prepared:
        """Return the utterances of a job's text, as phonemes, and what is left out of it."""
        try:
            prepared = self._reader.prepared(
                job.text,
                language=language,
                max_chars=self._settings.max_text_chars,
                pronunciations=self._pronunciations(job),
                strict=(job.reading.unreadable or self._settings.unreadable) == "refuse",
                more=job.part.more,
                thoughts=job.reading.thoughts == "speak",
                lookahead=lookahead,
                is_open=job.part.is_open,
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
        entries = dict(self._dictionaries.get(DEFAULT_DICTIONARY, {}))
        for name in job.reading.dictionaries:
            if name.lower() not in self._dictionaries:
                known = ", ".join(self._dictionaries) or "none"
                raise InvalidRequest(
                    f"there is no dictionary {name!r}; there are: {known}", param="dictionaries"
                )
            entries |= self._dictionaries[name.lower()]
        self.front_end.check_entries(job.reading.pronunciations)
        return entries | dict(job.reading.pronunciations)
