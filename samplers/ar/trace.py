"""The trace: what a step read, did and drew, for requests that ask for it.

A record holds device tensors, so that tracing never waits for the device; `columns` brings an
utterance to the host when it is over.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from samplers.ar.effects import EFFECTS, Effects
from samplers.ops.entropix import ATTENTION, Decision, moments
from samplers.ops.rows import Rows, sanitise
from samplers.processors.processor import Scores
from samplers.processors.sample import SampleResult

TraceStep: TypeAlias = Mapping[str, Tensor]
"""One step of a batch: each of `FIELDS`, ``(B,)``, and if asked for `TOPS`; see docs/trace.md.

`alive` says whether the row had not ended before; the other fields of one that had mean nothing.
`TOPS` are float32 of the n likeliest codes before and after the processors, ``(B, n, 4 +
len(EFFECTS))``: code, nats at the three `STAGES`, and nats that each of `EFFECTS` gave or took.
"""

FIELDS: Final = (
    "alive", "frame", "attempt", "code", "logprob", "guided_logprob", "score", "entropy_bits",
    "varentropy_bits2", "changed", "banned", "kept", "stop_rank", "stop_probability", "temperature",
    "mirostat_mu", "repeated", "entropix_state", "attention_entropy_bits",
    "attention_varentropy_bits2", "attention_agreement", "attention_strength", "paused", "branched",
    "saw_nan", "saw_inf", "all_masked",
)  # fmt: skip
TOPS: Final = ("top_logprobs", "top_scores")
STAGES: Final = ("logprob", "penalised", "score")
"""Before all processors, guided or not; after bans and penalties; and as it was sampled from."""


@dataclass
class Trace:
    """The records of the steps that it was passed to, with so many of the likeliest codes."""

    records: list[TraceStep] = field(default_factory=list)
    top: int = 0


def columns(tokens: Iterable[tuple[TraceStep, int]], *, top: int = 0) -> dict[str, NDArray[Any]]:
    """Copy an utterance's records, and its row in each, to the host: an array ``[N]`` a field.

    Waits for the device. Tokens of a row that had ended are left out; ``top`` is how many of the
    likeliest codes to tell, 0 leaves their fields out.
    """
    tokens = list(tokens)
    table = {name: _values([record[name][row] for record, row in tokens]) for name in FIELDS}
    for name in TOPS if top else ():
        table[name] = _values([record[name][row, :top] for record, row in tokens])
    alive = table.pop("alive").astype(bool)
    return {name: values[alive] for name, values in table.items()}


def entries(columns: Mapping[str, NDArray[Any]]) -> list[dict[str, Any]]:
    """Return columns ``[N]`` as N dictionaries of plain numbers.

    The last of `TOPS` is of codes that could be sampled: fewer than n where fewer were left.
    """
    values = [
        [
            [_likely(code) for code in token if name != TOPS[-1] or code[len(STAGES)] > -math.inf]
            for token in column.tolist()
        ]
        if name in TOPS
        else column.tolist()
        for name, column in columns.items()
    ]
    return [dict(zip(columns, entry, strict=True)) for entry in zip(*values, strict=True)]


def _likely(columns_of_code: Sequence[float]) -> dict[str, Any]:
    code, *stages = columns_of_code[: 1 + len(STAGES)]
    effects = zip(EFFECTS, columns_of_code[1 + len(STAGES) :], strict=True)
    return {
        "code": int(code),
        **{name: round(nats, 4) for name, nats in zip(STAGES, stages, strict=True)},
        "effects": {name: round(nats, 4) for name, nats in effects if round(nats, 4)},
    }


def _values(column: list[Tensor]) -> NDArray[Any]:
    return torch.stack(column).cpu().numpy() if column else np.zeros(0)


@dataclass
class StepTensors(Rows):
    """The tensors of a step at each of its stages, B rows each: as given, and then in order."""

    logits: Tensor
    clean: Tensor
    own: Tensor | None  # the model's own logits, if the given ones were changed before
    penalised: Tensor | None  # after bans and penalties; may be None without a trace
    scores: Scores
    sampled: SampleResult
    effects: Effects | None = None  # of the processors, if the likeliest codes are told

    def record(
        self, codes: Tensor, stop_token: int, *, alive: Tensor, empty: Tensor, top: int = 0
    ) -> TraceStep:
        """Return the record of the step that returns ``(B,)`` codes.

        Of rows ``(B,)`` bool that had not ended before, and from which nothing could be sampled.
        """
        scores = self.scores
        sampled = self.sampled
        temperature = (scores.divisor if scores.divisor is not None else scores.ones())[:, 0]
        mu = scores.ones() * torch.nan
        if sampled.mu is not None and sampled.mirostat is not None:
            mu = torch.where(sampled.mirostat, sampled.mu, mu)
        repeated = torch.zeros_like(empty) if sampled.repeated is None else sampled.repeated[:, 0]
        sampled_as = self._code_fields(codes)
        score = sampled_as["score"]
        return {
            "alive": alive,
            "frame": scores.lengths[:, 0].clone(),
            "attempt": scores.attempts[:, 0].clone(),
            **sampled_as,
            "score": torch.where(temperature <= 0, torch.zeros_like(score), score),
            **self._penalty_fields(stop_token),
            "kept": (sampled.logits > -torch.inf).sum(-1),
            "temperature": temperature,
            "mirostat_mu": mu[:, 0],
            "repeated": repeated,
            **self._entropix_fields(codes != stop_token),
            "saw_nan": self.logits.isnan().any(-1),
            "saw_inf": (self.logits == torch.inf).any(-1),
            "all_masked": empty,
            **self._top_fields(top),
        }

    def _top_fields(self, top: int) -> dict[str, Tensor]:
        """Return the likeliest codes before and after the processors, with their nats."""
        if not top:
            return {}
        assert self.penalised is not None
        assert self.effects is not None
        given = (self.clean, self.penalised, self.sampled.logits)
        nats = [sanitise(one.log_softmax(-1)) for one in given]
        found = {}
        for name, order in zip(TOPS, (nats[0], nats[-1]), strict=True):
            codes = order.topk(min(top, order.shape[-1])).indices
            stages = torch.stack([codes, *(one.gather(-1, codes) for one in nats)], -1)
            found[name] = torch.cat([stages, self.effects.of(codes)], -1)
        return found

    def rescored(self, entry: TraceStep, codes: Tensor) -> TraceStep:
        """Return a record of the step as it would be with other codes ``(B,)``; -1: anything."""
        return {**entry, **self._code_fields(codes.clamp(min=0))}

    def _code_fields(self, codes: Tensor) -> dict[str, Tensor]:
        """Return codes and their log-probabilities: the model's, as given, and as sampled from."""
        own = self.clean if self.own is None else sanitise(self.own)
        return {
            "code": codes,
            "logprob": log_prob_of(own, codes),
            "guided_logprob": log_prob_of(self.clean, codes),
            "score": log_prob_of(self.sampled.logits, codes),
        }

    def _penalty_fields(self, stop_token: int) -> dict[str, Tensor]:
        """Return the fields of the record that say what bans and penalties did."""
        clean = self.clean
        penalised = self.penalised
        assert penalised is not None
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

    def _entropix_fields(self, goes_on: Tensor) -> dict[str, Tensor]:
        """Return the fields that say what entropix read and decided in rows that go on."""
        logits = self.scores.logits
        attention = self.scores.attention
        if attention is None:
            attention = logits.new_full((len(logits), len(ATTENTION)), torch.nan)
        decision = self.scores.decision or Decision.none(len(logits), logits.device)
        entropy, varentropy, agreement, strength = attention.unbind(1)
        return {
            "entropix_state": decision.state[:, 0],
            "attention_entropy_bits": entropy,
            "attention_varentropy_bits2": varentropy,
            "attention_agreement": agreement,
            "attention_strength": strength,
            "paused": decision.paused[:, 0],
            "branched": decision.branched[:, 0] & goes_on,
        }


def log_prob_of(logits: Tensor, codes: Tensor) -> Tensor:
    """Return the log-probability of ``(B,)`` codes under ``(B, V)`` logits, nats; NaN is -inf."""
    chosen = logits.log_softmax(-1).gather(-1, codes[:, None])[:, 0]
    return chosen.nan_to_num(nan=-torch.inf)
