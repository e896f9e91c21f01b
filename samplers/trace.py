"""What was seen and done at each token, for those who ask.

A record is made of device tensors, so that tracing makes nobody wait; `Trace.row` brings a row to
the host when the utterance is over.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import torch
from torch import Tensor

from samplers.entropix import moments


@dataclass(frozen=True)
class Record:
    """One step of a batch; every field is ``(B,)``.

    Attributes:
        alive: Whether the row had not ended before; what a row that had ended says means nothing.
        frame: How many codes the row held.
        attempt: How often the row had been rewound.
        code: What was drawn; the stop included.
        logprob: Its log-probability under the model's own logits, at temperature 1, nats.
        score: Its log-probability under the scores that it was drawn from, nats; 0 where greedy.
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
        saw_nan: Whether the model gave a NaN.
        saw_inf: Whether the model gave +infinity.
        all_masked: Whether nothing could be drawn, so that the row was ended.
    """

    alive: Tensor
    frame: Tensor
    attempt: Tensor
    code: Tensor
    logprob: Tensor
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
    saw_nan: Tensor
    saw_inf: Tensor
    all_masked: Tensor


@dataclass
class Trace:
    """Collects the records of the steps it is passed to."""

    records: list[Record] = field(default_factory=list)

    def row(self, row: int) -> list[dict[str, Any]]:
        """What happened to one row, one entry a token, as plain numbers; waits for the device."""
        table = {
            column.name: _values([getattr(record, column.name)[row] for record in self.records])
            for column in fields(Record)
        }
        alive = table.pop("alive")
        return [
            {name: values[place] for name, values in table.items()}
            for place, lives in enumerate(alive)
            if lives
        ]


def _values(column: Sequence[Tensor]) -> list[Any]:
    return torch.stack(list(column)).tolist() if column else []


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
