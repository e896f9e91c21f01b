"""The model's side of level 0: prefixes into slots, then the newest frame of each row, by steps.

Two of them, as the arithmetic differs: over slots, launched operator by operator, on a CPU; and
over pages, in fixed shapes that can be recorded, on a GPU: `app.engine.level_0.paged_feed`.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from app.engine.level_0.hypothesis import Condition, Hypothesis
from app.engine.utterance import UtteranceInput
from models.alignment.attention import TextAttention
from models.prefix import Prefix
from models.prefix_cache import PrefixCache, Read, SlotPrefix, one_by_one
from models.stack.attention import attention_statistics
from models.stack.slot_cache import SlotCache
from models.valle import Valle
from samplers.ar.trace import log_prob_of
from samplers.knobs.features import is_on
from samplers.ops.entropix import AttentionStatistics
from samplers.ops.filters import sanitise


class Fed(NamedTuple):
    """What the model says to B hypotheses."""

    own: Tensor  # ``[B, V]`` logits with the text; any in those that are idle, as in the others
    null: Tensor | None  # ``[G, V]`` without it, of those that are guided; None if none is
    attention: AttentionStatistics
    invalid: Tensor  # ``[n]`` bool: whether there was a NaN
    places: Sequence[int]  # whose, of each of the n


class Arrived(NamedTuple):
    """What a step drew, on the host, of B hypotheses."""

    codes: Sequence[int]  # the stop where a row has ended
    logprobs: Sequence[float]  # under the model's own logits, nats; empty if nobody asked
    invalid: frozenset[int]  # those whose logits had NaN


class Feed(ABC):
    """The model over the rows of one KV cache, which has a slot for each condition of a hypothesis.

    Attributes:
        lag: How many steps are queued before the host reads what the first of them drew.
        read: Reads prefixes.
        first_hidden: ``[S, D]``, the stack's output at the end of the prefix in each slot, which
            predicts the first frame.
        first_attention: ``[4, S]`` float32, the attention statistics there; NaN where not computed.
    """

    lag: ClassVar[int] = 0
    cache: SlotCache

    def __init__(self, model: Valle, read: Read, slots: int) -> None:
        self.model, self.read = model, read
        self.first_hidden = model.separator.new_zeros(slots, model.config.width)
        self.first_attention = torch.zeros(4, slots, device=model.separator.device)

    def prefill(
        self, prefixes: PrefixCache, inputs: UtteranceInput, place: int, prefix: Prefix, slot: int
    ) -> Condition:
        """Run a prefix of an utterance, 0 with the text and 1 without, into an empty slot."""
        wanted = SlotPrefix(prefix, slot, (inputs.voice, inputs.null)[place])
        ((hidden, queries),) = prefixes.read([wanted], self.cache, self.read)
        self.first_hidden[slot] = hidden[-1]
        self.first_attention[:, slot] = torch.nan
        if place == 0 and is_on("entropix", inputs.params):
            found = attention_statistics([queries[-1]], [self.cache.keys_of(-1, slot)])
            self.first_attention[:, slot] = found[:, 0]
        start, logprobs = prefix.response_start, list[float]()
        if inputs.kept is not None:
            logprobs = self._run_kept(inputs.kept.codes[:, 0], start, slot)
        return Condition(slot, len(prefix), start, logprobs)

    def copy(self, condition: Condition, slot: int) -> Condition:
        """Copy a prefix to another slot."""
        self.cache.fork(condition.slot, slot)
        for first in (self.first_hidden, self.first_attention.T):
            first[slot] = first[condition.slot]
        return replace(condition, slot=slot)

    @abstractmethod
    def __call__(self, hypotheses: Sequence[Hypothesis]) -> Fed:
        """Feed the newest frame of each hypothesis that is not idle; of at least one."""

    def read_text(self, hypothesis: Hypothesis) -> Tensor | None:
        """Run the frames of a hypothesis that has no row any more again, in its slot.

        Returns:
            How much each frame attends to each of the utterance's symbols, ``[T, S]`` float32 on
            the host; None where the model has no alignment head.
        """
        head, inputs = self.model.config.alignment, hypothesis.inputs
        if head is None or not hypothesis.codes:
            return None
        prefix, own = inputs.ar_prefix(self.model), hypothesis.conditions[0]
        last, text = len(prefix) - 1, inputs.own_text(prefix)
        self.cache.rewind(own.slot, last)
        reading = TextAttention(
            self.model, prefix, prefix[last:], self.cache, own.slot, text=text, head=head
        )
        codes = torch.tensor(hypothesis.codes, device=self.model.separator.device)
        return reading.push(codes)[0].cpu()

    def fetch(self, fed: Fed, codes: Tensor, logprobs: Tensor | None) -> Callable[[], Arrived]:
        """Return what gives ``[B]`` codes, and log-probabilities if asked, once they arrived."""

        def arrived() -> Arrived:
            flags = fed.invalid.tolist()
            invalid = {place for place, flag in zip(fed.places, flags, strict=True) if flag}
            nats = [] if logprobs is None else logprobs.tolist()
            return Arrived(codes.tolist(), nats, frozenset(invalid))

        return arrived

    def draw(self, hypotheses: Sequence[Hypothesis]) -> Callable[[], Arrived] | None:  # noqa: ARG002
        """Feed the hypotheses and draw in one; None where a kernel cannot draw all of them."""
        return None

    def begin(self, hypothesis: Hypothesis) -> None:  # noqa: B027  # pages need it
        """Note that a hypothesis has a row from now on."""

    def end(self, hypothesis: Hypothesis) -> None:  # noqa: B027
        """Note that it has none any more; its slots may be others' next."""

    def moved(self, slot: int) -> None:  # noqa: B027
        """Note that the cache holds something else in a slot."""

    def make_room(self, hypothesis: Hypothesis) -> None:  # noqa: B027
        """Take the memory that a hypothesis needs for the next step, if it draws."""

    def close(self) -> None:  # noqa: B027
        """Free what would hold memory in a circle; the feed is of no more use."""

    def _run_kept(self, codes: Tensor, start: int, slot: int) -> list[float]:
        """Run frames ``[T]`` of an earlier take, all but the last; returns their log-probs."""
        model, device = self.model, self.model.separator.device
        codes, hidden = codes.to(device), self.first_hidden[slot, None]
        if len(codes) > 1:
            positions = torch.arange(start, start + len(codes) - 1, device=device)
            ranks = torch.arange(len(codes) - 1, device=device)
            embedded = model.embed_response(codes[:-1, None], 0)
            after = model.transformer.extend(embedded, positions, self.cache, slot, ranks)
            hidden = torch.cat([hidden, after])
        return log_prob_of(sanitise(model.logits(hidden, 0)), codes).tolist()


