"""From phonemes to codes: the AR loop over a cache, and the finer levels behind it.

The only place where models meet samplers: logits go in, tokens come out, and the token is fed back.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from time import perf_counter
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from app.engine.finer import FinerLevels
from app.engine.job import Backtrack, TraceColumns
from app.engine.masked import draw_masked
from app.engine.piece import Piece
from models.cache import KVCache
from models.prefix_cache import PrefixCache
from models.valle import Valle
from samplers.chain import ArSampler
from samplers.entropix import AttentionStatistics
from samplers.guidance import guide
from samplers.trace import Trace

FinishReason = Literal["stop", "length", "stuck", "cancelled"]

OnFrame = Callable[[int], bool]
"""Called with the count after every frame; False stops."""


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


def decode_utterance(
    model: Valle,
    codebooks: Tensor,
    piece: Piece,
    on_frame: OnFrame,
    prefixes: PrefixCache | None = None,
) -> Decoded:
    """Decode one utterance to its codes, with no sound.

    Args:
        model: On the device to use.
        codebooks: ``[K, V, D]`` vectors of the codec's codes, which some draws weigh.
        piece: What to speak.
        on_frame: Told of every frame of level 0.
        prefixes: Where what is shared comes from; None: nothing is kept.

    Returns:
        The codes; level 0 alone if it was cancelled.
    """
    started_s = perf_counter()
    prefixes = PrefixCache(model) if prefixes is None else prefixes
    level_0 = LevelZero(model, piece, on_frame, prefixes)
    finer = FinerLevels(model, codebooks, piece, prefixes)
    chunks, codes = finer.chunks(), [finer.nothing]
    for frames in level_0:
        codes += map(finer.draw, chunks.push(frames))
    if level_0.finish_reason == "cancelled":
        codes = [level_0.codes[:, None]]
    else:
        codes += map(finer.draw, chunks.push(level_0.codes[:0], ended=True))
    nar_s = perf_counter() - started_s - level_0.work_s
    return Decoded(
        torch.cat(codes),
        level_0.finish_reason,
        level_0.work_s,
        nar_s,
        level_0.trace,
        level_0.backtracks,
    )


class LevelZero:
    """Level 0 of one utterance: iterate for its frames, ``[n]`` int64, as they become final.

    Attributes:
        finish_reason: Why it ended; to be read when it has.
        work_s: Seconds spent on it.
    """

    def __init__(
        self, model: Valle, piece: Piece, on_frame: OnFrame, prefixes: PrefixCache
    ) -> None:
        """Begin before the first frame.

        Args:
            model: On the device to use.
            piece: What to speak.
            on_frame: Told of every frame; those that are not final may be taken back.
            prefixes: Where what is shared comes from.
        """
        self._model, self._piece, self._on_frame = model, piece, on_frame
        self._prefixes = prefixes
        self._ar: _Ar | None = None
        self.codes = torch.zeros(0, dtype=torch.int64, device=model.separator.device)
        self.finish_reason: FinishReason = "stop"
        self.work_s = 0.0

    @property
    def trace(self) -> TraceColumns | None:
        """What was seen and done, if the piece asks for it; masked passes have no tokens."""
        if not self._piece.trace:
            return None
        return self._ar.trace.columns(0) if self._ar and self._ar.trace else {}

    @property
    def backtracks(self) -> tuple[Backtrack, ...]:
        """Every time that it was taken back."""
        backtracker = self._ar.backtracker if self._ar else None
        return tuple(backtracker.taken) if backtracker else ()

    @torch.inference_mode()
    def __iter__(self) -> Iterator[Tensor]:
        """Draw the frames; nothing more comes once `on_frame` says so."""
        masked = self._piece.params.level_0 == "masked"
        resumed_s = perf_counter()
        for frames in self._draw_masked() if masked else self._draw():
            self.work_s += perf_counter() - resumed_s
            yield frames
            resumed_s = perf_counter()
        self.work_s += perf_counter() - resumed_s

    def _draw(self) -> Iterator[Tensor]:
        self._ar = ar = _Ar(self._model, self._piece, self._prefixes)
        given = 0
        while (reason := ar.step(self._on_frame)) is None:
            if ar.final > given:
                yield ar.codes(given, ar.final)
                given = ar.final
        self.finish_reason, self.codes = reason, ar.codes()
        if reason != "cancelled" and len(self.codes) > given:
            yield self.codes[given:]

    def _draw_masked(self) -> Iterator[Tensor]:
        model, piece = self._model, self._piece
        drawn = draw_masked(
            model,
            piece.prefix(model, 0),
            piece.null_prefix(model, 0),
            piece.params,
            seed=piece.seed,
            utterance=piece.utterance,
            max_frames=piece.max_frames,
            on_frame=self._on_frame,
        )
        self.finish_reason, self.codes = drawn.finish_reason, drawn.codes
        if drawn.finish_reason != "cancelled":
            yield drawn.codes


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

    def __init__(self, model: Valle, piece: Piece, prefixes: PrefixCache) -> None:
        """Read the prefix, or both."""
        self._model, self._piece = model, piece
        self.trace = Trace() if piece.trace else None
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
        self._first = self._seen = self._read_prefixes(prefixes)
        starts = torch.tensor([prefix.response_start for prefix in self._prefixes], device=device)
        self._positions = torch.arange(piece.max_frames, device=device)[:, None] + starts
        self._drawn: list[Tensor] = []
        self.backtracker = piece.backtracker(model) if params.backtrack else None

    @property
    def final(self) -> int:
        """How many of the first frames will not be taken back."""
        return self.backtracker.final if self.backtracker else len(self._drawn)

    def codes(self, start: int = 0, end: int | None = None) -> Tensor:
        """Return ``[T]`` int64 of what was drawn and stayed, or a part of it."""
        nothing = torch.zeros(0, dtype=torch.int64, device=self._seen.hidden.device)
        return torch.cat([nothing, *self._drawn[start:end]])

    def step(self, on_frame: OnFrame) -> FinishReason | None:
        """Draw one token; return why the utterance ends, if it does."""
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
        return None

    def _read_prefixes(self, prefixes: PrefixCache) -> _Seen:
        """Return that from which frame 0 is predicted."""
        model, last, attention = self._model, [], None
        keys = (self._piece.voice, self._piece.null)
        for slot, (prefix, key) in enumerate(zip(self._prefixes, keys, strict=False)):
            rest = prefixes.begin(prefix, 0, self._cache, slot, key)
            ranks = model.ranks(0, rest.blocks)
            read = (rest.embeddings, rest.positions, self._cache, slot, ranks)
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
        return self._sampler.step(logits, self.trace, own, self._seen.attention)

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
