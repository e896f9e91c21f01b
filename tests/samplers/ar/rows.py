"""Rows of every kind of knob, and what a model tells each of them whatever the batch."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from samplers.ar.sampler import ArSampler
from samplers.knobs.params import SamplingParams
from samplers.ops.entropix import AttentionStatistics
from tests.samplers.reference.harness import attention, make_sampler

STOP, VOCAB = 16, 17
SILENT = torch.arange(VOCAB - 1) % 5 == 0
PROMPT = torch.tensor([3, 7, 9, 3])
ALWAYS_HELV: dict[str, Any] = {
    "entropix_low_entropy": 0.0, "entropix_helv_entropy": 0.0, "entropix_low_varentropy": 1e6,
}  # fmt: skip
HELV: dict[str, Any] = {"entropix": True, **ALWAYS_HELV}
KNOBS: Sequence[dict[str, Any]] = (
    {},
    {"temperature": 0.0},
    {"temperature": 0.7, "top_k": 5},
    {"top_p": 0.8, "repetition_penalty": 1.3},
    {"min_p": 0.1, "min_tokens_to_keep": 3, "length_penalty": 0.5},
    {"repetition_penalty": 1.2, "repetition_penalty_decay": -0.5, "top_k": 9, "top_p": 0.95},
    {"repetition_penalty": 0.9, "repetition_penalty_window": 3, "min_frames": 6},
    {"logit_bias": {2: 4.0}, "ban_tokens": (3, 4)},
    {"temperature": 1.4, "min_temperature": 0.3, "frequency_penalty": 0.4},
    {"temperature": 1.5, "min_temperature": 0.5, "dynatemp_mode": "entropy", "typical_p": 0.9},
    {"xtc_probability": 0.5, "top_n_sigma": 2.0, "presence_penalty": 0.3},
    {"mirostat_mode": 1, "mirostat_tau": 1.0},
    {"mirostat_mode": 2, "mirostat_tau": 1.5, "mirostat_surprise": "truncated"},
    {"ras": True, "ras_window": 20},
    {"dry_multiplier": 1.0, "dry_allowed_length": 1, "dry_sequence_breakers": (1,)},
    {"no_repeat_ngram_size": 2, "exponential_decay_factor": 1.05},
    {"sampler_order": "llama", "top_p": 0.9, "temperature": 0.8, "typical_p": 0.95},
    {"sampler_order": ("top_k", "temperature"), "top_k": 6, "temperature": 1.3},
    {"ban_sequences": [{"codes": (1, 2)}, {"codes": (5,), "strength": 2.0}]}
    | {"epsilon_cutoff": 0.01, "eta_cutoff": 0.02},
    {"entropix": True},
    {**HELV, "temperature": 0.8, "repetition_penalty": 1.2},
    {**HELV, "entropix_action": "resample", "xtc_probability": 0.5},
    {**HELV, "entropix_action": "pause", "sampler_order": "llama"}
    | {"entropix_pause_interval": 3, "entropix_pause_silence": 2},
    {"entropix": True, "entropix_adaptive_candidates": 2, "temperature_last": True}
    | {"top_k": 9, "top_p": 0.9, "min_p": 0.02},
)
MIXED = [SamplingParams.model_validate(knobs) for knobs in KNOBS]


def make(params: Sequence[SamplingParams], **options: Any) -> ArSampler:
    defaults: dict[str, Any] = {
        "stop_token": STOP, "vocab_size": VOCAB, "max_frames": 40, "silent": SILENT,
    }  # fmt: skip
    seeds = options.pop("seeds", list(range(len(params))))
    return make_sampler(params, seeds, **(defaults | options))


def logits_of(step: int, row: int, vocab: int = VOCAB) -> Tensor:
    """What a model would say to ``row`` at ``step``: the same whatever the batch."""
    generator = torch.Generator().manual_seed(1000 * row + step)
    logits = torch.randn(vocab, generator=generator) * 3
    logits[vocab - 1] -= 3
    return logits


def attention_of(step: int, row: int) -> list[float]:
    """How the model attended: the same whatever the batch."""
    generator = torch.Generator().manual_seed(1000 * row + step + 1)
    return (torch.rand(4, generator=generator) * torch.tensor([6.0, 4.0, 0.2, 3.0])).tolist()


def plain_attention(rows: int) -> AttentionStatistics:
    """The same of every row."""
    return attention([[3.0, 2.0, 0.05, 1.0]] * rows)


def leaning(*codes: int | None, against: float = -1e9) -> Tensor:
    """Logits ``(B, V)``, a row a code, which it draws whatever penalties say; None: no stop."""
    logits = torch.zeros(len(codes), VOCAB)
    for row, code in zip(logits, codes, strict=True):
        row[STOP if code is None else code] = against if code is None else -against
    return logits


def speak(
    sampler: ArSampler, rows: Sequence[int], steps: int, vocab: int = VOCAB
) -> list[list[int]]:
    """What each row gives at each of ``steps`` steps."""
    taken = [
        sampler.step(
            torch.stack([logits_of(t, row, vocab) for row in rows]),
            attention=attention([attention_of(t, row) for row in rows]),
        )
        for t in range(steps)
    ]
    return torch.stack(taken, 1).tolist()
