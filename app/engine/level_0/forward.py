"""The transformer's forward passes of level 0: prefill of a prefix, and one decoding step."""

from collections.abc import Sequence

import torch
from torch import Tensor

from app.engine.level_0.hypothesis import Condition, Hypothesis, StackOutput, StackRow, as_tensor
from app.engine.utterance import UtteranceInput
from models.prefix import Prefix
from models.prefix_cache import PrefixCache
from models.stack.slot_cache import SlotCache
from models.valle import Valle
from samplers.ar.trace import log_prob_of
from samplers.knobs.features import is_on
from samplers.knobs.params import SamplingParams
from samplers.ops.entropix import AttentionStatistics
from samplers.ops.filters import sanitise
from samplers.ops.guidance import guide


class ForwardPass:
    """Runs the stack over the slots of one KV cache."""

    def __init__(self, model: Valle, prefixes: PrefixCache, cache: SlotCache) -> None:
        """Begin without a pass.

        Args:
            model: On the device to use.
            prefixes: Keys and values of what prefixes have in common.
            cache: Is read and extended.
        """
        self._model, self._prefixes, self._cache = model, prefixes, cache

    def prefill(self, inputs: UtteranceInput, place: int, prefix: Prefix, slot: int) -> Condition:
        """Run a prefix of an utterance into a slot.

        Args:
            inputs: The utterance.
            place: 0 if the prefix has the text, 1 if it is the unconditional one.
            prefix: The prefix.
            slot: Must be empty.
        """
        stack, key = self._model.transformer, (inputs.voice, inputs.null)[place]
        rest = self._prefixes.begin(prefix, 0, self._cache, slot, key)
        ranks = self._model.ranks(0, rest.blocks)
        arguments = (rest.embeddings, rest.positions, self._cache, slot, ranks)
        if place == 0 and is_on("entropix", inputs.params):
            hidden, attention = stack.extend_with_attention(*arguments)
            first = StackOutput(hidden[-1:], as_tensor(attention))
        else:
            first = StackOutput.without_attention(stack.extend(*arguments)[-1:])
        start, logprobs = prefix.response_start, list[float]()
        if inputs.kept is not None:
            logprobs = self._prefill_kept(inputs.kept.codes[:, 0], start, slot, first)
        return Condition(slot, len(prefix), start, first, logprobs)

    def _prefill_kept(
        self, codes: Tensor, start: int, slot: int, first: StackOutput
    ) -> list[float]:
        """Run frames that an earlier take has drawn into a slot: all but the last, which is fed.

        Args:
            codes: ``[T]`` int64; T >= 1.
            start: Position id of the first.
            slot: Holds the prefix.
            first: The output at its end.

        Returns:
            The log-probability of each frame in nats.
        """
        model, device = self._model, self._model.separator.device
        codes = codes.to(device)
        hidden = first.hidden
        if len(codes) > 1:
            positions = torch.arange(start, start + len(codes) - 1, device=device)
            ranks = torch.arange(len(codes) - 1, device=device)
            embedded = model.embed_response(codes[:-1, None], 0)
            after = model.transformer.extend(embedded, positions, self._cache, slot, ranks)
            hidden = torch.cat([hidden, after])
        return log_prob_of(sanitise(model.logits(hidden, 0)), codes).tolist()

    def logits(
        self, hypotheses: Sequence[Hypothesis]
    ) -> tuple[Tensor, Tensor, AttentionStatistics, set[Hypothesis]]:
        """Run the model for the next code of every row that is not idle.

        Returns:
            The model's logits ``[B, V]`` float32 with the text, the same with guidance applied, the
            attention statistics, and the hypotheses whose logits have NaN. Idle rows are zeros.
        """
        active = [row for row, one in enumerate(hypotheses) if not one.idle]
        rows = [StackRow(hypotheses[row], hypotheses[row].conditions[0]) for row in active]
        guided = [place for place, row in enumerate(rows) if len(row.hypothesis.conditions) > 1]
        rows += [
            StackRow(rows[place].hypothesis, rows[place].hypothesis.conditions[1])
            for place in guided
        ]
        output = self._decode(rows)
        logits = self._model.logits(output.hidden, 0)
        has_nan = logits.isnan().any(-1).tolist()
        invalid = {row.hypothesis for row, nan in zip(rows, has_nan, strict=True) if nan}
        own, null = logits.tensor_split([len(active)])
        params = [row.hypothesis.inputs.params for row in rows[: len(active)]]
        moved = _guide(params, guided, own, null)
        attention = output.attention[:, : len(active)]
        if len(active) < len(hypotheses):
            index = torch.tensor(active, device=own.device)
            own, moved = (
                table.new_zeros(len(hypotheses), table.shape[1]).index_copy_(0, index, table)
                for table in (own, moved)
            )
            attention = attention.new_zeros(len(attention), len(hypotheses)).index_copy_(
                1, index, attention
            )
        return own, moved, AttentionStatistics(*attention.unbind()), invalid

    def _decode(self, rows: Sequence[StackRow]) -> StackOutput:
        """Feed the newest frame of each row, and return what predicts the next one.

        A row without frames is not fed: its prefix's last output predicts the first frame.

        Args:
            rows: B of them.
        """
        fed = [place for place, row in enumerate(rows) if row.hypothesis.codes]
        if len(fed) == len(rows):
            return self._feed(rows)
        first = [row.condition.first for row in rows]
        hidden = torch.cat([output.hidden for output in first])
        attention = torch.cat([output.attention for output in first], 1)
        if fed:
            newer = self._feed([rows[place] for place in fed])
            index = torch.tensor(fed, device=hidden.device)
            hidden.index_copy_(0, index, newer.hidden)
            attention.index_copy_(1, index, newer.attention)
        return StackOutput(hidden, attention)

    def _feed(self, rows: Sequence[StackRow]) -> StackOutput:
        """Run one step of the stack over the newest frame of each row."""
        stack, device = self._model.transformer, self._model.separator.device
        newest = torch.tensor([row.hypothesis.codes[-1] for row in rows], device=device)
        positions = torch.tensor([row.position for row in rows], device=device)
        slots = [row.condition.slot for row in rows]
        arguments = (self._model.embed_response(newest[:, None], 0), positions, self._cache, slots)
        attending = [place for place, row in enumerate(rows) if row.with_attention]
        if not attending:
            return StackOutput.without_attention(stack.step(*arguments))
        hidden, attention = stack.step_with_attention(*arguments, rows=attending)
        output = StackOutput.without_attention(hidden)
        index = torch.tensor(attending, device=device)
        output.attention.index_copy_(1, index, as_tensor(attention))
        return output


def _guide(
    params: Sequence[SamplingParams], guided: Sequence[int], own: Tensor, null: Tensor
) -> Tensor:
    """Apply classifier-free guidance.

    Args:
        params: Of every row.
        guided: The rows that are guided.
        own: ``[B, V]`` logits with the text.
        null: ``[G, V]`` logits without, one a guided row.

    Returns:
        ``[B, V]``.
    """
    if not guided:
        return own
    knobs = [params[row] for row in guided]
    strength = own.new_tensor([one.cfg_strength for one in knobs])
    rescale = own.new_tensor([one.cfg_rescale for one in knobs])
    index = torch.tensor(guided, device=own.device)
    with_text = own.index_select(0, index)
    moved = guide(with_text[:, None], null[:, None], strength, rescale)[:, 0]
    return own.index_copy(0, index, moved)