_Row = tuple[Hypothesis, Condition]


class SlotFeed(Feed):
    """Steps of the stack over slots, each row of its own length; of rows that the host has read."""

    def __init__(self, model: Valle, slots: int, max_length: int) -> None:
        super().__init__(model, one_by_one(model), slots)
        self.cache = model.new_cache(slots, max_length)

    def __call__(self, hypotheses: Sequence[Hypothesis]) -> Fed:
        """Feed hypotheses; see `Feed`. Of idle ones the logits are zeros."""
        active = [place for place, one in enumerate(hypotheses) if not one.idle]
        guided = [place for place in active if len(hypotheses[place].conditions) > 1]
        rows = [(hypotheses[place], hypotheses[place].conditions[0]) for place in active]
        rows += [(hypotheses[place], hypotheses[place].conditions[1]) for place in guided]
        hidden, attention = self._decode(rows)
        logits = self.model.logits(hidden, 0)
        own, null = logits.tensor_split([len(active)])
        attention = attention[:, : len(active)]
        if len(active) < len(hypotheses):
            own = _spread(own, active, len(hypotheses))
            attention = _spread(attention.T, active, len(hypotheses)).T
            pairs = [place for place, one in enumerate(hypotheses) if len(one.conditions) > 1]
            null = _spread(null, [pairs.index(place) for place in guided], len(pairs))
        return Fed(
            own,
            null if guided else None,
            AttentionStatistics(*attention),
            logits.isnan().any(-1),
            [*active, *guided],
        )

    def _decode(self, rows: Sequence[_Row]) -> tuple[Tensor, Tensor]:
        """Return ``[R, D]`` and ``[4, R]`` of each row's newest frame, or of its prefix's end."""
        fed = [place for place, (hypothesis, _) in enumerate(rows) if hypothesis.codes]
        if len(fed) == len(rows):
            return self._feed(rows)
        slots = [condition.slot for _, condition in rows]
        hidden, attention = self.first_hidden[slots], self.first_attention[:, slots]
        if fed:
            hidden[fed], attention[:, fed] = self._feed([rows[place] for place in fed])
        return hidden, attention

    def _feed(self, rows: Sequence[_Row]) -> tuple[Tensor, Tensor]:
        """Run one step of the stack over the newest frame of each row."""
        stack, device = self.model.transformer, self.model.separator.device
        newest = torch.tensor([one.codes[-1] for one, _ in rows], device=device)
        positions = torch.tensor(
            [condition.start + len(one.codes) - 1 for one, condition in rows], device=device
        )
        slots = [condition.slot for _, condition in rows]
        arguments = (self.model.embed_response(newest[:, None], 0), positions, self.cache, slots)
        attention = torch.full((4, len(rows)), torch.nan, device=device)
        attending = [
            place
            for place, (one, condition) in enumerate(rows)
            if one.wants_attention and condition is one.conditions[0]
        ]
        if not attending:
            return stack.step(*arguments), attention
        hidden, attention[:, attending] = stack.step_with_attention(*arguments, rows=attending)
        return hidden, attention


def _spread(rows: Tensor, places: Sequence[int], count: int) -> Tensor:
    """Return ``[count, n]`` with rows in some places and zeros in the others."""
    index = torch.tensor(places, dtype=torch.int64, device=rows.device)
    return rows.new_zeros(count, rows.shape[1]).index_copy_(0, index, rows)
