"""Level 0 over slots, on a CPU: each row of its own length, its step read at once."""

from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor

from app.engine.ar.model_runner import ArModelRunner, ModelOutput
from app.engine.ar.sequence import ArSequence, GuidanceBranch
from models.prefix_cache import one_by_one
from models.valle import Valle

_Row = tuple[ArSequence, GuidanceBranch]


class EagerRunner(ArModelRunner):
    """Steps of the stack over slots; only rows that sample are fed."""

    def __init__(self, model: Valle, slots: int, max_length: int) -> None:
        super().__init__(model, model.new_cache(slots, max_length), partial(one_by_one, model))

    def feed(self, sequences: Sequence[ArSequence]) -> ModelOutput:
        """Feed sequences; see `ArModelRunner`. The logits of idle ones are another's."""
        active = [place for place, one in enumerate(sequences) if not one.idle]
        guided = [place for place in active if len(sequences[place].conditions) > 1]
        rows = [(sequences[place], sequences[place].conditions[0]) for place in active]
        rows += [(sequences[place], sequences[place].conditions[1]) for place in guided]
        hidden, attention, text = self._decode(rows)
        logits = self.model.logits(hidden, 0)
        own, null = logits.tensor_split([len(active)])
        attention = attention[:, : len(active)]
        text = None if text is None else text[: len(active)]
        if len(active) < len(sequences):
            row_of = {place: row for row, place in enumerate(active)}
            index = [row_of.get(place, 0) for place in range(len(sequences))]
            own = own[index]
            attention = attention[:, index]
            text = None if text is None else text[index]
            pairs = [place for place, one in enumerate(sequences) if len(one.conditions) > 1]
            row_of = {place: row for row, place in enumerate(guided)}
            null = null[[row_of.get(place, 0) for place in pairs]] if guided else null
        return ModelOutput(
            own,
            null if guided else None,
            attention.T,
            logits.isnan().any(-1),
            [*active, *guided],
            text,
        )

    def _decode(self, rows: Sequence[_Row]) -> tuple[Tensor, Tensor, Tensor | None]:
        """Return ``[R, D]``, ``[4, R]``, ``[R, W]`` of each newest frame, or of its prefix."""
        fed = [place for place, (sequence, _) in enumerate(rows) if sequence.codes]
        slots = [condition.slot for _, condition in rows]
        if len(fed) == len(rows):
            hidden, attention, queries = self._step(rows)
        else:
            hidden = self.first_hidden[slots]
            attention = self.first_attention[:, slots]
            queries = self.first_query[slots]
            if fed:
                hidden[fed], attention[:, fed], queries[fed] = self._step([
                    rows[place] for place in fed
                ])
        followed = [
            place
            for place, (one, condition) in enumerate(rows)
            if one.progress is not None and condition is one.conditions[0]
        ]
        if not followed:
            return hidden, attention, None
        text = self.text_bias.new_zeros(len(rows), self.text_width)
        for place in followed:
            text[place] = self._text_attention(queries[place], slots[place])
        return hidden, attention, text

    def _step(self, rows: Sequence[_Row]) -> tuple[Tensor, Tensor, Tensor]:
        """Return ``[R, D]``, ``[4, R]``, ``[R, head_dim]`` of each newest frame; see `_decode`."""
        stack = self.model.stack(0)
        device = self.model.separator.device
        newest = torch.tensor([one.codes[-1] for one, _ in rows], device=device)
        positions = torch.tensor(
            [condition.start + len(one.codes) - 1 for one, condition in rows], device=device
        )
        slots = [condition.slot for _, condition in rows]
        embedded = self.model.embed_response(newest[:, None], 0)
        hidden, queries = stack.step(embedded, positions, self.cache, slots, self.layers)
        attention = torch.full((4, len(rows)), torch.nan, device=device)
        for place, (one, condition) in enumerate(rows):
            if one.wants_attention and condition is one.conditions[0]:
                attention[:, place] = self._statistics(queries[0, place], condition.slot)
        return hidden, attention, self._aligned(queries)
