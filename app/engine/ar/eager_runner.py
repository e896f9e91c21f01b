"""Level 0 over slots, on a CPU: each row of its own length, its step read at once."""

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from app.engine.ar.model_runner import ArModelRunner, Fetch, ModelOutput, SampledTokens
from app.engine.ar.sequence import ArSequence, GuidanceBranch
from models.prefix_cache import one_by_one
from models.valle import Valle
from samplers.ar.state import null_place
from samplers.plain import RESULTS

_Row = tuple[ArSequence, GuidanceBranch]


class _Decoded(NamedTuple):
    """What the model says to the rows of a step: of A sequences, then without text of G of them."""

    active: Sequence[int]  # places of those that sample
    guided: Sequence[int]  # and of those of them that are guided
    slots: Sequence[int]  # of each row; behind all slots where it is predicted
    logits: Tensor  # ``[A + G, V]``
    attention: Tensor  # ``[4, A]``
    text: Tensor | None  # ``[A, W]``, as `ModelOutput.text`


class EagerRunner(ArModelRunner):
    """Steps of the stack over slots; only rows that sample are fed."""

    def __init__(self, model: Valle, slots: int, max_length: int) -> None:
        super().__init__(model, model.new_cache(slots, max_length), partial(one_by_one, model))
        from samplers import compiled  # needs numba, absent where torch is alone

        self._sample = compiled.sample
        # ``[S, V]`` of the newest step by slots, behind them what is predicted of the null
        # condition; and ``[S, RESULTS]`` what was sampled
        places = slots if model.null_head is None else 2 * slots
        self._logits = torch.zeros(places, self.sampler.vocab_size)
        self._results = torch.zeros(slots, RESULTS, dtype=torch.float64)

    def feed(self, sequences: Sequence[ArSequence]) -> ModelOutput:
        """Feed sequences; see `ArModelRunner`. The logits of idle ones are another's."""
        fed = self._decoded(sequences)
        own, null = fed.logits.tensor_split([len(fed.active)])
        attention = fed.attention
        text = fed.text
        if len(fed.active) < len(sequences):
            index = _rows_of(fed.active, range(len(sequences)))
            own = own[index]
            attention = attention[:, index]
            text = None if text is None else text[index]
            pairs = [place for place, one in enumerate(sequences) if one.is_guided]
            null = null[_rows_of(fed.guided, pairs)] if fed.guided else null
        return ModelOutput(
            own,
            null if fed.guided else None,
            attention.T,
            fed.logits.isnan().any(-1),
            [*fed.active, *fed.guided],
            text,
            self._plain_codes(sequences, fed),
        )

    def sample(self, sequences: Sequence[ArSequence]) -> Fetch | None:
        """Feed and sample at once, where all are plain; see `ArModelRunner`."""
        if not self._plain.issuperset(sequences):
            return None
        fed = self._decoded(sequences)
        table = self.table
        slots = fed.slots[: len(fed.active)]
        results = self._results_of(slots, fed, table.lengths, table.stopped)
        table.note_sampled(slots)
        codes = [self.model.config.stop_token] * len(sequences)
        logprobs = [0.0] * len(sequences)
        invalid = set[int]()
        for place, (code, logprob, is_invalid) in zip(fed.active, results, strict=True):
            codes[place] = int(code)
            logprobs[place] = logprob
            if is_invalid:
                invalid.add(place)
        text = fed.text
        if text is not None and len(fed.active) < len(sequences):
            text = text[_rows_of(fed.active, range(len(sequences)))]
        arrived = SampledTokens(
            codes, logprobs, frozenset(invalid), None if text is None else text.numpy()
        )
        return lambda: [arrived]

    def _plain_codes(self, sequences: Sequence[ArSequence], fed: _Decoded) -> Tensor | None:
        """Return the codes of plain rows, as `ModelOutput.known_codes`; appends none."""
        rows = {
            place: row for row, place in enumerate(fed.active) if sequences[place] in self._plain
        }
        if not rows:
            return None
        # So that a row has the same codes among others as alone. The sampler appends them.
        table = self.table
        state = table.lengths.clone(), table.stopped.clone()
        results = self._results_of([fed.slots[row] for row in rows.values()], fed, *state)
        codes = torch.full((len(sequences),), -1)
        for place, (code, *_) in zip(rows, results, strict=True):
            codes[place] = int(code)
        return codes

    def _results_of(
        self, slots: Sequence[int], fed: _Decoded, lengths: Tensor, stopped: Tensor
    ) -> list[list[float]]:
        """Sample the plain rows in some slots; returns `RESULTS` of each. The state changes."""
        table = self.table
        self._logits.numpy()[fed.slots] = fed.logits.numpy()
        table.activate(slots)
        self._sample(
            self._logits, table.numbers, table.avoid, self.plain, table.codes, lengths, stopped,
            self._results, self.model.config.stop_token,
        )  # fmt: skip
        results: list[list[float]] = self._results.numpy()[slots].tolist()
        return results

    def _decoded(self, sequences: Sequence[ArSequence]) -> _Decoded:
        """Run the newest frame of each sequence that is not idle."""
        active = list[int]()
        guided = list[int]()
        paired = list[int]()
        rows = list[_Row]()
        null_rows = list[_Row]()
        for place, sequence in enumerate(sequences):
            if sequence.idle:
                continue
            active.append(place)
            rows.append((sequence, sequence.conditions[0]))
            if sequence.is_guided:
                guided.append(place)
            if len(sequence.conditions) > 1:
                paired.append(place)
                null_rows.append((sequence, sequence.conditions[1]))
        rows += null_rows
        slots = [branch.slot for _, branch in rows]
        states, attention, text = self._decode(rows, slots)
        in_all = len(self.table.held)
        null = [null_place((one := sequences[place]).partner, one.slot, in_all) for place in guided]
        return _Decoded(
            active,
            guided,
            [*slots[: len(active)], *null],
            self._logits_of(states, active, paired, guided),
            attention[:, : len(active)],
            None if text is None else text[: len(active)],
        )

    def _logits_of(
        self, states: Tensor, active: Sequence[int], paired: Sequence[int], guided: Sequence[int]
    ) -> Tensor:
        """Return ``[A + G, V]`` of the places of `_Decoded`, of which some have a null row."""
        if len(paired) == len(guided):
            return self.model.logits(states[:, : self.model.config.width], 0)
        if not paired and len(guided) == len(active):
            return self.model.logits_with_null(states, slice(None))
        predicted = sorted({*guided}.difference(paired))
        logits = self.model.logits_with_null(states, _rows_of(active, predicted))
        if not paired:
            return logits
        behind = dict(zip([*paired, *predicted], range(len(active), len(logits)), strict=True))
        return logits[[*range(len(active)), *(behind[place] for place in guided)]]

    def _decode(
        self, rows: Sequence[_Row], slots: Sequence[int]
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Return states, ``[4, R]``, ``[R, W]`` of each newest frame, or of its prefix."""
        fed = [place for place, (sequence, _) in enumerate(rows) if sequence.codes]
        if len(fed) == len(rows):
            hidden, attention, queries = self._step(rows, slots)
        else:
            hidden = self.first_hidden[slots]
            attention = self.first_attention[:, slots]
            queries = self.first_query[slots]
            if fed:
                hidden[fed], attention[:, fed], queries[fed] = self._step(
                    [rows[place] for place in fed], [slots[place] for place in fed]
                )
        if not self.text_width:
            return hidden, attention, None
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

    def _step(self, rows: Sequence[_Row], slots: Sequence[int]) -> tuple[Tensor, Tensor, Tensor]:
        """Return states, ``[4, R]``, ``[R, head_dim]`` of each newest frame; see `_decode`."""
        stack = self.model.stack(0)
        device = self.model.separator.device
        newest = list[int]()
        positions = list[int]()
        for sequence, branch in rows:
            newest.append(sequence.codes[-1])
            positions.append(branch.start + len(sequence.codes) - 1)
        embedded = self.model.embed_response(torch.tensor(newest, device=device)[:, None], 0)
        places = torch.tensor(positions, device=device)
        hidden, queries = stack.step(embedded, places, self.cache, slots, self.taps)
        attention = torch.full((4, len(rows)), torch.nan, device=device)
        for place, (one, condition) in enumerate(rows):
            if one.wants_attention and condition is one.conditions[0]:
                attention[:, place] = self._statistics(queries[0, place], condition.slot)
        return hidden, attention, self._aligned(queries)


def _rows_of(places: Sequence[int], wanted: Sequence[int]) -> list[int]:
    """Return which row is that of each wanted place; the first where it has none."""
    row_of = {place: row for row, place in enumerate(places)}
    return [row_of.get(place, 0) for place in wanted]
