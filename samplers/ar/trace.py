"""The trace: what a step read, did and drew, for requests that ask for it.

A record holds device tensors, so that tracing never waits for the device; `columns` brings an
utterance to the host when it is over.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from samplers.ops.entropix import AttentionStatistics, Decision, moments
from samplers.processors.draw import DrawResult
from samplers.processors.scores import Scores


@dataclass(frozen=True)
class Record:
    """One step of a batch; every field is ``(B,)``.

    Attributes:
        alive: Whether the row had not ended before; the fields of one that had mean nothing.
        frame: How many codes the row held.
        attempt: How often the row had been rewound.
        code: The code drawn; the stop included.
        logprob: Its log-probability under the model's own logits, at temperature 1, nats; with
            guidance, under the conditional ones.
        guided_logprob: The same under the logits that entered the sampler, guided or not.
        score: Its log-probability under the scores that it was drawn from, nats; 0 where greedy.
            With entropix's candidates, that of one draw.
        entropy_bits: Of the scores after bans and penalties, before temperature and filters.
        varentropy_bits2: The variance of that surprise.
        changed: How many logits a bias or a penalty changed.
        banned: How many codes a ban excluded.
        kept: How many codes could be drawn.
        stop_rank: How many codes were likelier than the stop, after bans and penalties.
        stop_probability: The stop's probability, after bans and penalties.
        temperature: The divisor of the logits; 0 where greedy.
        mirostat_mu: The surprise that mirostat allows next, bits; NaN without mirostat.
        repeated: Whether repetition-aware sampling drew a second time.
        entropix_state: Of `samplers.ops.entropix.State`; `OFF` without entropix.
        attention_entropy_bits: Of `samplers.ops.entropix.AttentionStatistics`, as the next three;
            NaN where the statistics were not computed.
        attention_varentropy_bits2: See there.
        attention_agreement: See there.
        attention_strength: See there.
        paused: Whether entropix left only codes of silence.
        branched: Whether entropix branched here; the rest is of the hypothesis that was kept.
        saw_nan: Whether the model gave a NaN.
        saw_inf: Whether the model gave +infinity.
        all_masked: Whether nothing could be drawn, so that the row was ended.
    """

    alive: Tensor
    frame: Tensor
    attempt: Tensor
    code: Tensor
    logprob: Tensor
    guided_logprob: Tensor
    score: Tensor
    entropy_bits: Tensor
    varentropy_bits2: Tensor
    changed: Tensor
    banned: Tensor
    kept: Tensor
    stop_rank: Tensor
    stop_probability: Tensor
    temperature: Tensor
    mirostat_mu: Tensor
    repeated: Tensor
    entropix_state: Tensor
    attention_entropy_bits: Tensor
    attention_varentropy_bits2: Tensor
    attention_agreement: Tensor
    attention_strength: Tensor
    paused: Tensor
    branched: Tensor
    saw_nan: Tensor
    saw_inf: Tensor
    all_masked: Tensor


@dataclass
class Trace:
    """The records of the steps that it was passed to."""

    records: list[Record] = field(default_factory=list)

    def columns(self, row: int) -> dict[str, NDArray[Any]]:
        """Return the columns of an utterance that had this row at every step; see `columns`."""
        return columns((record, row) for record in self.records)

    def row(self, row: int) -> list[dict[str, Any]]:
        """Return the same as one dictionary a token, in plain numbers."""
        return entries(self.columns(row))


def columns(tokens: Iterable[tuple[Record, int]]) -> dict[str, NDArray[Any]]:
    """Copy the records of an utterance to the host, one array ``[N]`` a field of `Record`.

    Waits for the device. Tokens of a row that had ended are left out.

    Args:
        tokens: The record of each step, and the utterance's row in it.
    """
    tokens = list(tokens)
    table = {
        column.name: _values([getattr(record, column.name)[row] for record, row in tokens])
        for column in fields(Record)
    }
    alive = table.pop("alive").astype(bool)
    return {name: values[alive] for name, values in table.items()}


def entries(columns: Mapping[str, NDArray[Any]]) -> list[dict[str, Any]]:
    """Return columns ``[N]`` as N dictionaries of plain numbers."""
    values = [column.tolist() for column in columns.values()]
    return [dict(zip(columns, entry, strict=True)) for entry in zip(*values, strict=True)]


def _values(column: list[Tensor]) -> NDArray[Any]:
    return torch.stack(column).cpu().numpy() if column else np.zeros(0)


def record(
    logits: Tensor,
    clean: Tensor,
    penalised: Tensor,
    scores: Scores,
    drawn: DrawResult,
    codes: Tensor,
    *,
    stop_token: int,
    alive: Tensor,
    empty: Tensor,
) -> Record:
    """Return the record of a step.

    Args:
        logits: ``(B, V)``, as given.
        clean: ``(B, V)`` float32, without NaN and infinity.
        penalised: ``(B, V)`` float32, after bans and penalties.
        scores: After all processors.
        drawn: The draw.
        codes: ``(B,)`` int64, the codes that the step returns.
        stop_token: The id of the stop.
        alive: ``(B,)`` bool, rows that had not ended before.
        empty: ``(B,)`` bool, rows from which nothing could be drawn.

    Returns:
        The record; its `logprob` is the same as its `guided_logprob`.
    """
    never = torch.zeros_like(empty)
    temperature = (scores.divisor if scores.divisor is not None else scores.ones())[:, 0]
    logprob = log_prob_of(clean, codes)
    score = log_prob_of(drawn.logits, codes)
    mu = scores.ones() * torch.nan
    if drawn.mu is not None and drawn.mirostat is not None:
        mu = torch.where(drawn.mirostat, drawn.mu, mu)
    return Record(
        alive=alive,
        frame=scores.lengths[:, 0].clone(),
        attempt=scores.attempts[:, 0].clone(),
        code=codes,
        logprob=logprob,
        guided_logprob=logprob,
        score=torch.where(temperature <= 0, torch.zeros_like(score), score),
        **penalty_fields(clean, penalised, stop_token),
        kept=(drawn.logits > -torch.inf).sum(-1),
        temperature=temperature,
        mirostat_mu=mu[:, 0],
        repeated=drawn.repeated[:, 0] if drawn.repeated is not None else never,
        **entropix_fields(scores, codes != stop_token),
        saw_nan=logits.isnan().any(-1),
        saw_inf=(logits == torch.inf).any(-1),
        all_masked=empty,
    )


def log_prob_of(logits: Tensor, codes: Tensor) -> Tensor:
    """Return the log-probability of ``(B,)`` codes under ``(B, V)`` logits, nats; NaN is -inf."""
    chosen = logits.log_softmax(-1).gather(-1, codes[:, None])[:, 0]
    return chosen.nan_to_num(nan=-torch.inf)


def penalty_fields(clean: Tensor, penalised: Tensor, stop_token: int) -> dict[str, Tensor]:
    """Return the fields of `Record` that say what bans and penalties did, each ``(B,)``.

    Args:
        clean: ``(B, V)`` float32, the logits without NaN and infinity.
        penalised: ``(B, V)`` float32, after bans and penalties.
        stop_token: The id of the stop.
    """
    entropy, varentropy = moments(penalised)
    stop = penalised[:, stop_token, None]
    banned = (penalised == -torch.inf) & (clean > -torch.inf)
    return {
        "entropy_bits": entropy[:, 0],
        "varentropy_bits2": varentropy[:, 0],
        "changed": ((penalised != clean) & ~banned).sum(-1),
        "banned": banned.sum(-1),
        "stop_rank": (penalised > stop).sum(-1),
        "stop_probability": penalised.softmax(-1)[:, stop_token],
    }


def rescored(
    entry: Record, codes: Tensor, own: Tensor, guided: Tensor, drawn_from: Tensor
) -> Record:
    """Return the record of a step as it would be with other codes.

    Args:
        entry: The record of the step.
        codes: ``(B,)`` int64; the fields of a row with -1 mean nothing.
        own: ``(B, V)``, the model's own logits.
        guided: ``(B, V)``, those that entered the sampler.
        drawn_from: ``(B, V)``, the scores that were drawn from.
    """
    codes = codes.clamp(min=0)
    return replace(
        entry,
        code=codes,
        logprob=log_prob_of(own, codes),
        guided_logprob=log_prob_of(guided, codes),
        score=log_prob_of(drawn_from, codes),
    )


def entropix_fields(scores: Scores, goes_on: Tensor) -> dict[str, Tensor]:
    """Return the fields of `Record` that say what entropix read and decided, each ``(B,)``.

    Args:
        scores: After all processors.
        goes_on: ``(B,)`` bool, rows that did not end in this step.
    """
    nothing = torch.full_like(scores.logits[:, 0], torch.nan)
    attention = scores.attention or AttentionStatistics(nothing, nothing, nothing, nothing)
    decision = scores.decision or Decision.none(len(nothing), nothing.device)
    return {
        "entropix_state": decision.state[:, 0],
        "attention_entropy_bits": attention.entropy,
        "attention_varentropy_bits2": attention.varentropy,
        "attention_agreement": attention.agreement,
        "attention_strength": attention.strength,
        "paused": decision.paused[:, 0],
        "branched": decision.branched[:, 0] & goes_on,
    }
