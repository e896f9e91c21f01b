"""What was seen and done at each token, for those who ask.

A record is made of device tensors, so that tracing makes nobody wait; `Trace.columns` brings a row
to the host when the utterance is over.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from samplers.ops.entropix import AttentionStatistics, Decision, moments
from samplers.processors.draw import Drawn
from samplers.processors.scores import Scores


@dataclass(frozen=True)
class Record:
    """One step of a batch; every field is ``(B,)``.

    Attributes:
        alive: Whether the row had not ended before; what a row that had ended says means nothing.
        frame: How many codes the row held.
        attempt: How often the row had been rewound.
        code: What was drawn; the stop included.
        logprob: Its log-probability under the model's own logits, at temperature 1, nats; with
            guidance, under those that heard the words.
        guided_logprob: The same under the logits that entered the chain, guided or not.
        score: Its log-probability under the scores that it was drawn from, nats; 0 where greedy.
            Of entropix's candidates, that of one draw.
        entropy_bits: Of the scores after bans and penalties, before temperature and filters.
        varentropy_bits2: The variance of that surprise.
        changed: How many codes a bias or a penalty moved.
        banned: How many codes a ban took away.
        kept: How many codes could be drawn.
        stop_rank: How many codes were likelier than the stop, after bans and penalties.
        stop_probability: The stop's probability there.
        temperature: What the logits were divided by; 0 where greedy.
        mirostat_mu: The surprise that mirostat allowed next, bits; NaN without mirostat.
        repeated: Whether repetition-aware sampling drew anew.
        entropix_state: Of `samplers.ops.entropix.State`; `OFF` without entropix.
        attention_entropy_bits: Of `samplers.ops.entropix.AttentionStatistics`, as the next three;
            NaN where the model was not asked.
        attention_varentropy_bits2: See there.
        attention_agreement: See there.
        attention_strength: See there.
        paused: Whether entropix left nothing but silence.
        branched: Whether entropix went on from here in several ways, of which this was kept.
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
    """Collects the records of the steps it is passed to."""

    records: list[Record] = field(default_factory=list)

    def columns(self, row: int) -> dict[str, NDArray[Any]]:
        """What happened to one row: as of `columns`, if it was that row at every step."""
        return columns((record, row) for record in self.records)

    def row(self, row: int) -> list[dict[str, Any]]:
        """`columns` as one entry a token, in plain numbers."""
        return entries(self.columns(row))


def columns(tokens: Iterable[tuple[Record, int]]) -> dict[str, NDArray[Any]]:
    """Bring what happened to an utterance to the host: ``[N]`` a field of `Record`.

    Waits for the device. Only tokens of a row that had not ended are in it.

    Args:
        tokens: The record of each step, and which row of it was the utterance's.
    """
    tokens = list(tokens)
    table = {
        column.name: _values([getattr(record, column.name)[row] for record, row in tokens])
        for column in fields(Record)
    }
    alive = table.pop("alive").astype(bool)
    return {name: values[alive] for name, values in table.items()}


def entries(columns: Mapping[str, NDArray[Any]]) -> list[dict[str, Any]]:
    """Turn columns ``[N]`` into N entries of plain numbers."""
    values = [column.tolist() for column in columns.values()]
    return [dict(zip(columns, entry, strict=True)) for entry in zip(*values, strict=True)]


def _values(column: list[Tensor]) -> NDArray[Any]:
    return torch.stack(column).cpu().numpy() if column else np.zeros(0)


def record(
    logits: Tensor,
    clean: Tensor,
    weighed: Tensor,
    scores: Scores,
    drawn: Drawn,
    codes: Tensor,
    *,
    stop_token: int,
    alive: Tensor,
    empty: Tensor,
) -> Record:
    """Note what was seen and done in a step.

    Args:
        logits: ``(B, V)``, as the model gave them.
        clean: ``(B, V)`` float32, without NaN and infinity.
        weighed: ``(B, V)`` float32, after bans and penalties.
        scores: After all steps.
        drawn: What came of the draw.
        codes: ``(B,)`` int64, what came of it in the end.
        stop_token: The id of the stop.
        alive: ``(B,)`` bool, rows that had not ended before.
        empty: ``(B,)`` bool, rows from which nothing could be drawn.

    Returns:
        The record, with the same log-probability under the model's own and the guided logits.
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
        **weigh(clean, weighed, stop_token),
        kept=(drawn.logits > -torch.inf).sum(-1),
        temperature=temperature,
        mirostat_mu=mu[:, 0],
        repeated=drawn.repeated[:, 0] if drawn.repeated is not None else never,
        **consider(scores, codes != stop_token),
        saw_nan=logits.isnan().any(-1),
        saw_inf=(logits == torch.inf).any(-1),
        all_masked=empty,
    )


def log_prob_of(logits: Tensor, codes: Tensor) -> Tensor:
    """Log-probability of ``(B,)`` codes under ``(B, V)`` logits, nats; -inf if it is not there."""
    chosen = logits.log_softmax(-1).gather(-1, codes[:, None])[:, 0]
    return chosen.nan_to_num(nan=-torch.inf)


def weigh(clean: Tensor, weighed: Tensor, stop_token: int) -> dict[str, Tensor]:
    """What bans and penalties did.

    Args:
        clean: ``(B, V)`` float32, the model's logits without NaN and infinity.
        weighed: ``(B, V)`` float32, after bans and penalties.
        stop_token: The id of the stop.

    Returns:
        Fields of `Record`, each ``(B,)``.
    """
    entropy, varentropy = moments(weighed)
    stop = weighed[:, stop_token, None]
    gone = (weighed == -torch.inf) & (clean > -torch.inf)
    return {
        "entropy_bits": entropy[:, 0],
        "varentropy_bits2": varentropy[:, 0],
        "changed": ((weighed != clean) & ~gone).sum(-1),
        "banned": gone.sum(-1),
        "stop_rank": (weighed > stop).sum(-1),
        "stop_probability": weighed.softmax(-1)[:, stop_token],
    }


def retell(entry: Record, codes: Tensor, own: Tensor, guided: Tensor, drawn_from: Tensor) -> Record:
    """Say of a step what it would have been with other codes, in rows that branched.

    Args:
        entry: The step.
        codes: ``(B,)`` int64; what is said of a row with -1 means nothing.
        own: ``(B, V)``, the model's own logits.
        guided: ``(B, V)``, those that entered the chain.
        drawn_from: ``(B, V)``.
    """
    codes = codes.clamp(min=0)
    return replace(
        entry,
        code=codes,
        logprob=log_prob_of(own, codes),
        guided_logprob=log_prob_of(guided, codes),
        score=log_prob_of(drawn_from, codes),
    )


def consider(scores: Scores, goes_on: Tensor) -> dict[str, Tensor]:
    """What entropix saw and decided; fields of `Record`, each ``(B,)``.

    Args:
        scores: After all steps.
        goes_on: ``(B,)`` bool, rows that did not end here.
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
