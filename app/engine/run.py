"""One job while it is spoken: its utterances one after the other, and the account of it."""

import hashlib
import math
import sys
from collections import deque
from collections.abc import Generator, Iterator
from dataclasses import replace
from time import perf_counter

import numpy as np
import torch
from torch import Tensor

from app.engine.decode import LevelZero
from app.engine.job import (
    GRAVITY,
    AudioChunk,
    FinishReason,
    Progress,
    Samples,
    SpeechResult,
    SpokenUtterance,
    Timings,
    TraceColumns,
)
from app.engine.piece import Piece, Said
from app.engine.speaking import OnProgress, Plan
from app.engine.stream import Joiner
from app.engine.voicing import Voicing
from models.checkpoints import SpeechModel
from models.prefix_cache import NullKey, PrefixCache, VoiceKey
from models.text import FrontEnd, Utterance
from models.voice import PromptCodes

# Generous: speech has 10 to 15 phonemes a second, so a sane utterance ends long before.
SECONDS_A_PHONEME = 0.16
SECONDS_MORE = 1.0
LONGEST_UTTERANCE_S = 60.0


class Run:
    """A job while it is spoken: what is made so far."""

    def __init__(
        self,
        speech: SpeechModel,
        plan: Plan,
        *,
        front_end: FrontEnd,
        prompts: PromptCodes,
        prefixes: PrefixCache,
        silent: Tensor,
        queue_s: float,
        on_progress: OnProgress,
    ) -> None:
        """Begin with nothing spoken.

        Args:
            speech: The model.
            plan: What to speak.
            front_end: Gives the ids of phonemes.
            prompts: Where the codes of the plan's voice come from.
            prefixes: Where what its prefixes share comes from.
            silent: ``(V,)`` bool, the codes of silence.
            queue_s: Seconds the job waited before.
            on_progress: Called after every frame; False stops.
        """
        self._speech, self._plan, self._silent = speech, plan, silent
        self._on_progress, self._queue_s = on_progress, queue_s
        self._front_end, self._prefixes = front_end, prefixes
        self._started_s = perf_counter()
        self._prompt = prompts.of(plan.voice)
        language = speech.model.config.languages.index(plan.language)
        self._voice = VoiceKey(plan.voice.owner, plan.voice.key, language)
        self._frame_rate_hz = speech.codec.config.frame_rate_hz
        before = plan.job.before
        owed_s = before.pause_owed_s if before else 0.0
        rate_hz = speech.codec.config.sample_rate_hz
        self._joiner = Joiner(rate_hz, plan.params.pause_s, owed_s=owed_s)
        self._digest = hashlib.sha256()
        self._spoken: list[SpokenUtterance] = []
        self._first = len(before.utterances) if before else 0
        self._said: deque[Said] = deque(maxlen=plan.params.context_utterances)
        self._said.extend(self._said_by(before))
        self._finish_reason: FinishReason = "stop"
        self._frames = 0
        self._ar_s = self._nar_s = 0.0
        self._codec_s = perf_counter() - self._started_s
        self._stopped = False
        limit_s = plan.job.max_duration_s
        self._frames_left = (
            sys.maxsize if limit_s is None else math.ceil(limit_s * self._frame_rate_hz)
        ) - (before.frames if before else 0)

    def chunks(self) -> Iterator[AudioChunk]:
        """Yield the sound as it comes, the last with the result; nothing more once stopped."""
        utterances = self._plan.utterances
        if self._frames_left <= 0:  # only where earlier jobs took them all
            self._note("length")
            yield self._chunk(np.zeros(0, np.float32), self._result())
            return
        with self._prefixes.pinned(self._voice, NullKey(self._voice.language)):
            for number, utterance in enumerate(utterances):
                rest = yield from self._speak(utterance, number)
                if self._stopped:
                    return
                last, pause_after_s = number + 1 == len(utterances), utterance.pause_after_s
                if not last and self._frames_left <= 0:
                    self._note("length")
                    last, pause_after_s = True, None  # the pause led to what is not spoken
                self._spoken[-1] = replace(self._spoken[-1], pause_after_s=pause_after_s)
                ending = self._joiner.finish(pause_after_s, last=last and not self._plan.job.more)
                samples = np.concatenate([rest, ending])
                if last:
                    yield self._chunk(samples, self._result())
                    return
                if len(samples):
                    yield self._chunk(samples)

    def _speak(self, utterance: Utterance, number: int) -> Generator[AudioChunk, None, Samples]:
        """Yield the sound of an utterance and return that of its last frames.

        One without phonemes is a mere pause.
        """
        silence = np.zeros(0, np.float32)
        model = self._speech.model
        if not utterance.phonemes:
            nothing = np.zeros((0, model.config.levels), np.int16)
            trace: TraceColumns | None = {} if self._plan.job.trace else None
            self._spoken.append(SpokenUtterance(nothing, "stop", trace=trace))
            return silence

        def on_frame(frames: int) -> bool:
            utterances = len(self._plan.utterances)
            going = self._on_progress(Progress(number, utterances, self._frames + frames))
            self._stopped = not going
            return going

        piece = self._piece(utterance, self._first + number)
        voicing = Voicing(self._speech, piece, self._prefixes)
        level_0 = LevelZero(model, piece, on_frame, self._prefixes)
        for codes in level_0:
            samples = self._joiner.push(voicing.feed(codes))
            if len(samples):
                yield self._chunk(samples)
        if self._stopped:
            return silence
        samples = self._joiner.push(voicing.feed(level_0.codes[:0], ended=True))
        self._account(utterance, piece, level_0, voicing)
        return samples

    def _piece(self, utterance: Utterance, number: int) -> Piece:
        ids, plan = self._front_end.encode(utterance.phonemes), self._plan
        return Piece(
            ids,
            plan.params,
            plan.seed,
            number,
            max_frames=min(self._frames_left, longest(len(ids), self._frame_rate_hz)),
            prompt=self._prompt,
            language=self._voice.language,
            trace=plan.job.trace,
            silent=self._silent,
            before=tuple(self._said),
            voice=self._voice,
        )

    def _account(
        self, utterance: Utterance, piece: Piece, level_0: LevelZero, voicing: Voicing
    ) -> None:
        """Note what became of an utterance."""
        codes = voicing.codes.cpu().numpy().astype("<i2")
        self._digest.update(codes.tobytes())
        self._spoken.append(
            SpokenUtterance(
                codes,
                level_0.finish_reason,
                trace=level_0.trace,
                backtracks=level_0.backtracks,
                phonemes=utterance.phonemes,
            )
        )
        self._note(level_0.finish_reason)
        self._said.append(Said(piece.phoneme_ids, level_0.codes))
        self._frames += len(codes)
        self._frames_left -= len(codes)
        self._ar_s += level_0.work_s
        self._nar_s += voicing.nar_s
        self._codec_s += voicing.codec_s

    def _said_by(self, before: SpeechResult | None) -> Iterator[Said]:
        """Return the utterances of earlier jobs that the AR goes on from."""
        if before is None or not (wanted := self._plan.params.context_utterances):
            return
        device = self._speech.model.separator.device
        for spoken in [one for one in before.utterances if one.phonemes][-wanted:]:
            codes = torch.from_numpy(spoken.codes[:, 0].astype(np.int64)).to(device)
            yield Said(self._front_end.encode(spoken.phonemes), codes)

    def _chunk(self, samples: Samples, result: SpeechResult | None = None) -> AudioChunk:
        return AudioChunk(samples, self._speech.codec.config.sample_rate_hz, result)

    def _note(self, reason: FinishReason) -> None:
        """Take an utterance's finish reason for the job's, if it is graver."""
        self._finish_reason = max(self._finish_reason, reason, key=GRAVITY.index)

    def _result(self) -> SpeechResult:
        plan = self._plan
        timings = Timings(
            queue_s=self._queue_s,
            text_s=plan.text_s,
            ar_s=self._ar_s,
            nar_s=self._nar_s,
            codec_s=self._codec_s,
            total_s=self._queue_s + plan.text_s + perf_counter() - self._started_s,
        )
        return SpeechResult(
            job_id=plan.job.id,
            finish_reason=self._finish_reason,
            seed=plan.seed,
            params=plan.params,
            voice=plan.voice.name,
            language=plan.language,
            codes_sha256=self._digest.hexdigest(),
            frames=self._frames,
            audio_s=self._joiner.given / self._speech.codec.config.sample_rate_hz,
            timings=timings,
            utterances=tuple(self._spoken),
            nar=plan.nar,
            decoder=plan.decoder,
            pause_owed_s=self._joiner.owed_s,
        )


def longest(phonemes: int, frame_rate_hz: float) -> int:
    """Return how many frames an utterance may have: 0.16 s a phoneme and 1 s, at most 60 s."""
    seconds = SECONDS_A_PHONEME * phonemes + SECONDS_MORE
    return math.ceil(min(seconds, LONGEST_UTTERANCE_S) * frame_rate_hz)
