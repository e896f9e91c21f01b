"""Named sets of knobs, selected by `preset`. A set names only what differs from the declaration.

A knob set by the caller overrides one of a set. The card of a model may name a set or bring its
own; an operator may add sets, but change none of these (`app.storage.preset_files`).
"""

from collections.abc import Mapping
from typing import Any, TypeAlias

Presets: TypeAlias = Mapping[str, Mapping[str, Any]]
"""Name of a preset -> the knobs that it sets."""

AUTO = "auto"
"""Means the preset of the loaded model's card; no preset has this name."""

# What the built-in voice speaks with, chosen on sentences that were kept out of its training:
# guided towards the words, and taken back where it goes on after the last word.
_BUILTIN: Mapping[str, Any] = {
    "temperature": 0.7,
    "top_p": 0.9,
    "cfg_strength": 2.0,
    "cfg_rescale": 0.0,
    "backtrack": True,
    "backtrack_max_silence": 50,
    # No rewind in 1,080 sentences was deeper; the second chunk is final 30 frames after the
    # first instead of 90.
    "backtrack_share": 0.35,
    # Sentences that end by themselves do so 16 to 23 frames after the alignment has reached their
    # end: docs/results/texts.md.
    "alignment_stop_frames": 24,
    "backtrack_repeat_frames": 5,
}

PRESETS: Presets = {
    # The declared defaults, untouched.
    "default": {},
    # The likeliest code at every step: the same speech whatever the seed.
    "greedy": {"temperature": 0.0},
    # Few surprises: truncated, slightly cooled, pushed out of loops by the codes of the last
    # second, the newest most, and taken back out of them where that did not help. Starting points,
    # but for the silence: none of 5,000 sentences of the built-in voice's teacher has a longer one.
    "stable": {
        "temperature": 0.8,
        "top_p": 0.9,
        "repetition_penalty": 1.05,
        "repetition_penalty_decay": -0.5,
        "backtrack": True,
        "backtrack_max_silence": 50,
    },
    # Livelier prosody: the tail is cut relative to the best code, so heat stays intelligible.
    "expressive": {"temperature": 1.1, "min_p": 0.05},
    "builtin": _BUILTIN,
    # `builtin` with entropix' thresholds measured on the built-in voice: `valle-serve tools
    # calibrate --count 60`, 10,027 codes, on 2026-11-23. No code is unsure without varentropy.
    "entropix": {
        **_BUILTIN,
        "entropix": True,
        "entropix_low_entropy": 0.25,
        "entropix_helv_entropy": 2.75,
        "entropix_lehv_entropy": 2.75,
        "entropix_hehv_entropy": 2.75,
        "entropix_low_varentropy": 0.97,
        "entropix_high_varentropy": 4.58,
    },
    # What `transformers` does with `do_sample=True`: generation defaults, penalty once per code
    # over the whole history.
    "hf": {
        "sampler_order": "hf",
        "top_k": 50,
        "repetition_penalty_mode": "signed",
        "length_penalty_mode": "signed",
        "repetition_penalty_window": 0,
        "repetition_penalty_one_time": True,
    },
    # The defaults of llama.cpp's command line.
    "llama_cpp": {
        "sampler_order": "llama",
        "temperature": 0.8,
        "top_k": 40,
        "top_p": 0.95,
        "min_p": 0.05,
        "repetition_penalty_mode": "signed",
        "length_penalty_mode": "signed",
        "repetition_penalty_window": 64,
        "repetition_penalty_one_time": True,
    },
    # What Plachtaa/VALL-E-X samples with: the model's whole distribution, as our defaults do.
    "vall_e_x": {},
    # The command-line defaults of vall-e, with its rules where they differ from ours.
    "vall_e": {
        "sampler_order": "vall_e",
        "repetition_penalty_mode": "raw",
        "repetition_penalty_clamp": False,
        "length_penalty_mode": "raw",
        "level_0": "auto",
        "nar_len_score": "likeliest",
        "nar_len_masked_only": False,
    },
}
