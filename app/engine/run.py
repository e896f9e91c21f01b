"""One job while it is spoken: its utterances decoded one after the other, and the account of it."""

import hashlib
import math
import sys
from collections import deque
from collections.abc import Iterator
from time import perf_counter

import torch
from torch import Tensor

from app.engine.decode import Decoded, Piece, Said, decode_utterance
from app.engine.job import (
    AudioChunk,
    FinishReason,
    Progress,
    SpeechResult,
    SpokenUtterance,
    Timings,
)
from app.engine.sound import SoundMaker
from app.engine.speaking import OnProgress, Plan
from models.checkpoints import SpeechModel
from models.text import FrontEnd, Utterance
from models.voice import PromptCodes

# Generous: speech has 10 to 15 phonemes a second, so a sane utterance ends long before.
SECONDS_A_PHONEME = 0.16
SECONDS_MORE = 1.0
LONGEST_UTTERANCE_S = 60.0

_GRAVITY: tuple[FinishReason, ...] = ("stop", "length", "stuck", "cancelled", "error")


class Run:
    """A job while it is spoken: what is made so far."""

    def __init__(
        self,
        speech: SpeechModel,
        plan: Plan,
        *,
        front_end: FrontEnd,
        prompts: PromptCodes,
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
            silent: ``(V,)`` bool, the codes of silence.
            queue_s: Seconds the job waited before.
            on_progress: Called after every frame; False stops.
        """
        self._speech, self._plan, self._silent = speech, plan, silent
        self._on_progress, self._queue_s = on_progress, queue_s
        self._front_end = front_end
        self._started_s = perf_counter()
        self._prompt = prompts.of(plan.voice)
        self._frame_rate_hz = speech.codec.config.frame_rate_hz
        self._sound = SoundMaker(speech.codec, plan.params.pause_s)
        self._digest = hashlib.sha256()
        self._spoken: list[SpokenUtterance] = []
        self._said: deque[Said] = deque(maxlen=plan.params.context_utterances)
        self._finish_reason: FinishReason = "stop"
        self._frames = 0
        self._ar_s = self._nar_s = 0.0
        self._codec_s = perf_counter() - self._started_s
        self._stopped = False
        limit_s = plan.job.max_duration_s
        self._frames_left = (
            sys.maxsize if limit_s is None else math.ceil(limit_s * self._frame_rate_hz)
        )

    def chunks(self) -> Iterator[AudioChunk]:
        """Yield one chunk an utterance, the last with the result; nothing more once stopped."""
        utterances = self._plan.utterances
        for number, utterance in enumerate(utterances):
            decoded = self._decode(utterance, number)
            if self._stopped:
                return
            last, pause_after_s = number + 1 == len(utterances), utterance.pause_after_s
            if not last and self._frames_left <= 0:
                self._note("length")
                last, pause_after_s = True, None  # the pause led to what is not spoken
            yield self._chunk(decoded, pause_after_s, last=last)
            if last:
                return

    def _chunk(self, decoded: Decoded, pause_after_s: float | None, *, last: bool) -> AudioChunk:
        """Return the sound of one more utterance, with the account of all if it is the last."""
        started_s = perf_counter()
        codes = decoded.codes.cpu().numpy().astype("<i2")
        self._digest.update(codes.tobytes())
        self._spoken.append(
            SpokenUtterance(
                codes,
                decoded.finish_reason,
                pause_after_s=pause_after_s,
                trace=decoded.trace,
                backtracks=decoded.backtracks,
            )
        )
        samples = self._sound.add(decoded.codes, pause_after_s, last=last)
        self._codec_s += perf_counter() - started_s
        rate_hz = self._speech.codec.config.sample_rate_hz
        return AudioChunk(samples, rate_hz, self._result() if last else None)

    def _note(self, reason: FinishReason) -> None:
        """Take an utterance's finish reason for the job's, if it is graver."""
        self._finish_reason = max(self._finish_reason, reason, key=_GRAVITY.index)

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
            audio_s=self._sound.samples / self._speech.codec.config.sample_rate_hz,
            timings=timings,
            utterances=tuple(self._spoken),
        )

    def _decode(self, utterance: Utterance, number: int) -> Decoded:
        """Decode an utterance; one without phonemes is a mere pause."""
        config = self._speech.model.config
        if not utterance.phonemes:
            nothing = torch.zeros((0, config.levels), dtype=torch.int64)
            return Decoded(nothing, "stop", 0.0, 0.0, {} if self._plan.job.trace else None)

        def on_frame(frames: int) -> bool:
            utterances = len(self._plan.utterances)
            going = self._on_progress(Progress(number, utterances, self._frames + frames))
            self._stopped = not going
            return going

        ids = self._front_end.encode(utterance.phonemes)
        plan = self._plan
        piece = Piece(
            ids,
            plan.params,
            plan.seed,
            number,
            max_frames=min(self._frames_left, longest(len(ids), self._frame_rate_hz)),
            prompt=self._prompt,
            language=config.languages.index(plan.language),
            trace=plan.job.trace,
            silent=self._silent,
            before=tuple(self._said),
        )
        codebooks = self._speech.codec.quantizer.codebooks
        decoded = decode_utterance(self._speech.model, codebooks, piece, on_frame)
        self._ar_s += decoded.ar_s
        self._nar_s += decoded.nar_s
        self._note(decoded.finish_reason)
        self._said.append(Said(ids, decoded.codes[:, 0]))
        self._frames += len(decoded.codes)
        self._frames_left -= len(decoded.codes)
        return decoded


def longest(phonemes: int, frame_rate_hz: float) -> int:
    """Return how many frames an utterance may have: 0.16 s a phoneme and 1 s, at most 60 s."""
    seconds = SECONDS_A_PHONEME * phonemes + SECONDS_MORE
    return math.ceil(min(seconds, LONGEST_UTTERANCE_S) * frame_rate_hz)
