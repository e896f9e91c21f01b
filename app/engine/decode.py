"""From phonemes to codes: the AR loop over a cache, then one NAR pass a level.

The only place where models meet samplers: logits go in, tokens come out, and the token is fed back.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from app.engine.backtracking import Backtracker
from app.engine.job import Backtrack, TraceColumns
from app.engine.masked import draw_masked
from models.cache import KVCache
from models.config import BOS_ID, EOS_ID
from models.valle import Prefix, Valle
from samplers.chain import ArSampler
from samplers.entropix import AttentionStatistics
from samplers.guidance import guide, guide_frames
from samplers.nar import sample_nar
from samplers.params import SamplingParams
from samplers.trace import Trace

FinishReason = Literal["stop", "length", "stuck", "cancelled"]

OnFrame = Callable[[int], bool]
"""Called with the count after every frame; False stops."""


@dataclass(frozen=True, slots=True)
class Said:
    """An utterance that was spoken before.

    Attributes:
        phoneme_ids: With the begin and end marks.
        codes: ``[T]`` int64 of level 0.
    """

    phoneme_ids: Sequence[int]
    codes: Tensor


@dataclass(frozen=True, slots=True)
class Piece:
    """One utterance that is to be decoded.

    Args:
        phoneme_ids: With the begin and end marks.
        params: Resolved: every knob has its value.
        seed: Of every draw.
        utterance: Its number within the job; the noise depends on it.
        max_frames: Where the AR is stopped if it does not stop by itself.
        prompt: ``[Tp, K]`` codes of the voice, or None.
        language: Its index in the model's languages.
        trace: Whether to record what is seen and done at every token of the AR.
        silent: ``(V,)`` bool, the codes of silence; None if none are known.
        before: Utterances that the AR reads again, to go on from them.
    """

    phoneme_ids: Sequence[int]
    params: SamplingParams
    seed: int
    utterance: int
    max_frames: int
    prompt: Tensor | None = None
    language: int = 0
    trace: bool = False
    silent: Tensor | None = None
    before: Sequence[Said] = ()

    def prefix(self, model: Valle, level: int) -> Prefix:
        """Assemble what stands before the response."""
        return model.prefix(self.phoneme_ids, level, language=self.language, prompt=self.prompt)

    def ar_prefixes(self, model: Valle) -> list[Prefix]:
        """Assemble what stands before the first frame that the AR draws; twice if guided.

        What was said before reads as one utterance with this one: the marks between them are left
        out. A prompt that begins the response is no segment of its own (e-c-k-e-r/vall-e).
        """
        begun = [said.codes for said in self.before]
        prompt = self.prompt
        if self.params.prompt_as_prefix and prompt is not None:
            begun, prompt = [prompt[:, 0], *begun], None
        ids = [BOS_ID]
        for part in (*(said.phoneme_ids for said in self.before), self.phoneme_ids):
            ids += part[1:-1]
        prefixes = [model.prefix([*ids, EOS_ID], 0, language=self.language, prompt=prompt)]
        if self.params.cfg_strength > 1:
            prefixes.append(model.null_prefix(0, language=self.language))
        if not begun:
            return prefixes
        return [model.begin(prefix, torch.cat(begun)) for prefix in prefixes]

    def backtracker(self, model: Valle) -> Backtracker:
        """Make what notices that this utterance is stuck."""
        config, device = model.config, model.separator.device
        silent = self.silent
        if silent is None:
            silent = torch.zeros(config.codes, dtype=torch.bool, device=device)
        return Backtracker(self.params, silent, first_block=config.block_frames)


@dataclass(frozen=True, slots=True)
class Decoded:
    """One utterance as codes ``[T, K]`` int64, why it ended, and where the seconds went.

    K is fewer than the model's levels if `nar_levels` asks for fewer, or the job was cancelled.
    The trace is there if the piece asked for it.
    """

    codes: Tensor
    finish_reason: FinishReason
    ar_s: float
    nar_s: float
    trace: TraceColumns | None = None
    backtracks: tuple[Backtrack, ...] = ()


@torch.inference_mode()
def decode_utterance(model: Valle, codebooks: Tensor, piece: Piece, on_frame: OnFrame) -> Decoded:
    """Decode one utterance.

    Args:
        model: On the device to use.
        codebooks: ``[K, V, D]`` vectors of the codec's codes, which some draws weigh.
        piece: What to speak.
        on_frame: Told of every frame of the AR.

    Returns:
        The codes; level 0 alone if it was cancelled.
    """
    if piece.params.level_0 == "masked":
        return _decode_masked(model, codebooks, piece, on_frame)
    started_s = perf_counter()
    trace = Trace() if piece.trace else None
    ar = _Ar(model, piece, trace)
    finish_reason = ar.run(on_frame)
    ar_s = perf_counter() - started_s
    codes = ar.codes[:, None]
    if len(codes) and finish_reason != "cancelled":
        codes = _decode_nar(model, codebooks, piece, codes)
    nar_s = perf_counter() - started_s - ar_s
    return Decoded(
        codes,
        finish_reason,
        ar_s,
        nar_s,
        trace.columns(0) if trace else None,
        tuple(ar.backtracker.taken) if ar.backtracker else (),
    )


class _Seen(NamedTuple):
    """What the model made of all that it read: ``[slots, D]``, and how slot 0 attended, if asked.

    Slot 0 is the one that heard the words.
    """

    hidden: Tensor
    attention: AttentionStatistics | None


class _Ar:
    """Level 0 of one utterance while it is drawn.

    A guided utterance takes two slots, the second without its words; both are fed what was drawn.
    """

    def __init__(self, model: Valle, piece: Piece, trace: Trace | None) -> None:
        """Read the prefix, or both."""
        self._model, self._piece, self._trace = model, piece, trace
        config, params, device = model.config, piece.params, model.separator.device
        self._prefixes = piece.ar_prefixes(model)
        self._slots = range(len(self._prefixes))
        max_length = max(map(len, self._prefixes)) + piece.max_frames
        self._cache = KVCache(config, slots=len(self._slots), max_length=max_length, device=device)
        self._sampler = ArSampler(
            [params],
            [piece.seed],
            stop_token=config.stop_token,
            vocab_size=config.codes + 1,
            max_frames=piece.max_frames,
            utterances=[piece.utterance],
            prompts=None if piece.prompt is None else [piece.prompt[:, 0]],
            silent=piece.silent,
            device=device,
        )
        self._guidance = torch.tensor(
            [[params.cfg_strength], [params.cfg_rescale]], device=device
        ).unbind()
        self._first = self._seen = self._read_prefixes()
        starts = torch.tensor([prefix.response_start for prefix in self._prefixes], device=device)
        self._positions = torch.arange(piece.max_frames, device=device)[:, None] + starts
        self._drawn: list[Tensor] = []
        self.backtracker = piece.backtracker(model) if params.backtrack else None

    @property
    def codes(self) -> Tensor:
        """``[T]`` int64: what was drawn and stayed."""
        nothing = torch.zeros(0, dtype=torch.int64, device=self._seen.hidden.device)
        return torch.cat([nothing, *self._drawn])

    def run(self, on_frame: OnFrame) -> FinishReason:
        """Draw until the utterance ends, and return why it did."""
        while True:
            token = self._draw()
            if int(token) == self._model.config.stop_token:
                return "stop"
            self._drawn.append(token)
            if not on_frame(len(self._drawn)):
                return "cancelled"
            verdict = self.backtracker.look(self._sampler.history) if self.backtracker else None
            if verdict is not None:
                self._rewind(verdict.keep)
                if verdict.stuck:
                    return "stuck"
            if len(self._drawn) == self._piece.max_frames:
                return "length"
            self._feed()

    def _read_prefixes(self) -> _Seen:
        """Return that from which frame 0 is predicted."""
        model, last, attention = self._model, [], None
        for slot, prefix in enumerate(self._prefixes):
            ranks = model.ranks(0, prefix.blocks)
            read = (prefix.embeddings, prefix.positions, self._cache, slot, ranks)
            if slot == 0 and self._sampler.wants_attention:
                hidden, attention = model.transformer.extend_looking(*read)
            else:
                hidden = model.transformer.extend(*read)
            last.append(hidden[-1:])
        return _Seen(torch.cat(last), attention)

    def _draw(self) -> Tensor:
        """Draw the next token ``[1]``."""
        logits = self._model.logits(self._seen.hidden, 0)
        own = logits[:1]
        if len(self._slots) > 1:
            logits = guide(own[:, None], logits[1:, None], *self._guidance)[:, 0]
        if self.backtracker:
            logits = self.backtracker.discourage(logits, len(self._drawn))
        return self._sampler.step(logits, self._trace, own, self._seen.attention)

    def _feed(self) -> None:
        """Feed the newest frame, so that the next one can be predicted."""
        frames = len(self._drawn)
        if not frames:  # all was taken back
            self._seen = self._first
            return
        stack = self._model.transformer
        embedding = self._model.embed_response(self._drawn[-1][:, None], 0)
        rows = embedding.expand(len(self._slots), -1)
        place = (rows, self._positions[frames - 1], self._cache, self._slots)
        if self._sampler.wants_attention:
            self._seen = _Seen(*stack.step_looking(*place, looking=[0]))
        else:
            self._seen = _Seen(stack.step(*place), None)

    def _rewind(self, keep: int) -> None:
        """Take back all frames but the first ``keep``; the last of those is to be fed again."""
        del self._drawn[keep:]
        self._sampler.rewind(0, keep)
        for slot, prefix in enumerate(self._prefixes):
            self._cache.rewind(slot, len(prefix) + max(0, keep - 1))


def _decode_masked(model: Valle, codebooks: Tensor, piece: Piece, on_frame: OnFrame) -> Decoded:
    """Decode an utterance whose level 0 is drawn in masked passes; it has no tokens to trace."""
    started_s = perf_counter()
    drawn = draw_masked(
        model,
        piece.prefix(model, 0),
        model.null_prefix(0, language=piece.language),
        piece.params,
        seed=piece.seed,
        utterance=piece.utterance,
        max_frames=piece.max_frames,
        on_frame=on_frame,
    )
    masked_s = perf_counter() - started_s
    codes = drawn.codes[:, None]
    if drawn.finish_reason != "cancelled":
        codes = _decode_nar(model, codebooks, piece, codes)
    nar_s = perf_counter() - started_s - masked_s
    return Decoded(codes, drawn.finish_reason, masked_s, nar_s, {} if piece.trace else None)


def _decode_nar(model: Valle, codebooks: Tensor, piece: Piece, codes: Tensor) -> Tensor:
    """Return ``[T, 1 + levels]``, the finer levels added to level 0 ``[T, 1]``."""
    for level in range(1, 1 + min(piece.params.nar_levels, model.config.levels - 1)):
        drawn = sample_nar(
            _nar_logits(model, piece, codes, level),
            piece.params,
            seed=piece.seed,
            utterance=piece.utterance,
            level=level,
            codebook=codebooks[level],
        )
        codes = torch.cat([codes, drawn[:, None]], 1)
    return codes


def _nar_logits(model: Valle, piece: Piece, codes: Tensor, level: int) -> Tensor:
    """Return ``[T, V]`` of a level, guided if the piece asks for it."""
    own = model.nar_logits(piece.prefix(model, level), codes, level)
    strength = piece.params.nar_cfg_strength
    if strength <= 1:
        return own
    null = model.nar_logits(model.null_prefix(level, language=piece.language), codes, level)
    return guide_frames(own, null, strength, piece.params.nar_cfg_rescale)
