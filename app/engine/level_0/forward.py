"""What the AR reads: prefixes into slots, and the newest frame of every line of a step."""

from collections.abc import Sequence

import torch

from app.engine.level_0.hypothesis import Condition, StackOutput, StackRow, as_tensor
from app.engine.utterance import UtteranceInput
from models.prefix import Prefix
from models.prefix_cache import PrefixCache
from models.stack.slot_cache import SlotCache
from models.valle import Valle
from samplers.knobs.features import is_on


class ForwardPass:
    """Reads into the slots of one cache."""

    def __init__(self, model: Valle, prefixes: PrefixCache, cache: SlotCache) -> None:
        """Read nothing yet.

        Args:
            model: On the device to use.
            prefixes: Where what prefixes share comes from.
            cache: Whose slots are read into.
        """
        self._model, self._prefixes, self._cache = model, prefixes, cache

    def begin(self, inputs: UtteranceInput, place: int, prefix: Prefix, slot: int) -> Condition:
        """Read a prefix of a piece into a slot.

        Args:
            inputs: What is spoken.
            place: 0 if the prefix has its words, 1 if it has none.
            prefix: Which.
            slot: An empty one.
        """
        stack, key = self._model.transformer, (inputs.voice, inputs.null)[place]
        rest = self._prefixes.begin(prefix, 0, self._cache, slot, key)
        ranks = self._model.ranks(0, rest.blocks)
        read = (rest.embeddings, rest.positions, self._cache, slot, ranks)
        if place == 0 and is_on("entropix", inputs.params):
            hidden, attention = stack.extend_with_attention(*read)
            first = StackOutput(hidden[-1:], as_tensor(attention))
        else:
            first = StackOutput.blind(stack.extend(*read)[-1:])
        return Condition(slot, len(prefix), prefix.response_start, first)

    def read(self, lines: Sequence[StackRow]) -> StackOutput:
        """Return what the next frames are predicted from, the newest of every line read."""
        fed = [place for place, line in enumerate(lines) if line.take.codes]
        if len(fed) == len(lines):
            return self._feed(lines)
        first = [line.condition.first for line in lines]
        hidden = torch.cat([seen.hidden for seen in first])
        attention = torch.cat([seen.attention for seen in first], 1)
        if fed:
            newer = self._feed([lines[place] for place in fed])
            index = torch.tensor(fed, device=hidden.device)
            hidden.index_copy_(0, index, newer.hidden)
            attention.index_copy_(1, index, newer.attention)
        return StackOutput(hidden, attention)

    def _feed(self, lines: Sequence[StackRow]) -> StackOutput:
        """Feed the newest frame of every line, one each."""
        stack, device = self._model.transformer, self._model.separator.device
        newest = torch.tensor([line.take.codes[-1] for line in lines], device=device)
        positions = torch.tensor([line.position for line in lines], device=device)
        slots = [line.condition.slot for line in lines]
        read = (self._model.embed_response(newest[:, None], 0), positions, self._cache, slots)
        looking = [place for place, line in enumerate(lines) if line.looks]
        if not looking:
            return StackOutput.blind(stack.step(*read))
        hidden, found = stack.step_with_attention(*read, rows=looking)
        seen = StackOutput.blind(hidden)
        index = torch.tensor(looking, device=device)
        seen.attention.index_copy_(1, index, as_tensor(found))
        return seen
