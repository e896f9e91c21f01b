"""Rows of every kind of knob, and what a model tells each of them whatever the batch."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from samplers.ar.state import HostColumn, SlotTable
from samplers.knobs.features import is_guided
from samplers.knobs.params import SamplingParams
from tests.samplers.reference.harness import make_sampler

STOP, VOCAB = 16, 17
SILENT = range(0, VOCAB - 1, 5)
PROMPT = torch.tensor([3, 7, 9, 3])
ALWAYS_HELV: dict[str, Any] = {
    "entropix_low_entropy": 0.0, "entropix_helv_entropy": 0.0, "entropix_low_varentropy": 1e6,
}  # fmt: skip
EAGER = {"backtrack": True, "backtrack_min_repeats": 2, "backtrack_min_frames": 2}
STUCK = EAGER | {"temperature": 0.25, "backtrack_window": 20, "backtrack_max_silence": 3}
GUIDED: dict[str, Any] = {"cfg_strength": 1.5}
ENDING: dict[str, Any] = {"logit_bias": {512: 4.0}}
# Every code is in the state HELV, where only branches change anything.
BRANCH: dict[str, Any] = {
    "entropix": True, "entropix_action": "branch", **ALWAYS_HELV, "entropix_branch_rollouts": 3,
    "entropix_branch_frames": 4, "entropix_branch_interval": 7,
}  # fmt: skip
KNOBS: Sequence[dict[str, Any]] = (
    {},
    {"temperature": 0.0},
    {"temperature": 0.7, "top_k": 5, "top_p": 0.9, "min_p": 0.02},
    {"temperature": 0.5, "top_p": 0.9, "cfg_strength": 1.5, "cfg_rescale": 0.3, **STUCK},
    {"repetition_penalty": 1.3, "repetition_penalty_window": 4, "min_frames": 6},
    {"logit_bias": {2: 4.0}, "ban_tokens": (3, 512), "min_frames": 6},
    {"repetition_penalty": 1.2, "repetition_penalty_window": 0, "presence_penalty": 0.2},
    {"temperature": 1.4, "min_temperature": 0.3, "typical_p": 0.9},
    {"xtc_probability": 0.5, "top_n_sigma": 2.0, "length_penalty": 0.5},
    {"mirostat_mode": 2, "mirostat_tau": 1.5},
    {"mirostat_mode": 1, "mirostat_tau": 2.5, "frequency_penalty": 0.1, **GUIDED},
    {"ras": True, "ras_window": 5, "exponential_decay_factor": 1.1},
    {"dry_multiplier": 1.0, "dry_sequence_breakers": (7,), "epsilon_cutoff": 0.001},
    {"no_repeat_ngram_size": 2, "eta_cutoff": 0.002, **STUCK},
    {"repetition_penalty": 1.4, "penalty_includes_prompt": True, "dry_multiplier": 0.5},
    {"ban_sequences": [{"codes": (5, 6)}, {"codes": (7,), "strength": 1.0}], "temperature": 0.8},
    {"entropix": True},
    {"entropix": True, "entropix_action": "pause", "min_tokens_to_keep": 3, "min_p": 0.1},
    {"best_of": 2, "temperature": 0.8},
    {"best_of": 2, "cfg_strength": 2.0, **STUCK},
    {"sampler_order": "hf", "top_p": 0.9},
    {"sampler_order": "llama", "min_p": 0.02, "temperature_last": True, "top_p": 0.9},
    {"ban_sequences": [{"codes": tuple(range(9))}] * 9, "prompt_as_prefix": True, **GUIDED},
    {"beam_width": 3},
    {"beam_width": 2, "temperature": 0.0, "cfg_strength": 1.5},
    BRANCH,
    BRANCH | GUIDED | {"dry_multiplier": 0.7},
    {"logit_bias": {512: 6.0}},
    {"alignment_stop_frames": 3, "backtrack_repeat_frames": 2, "temperature": 0.9, **STUCK},
    {"alignment_stop_frames": 2, "best_of": 2, **GUIDED},
    {"alignment_stop_frames": 4, "beam_width": 2},
    {"beam_width": 2, **ENDING},
    {"entropix": True, "mirostat_mode": 1, "cfg_strength": 1.2, **STUCK},
    {"sampler_order": ("top_k", "temperature"), "top_k": 6, "temperature": 1.3},
    {"repetition_penalty": 1.2, "repetition_penalty_decay": -0.5, "top_k": 9}
    | {"temperature": 1.5, "min_temperature": 0.5, "dynatemp_mode": "entropy"},
    BRANCH | {"entropix_action": "resample", "xtc_probability": 0.5, "temperature": 0.8},
    BRANCH | {"entropix_action": "pause", "sampler_order": "llama"}
    | {"entropix_pause_interval": 3, "entropix_pause_silence": 2},
    {"entropix": True, "entropix_adaptive_candidates": 2, "mirostat_mode": 2}
    | {"mirostat_surprise": "truncated", "penalty_includes_prompt": True, "ban_tokens": (16,)},
)  # fmt: skip
"""Of every kind of request; the codes suit any vocabulary, as those beyond it are nobody's."""
EVERY = [SamplingParams.model_validate(knobs) for knobs in KNOBS]
MIXED = [
    one
    for one in EVERY
    if not (one.beam_width or one.entropix_action == "branch" or is_guided(one, "ar"))
]
"""Those that the sampler samples by itself, without a host that searches; none is guided."""

make = partial(make_sampler, stop_token=STOP, vocab_size=VOCAB, max_frames=40, silent=SILENT)


def logits_of(step: int, row: int, vocab: int = VOCAB) -> Tensor:
    """What a model would say to ``row`` at ``step``: the same whatever the batch."""
    generator = torch.Generator().manual_seed(1000 * row + step)
    logits = torch.randn(vocab, generator=generator) * 3
    logits[vocab - 1] -= 3
    return logits


def spoil(table: SlotTable) -> None:
    """Leave in a table the worst that rows before may have left."""
    table.codes.fill_(3)
    table.lengths.fill_(7)
    table.stopped.fill_(True)
    table.beam_scores.fill_(-torch.inf)
    table.runs.fill_(5)
    table.last_act.fill_(2)
    table.host[:, HostColumn.AVOID_UNTIL] = 3
    for numbers in (table.mu, table.avoid):
        numbers.fill_(torch.nan)


def leaning(*codes: int | None, against: float = -1e9) -> Tensor:
    """Logits ``(B, V)``, a row a code, which it samples whatever penalties say; None: no stop."""
    logits = torch.zeros(len(codes), VOCAB)
    for row, code in zip(logits, codes, strict=True):
        row[STOP if code is None else code] = against if code is None else -against
    return logits
