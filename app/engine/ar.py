"""Level 0 of many utterances at once: they come, draw a frame a step together, and go.

One of the places where models meet samplers: logits go in, tokens come out, and the token is fed
back. What an utterance is given does not depend on who else is there, by a single bit: its slots,
its row of the sampler and its noise are its own, and the stack computes row by row.
"""

from collections.abc import Sequence
from typing import Self

import torch
from torch import Tensor

from app.engine.ar_utterance import ArUtterance, Condition, Line, Seen, as_tensor
from app.engine.errors import GenerationFailed
from app.engine.piece import Piece
from models.cache import KVCache
from models.prefix_cache import PrefixCache
from models.valle import Prefix, Valle
from samplers.chain import ArSampler
from samplers.entropix import AttentionStatistics
from samplers.guidance import guide
from samplers.memory import Memory
from samplers.rows import on
from samplers.trace import Trace


def rows_of(piece: Piece) -> int:
    """Return how many slots a piece takes: one more if it is guided."""
    return 2 if piece.params.cfg_strength > 1 else 1


class ArBatch:
    """Utterances that are drawn together, each in one slot of a cache, or two. One thread only."""

    def __init__(self, model: Valle, prefixes: PrefixCache, *, slots: int, max_length: int) -> None:
        """Begin with none.

        Args:
            model: On the device to use.
            prefixes: Where what prefixes share comes from.
            slots: How many rows a step may have.
            max_length: Positions a slot has room for: a prefix and the frames behind it.
        """
        self._model, self._prefixes = model, prefixes
        config, self._device = model.config, model.separator.device
        self._cache = KVCache(config, slots, max_length, device=self._device)
        self._free = list(range(slots))
        self._sampler = ArSampler(
            [], [], stop_token=config.stop_token, vocab_size=config.codes + 1, device=self._device
        )
        self._running: list[ArUtterance] = []  # in the order of the sampler's rows
        self._paused: dict[ArUtterance, Memory] = {}

    @classmethod
    def alone(cls, model: Valle, prefixes: PrefixCache, piece: Piece) -> Self:
        """Return one with just the room that one piece takes."""
        longest = max(map(len, piece.ar_prefixes(model)))
        return cls(model, prefixes, slots=rows_of(piece), max_length=longest + piece.max_frames)

    @property
    def free_rows(self) -> int:
        """How many slots are free; a piece takes as many as `rows_of` says, as long as it lasts."""
        return len(self._free)

    @property
    def running(self) -> Sequence[ArUtterance]:
        """Those that the next step draws for."""
        return tuple(self._running)

    @torch.inference_mode()
    def admit(self, piece: Piece) -> ArUtterance:
        """Read what comes before the first frame of a piece, which then runs.

        Args:
            piece: What to speak.

        Raises:
            ValueError: There are not enough free rows, or a slot is too short for the piece.
        """
        prefixes = piece.ar_prefixes(self._model)
        longest = max(map(len, prefixes)) + piece.max_frames
        if len(prefixes) > len(self._free) or longest > self._cache.max_length:
            raise ValueError(
                f"{len(prefixes)} slots of {longest} positions asked for, {len(self._free)} of "
                f"{self._cache.max_length} are free"
            )
        slots = [self._free.pop(0) for _ in prefixes]
        try:
            utterance = self._begin(piece, prefixes, slots)
        except BaseException:
            self._release(slots)
            raise
        self._running.append(utterance)
        return utterance

    def pause(self, utterance: ArUtterance) -> None:
        """Draw no more for an utterance until it is resumed; it keeps its slots."""
        if utterance in self._running:
            row = self._running.index(utterance)
            self._paused[utterance] = self._sampler.leave(row)
            del self._running[row]

    def resume(self, utterance: ArUtterance) -> None:
        """Go on with an utterance that was paused, as if it had not been."""
        if (memory := self._paused.pop(utterance, None)) is not None:
            self._sampler.rejoin(memory)
            self._running.append(utterance)

    def drop(self, utterance: ArUtterance) -> None:
        """Stop an utterance, if it has not ended; its rows are free at once."""
        if utterance.finish_reason is None:
            utterance.finish_reason = "cancelled"
            self._let_go(utterance)

    @torch.inference_mode()
    def step(self) -> Sequence[ArUtterance]:
        """Draw the next token of every utterance that runs; those that end free their rows.

        Returns:
            The utterances that it drew for.
        """
        utterances = self.running
        if not utterances:
            return utterances
        guided = [row for row, one in enumerate(utterances) if len(one.conditions) > 1]
        lines = [Line(one, one.conditions[0]) for one in utterances]
        lines += [Line(utterances[row], utterances[row].conditions[1]) for row in guided]
        seen = self._read(lines)
        logits = self._model.logits(seen.hidden, 0)
        own, null = logits.tensor_split([len(utterances)])
        scores = _discouraged(utterances, _guided(utterances, guided, own, null))
        attention = AttentionStatistics(*seen.attention[:, : len(utterances)].unbind())
        trace = Trace() if any(one.piece.trace for one in utterances) else None
        codes = self._sampler.step(scores, trace, own, attention).tolist()
        no_numbers = zip(lines, logits.isnan().any(-1).tolist(), strict=True)
        broken = {line.utterance for line, broke in no_numbers if broke}
        for row, (utterance, code) in enumerate(zip(utterances, codes, strict=True)):
            if trace is not None:
                utterance.note(trace.records[0], row)
            if utterance in broken:
                utterance.fail(GenerationFailed("the model gave logits that are no numbers"))
            else:
                self._take(utterance, code, row)
        for utterance in utterances:
            if utterance.finish_reason is not None:
                self._let_go(utterance)
        return utterances

    def _begin(self, piece: Piece, prefixes: Sequence[Prefix], slots: Sequence[int]) -> ArUtterance:
        """Read the prefixes into slots, and give the utterance a row of the sampler."""
        backtracker = piece.backtracker(self._model) if piece.params.backtrack else None
        conditions = [
            self._condition(piece, place, prefix, slot)
            for place, (prefix, slot) in enumerate(zip(prefixes, slots, strict=True))
        ]
        self._sampler.join(
            piece.params,
            piece.seed,
            max_frames=piece.max_frames,
            utterance=piece.utterance,
            prompt=None if piece.prompt is None else piece.prompt[:, 0],
            silent=piece.silent,
        )
        stop_token = self._model.config.stop_token
        return ArUtterance(piece, conditions, backtracker, stop_token=stop_token)

    def _condition(self, piece: Piece, place: int, prefix: Prefix, slot: int) -> Condition:
        """Read a prefix into a slot; that of place 0 has the words."""
        stack, key = self._model.transformer, (piece.voice, piece.null)[place]
        rest = self._prefixes.begin(prefix, 0, self._cache, slot, key)
        ranks = self._model.ranks(0, rest.blocks)
        read = (rest.embeddings, rest.positions, self._cache, slot, ranks)
        if place == 0 and on("entropix", piece.params):
            hidden, attention = stack.extend_looking(*read)
            first = Seen(hidden[-1:], as_tensor(attention))
        else:
            first = Seen.blind(stack.extend(*read)[-1:])
        return Condition(slot, len(prefix), prefix.response_start, first)

    def _read(self, lines: Sequence[Line]) -> Seen:
        """Return what the next frames are predicted from, the newest of every line read."""
        fed = [place for place, line in enumerate(lines) if len(line.utterance)]
        if len(fed) == len(lines):
            return self._feed(lines)
        first = [line.condition.first for line in lines]
        hidden = torch.cat([seen.hidden for seen in first])
        attention = torch.cat([seen.attention for seen in first], 1)
        if fed:
            newer = self._feed([lines[place] for place in fed])
            index = torch.tensor(fed, device=self._device)
            hidden.index_copy_(0, index, newer.hidden)
            attention.index_copy_(1, index, newer.attention)
        return Seen(hidden, attention)

    def _feed(self, lines: Sequence[Line]) -> Seen:
        """Feed the newest frame of every line, one each."""
        stack, device = self._model.transformer, self._device
        newest = torch.tensor([line.utterance.newest for line in lines], device=device)
        positions = torch.tensor([line.position for line in lines], device=device)
        slots = [line.condition.slot for line in lines]
        read = (self._model.embed_response(newest[:, None], 0), positions, self._cache, slots)
        looking = [place for place, line in enumerate(lines) if line.looks]
        if not looking:
            return Seen.blind(stack.step(*read))
        hidden, found = stack.step_looking(*read, looking=looking)
        seen = Seen.blind(hidden)
        index = torch.tensor(looking, device=device)
        seen.attention.index_copy_(1, index, as_tensor(found))
        return seen

    def _take(self, utterance: ArUtterance, code: int, row: int) -> None:
        """Give an utterance its code, and take back what it gives up."""
        kept = utterance.take(code, self._sampler.history, row)
        if kept is not None and utterance.finish_reason is None:
            self._sampler.rewind(row, kept)
            for condition in utterance.conditions:
                # The last frame that is kept is fed once more.
                self._cache.rewind(condition.slot, condition.length + max(0, kept - 1))

    def _let_go(self, utterance: ArUtterance) -> None:
        """Free the rows of an utterance that has ended."""
        self.pause(utterance)
        self._paused.pop(utterance, None)
        self._release([condition.slot for condition in utterance.conditions])

    def _release(self, slots: Sequence[int]) -> None:
        for slot in slots:
            self._cache.rewind(slot, 0)
        self._free = sorted([*self._free, *slots])


def _guided(
    utterances: Sequence[ArUtterance], guided: Sequence[int], own: Tensor, null: Tensor
) -> Tensor:
    """Return ``[B, V]`` logits, guided in some rows by as many rows ``[G, V]`` without words."""
    if not guided:
        return own
    knobs = [utterances[row].piece.params for row in guided]
    strength = own.new_tensor([params.cfg_strength for params in knobs])
    rescale = own.new_tensor([params.cfg_rescale for params in knobs])
    index = torch.tensor(guided, device=own.device)
    with_words = own.index_select(0, index)
    moved = guide(with_words[:, None], null[:, None], strength, rescale)[:, 0]
    return own.index_copy(0, index, moved)


def _discouraged(utterances: Sequence[ArUtterance], logits: Tensor) -> Tensor:
    """Return ``[B, V]`` logits with less of what led astray at the next frame of each row."""
    rows = [logits[row : row + 1] for row in range(len(utterances))]
    changed = [one.discourage(row) for one, row in zip(utterances, rows, strict=True)]
    if all(new is old for new, old in zip(changed, rows, strict=True)):
        return logits
    return torch.cat(changed)
