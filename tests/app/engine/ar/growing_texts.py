"""Texts of which more and more words are known while they are spoken."""

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from app.engine.utterance import UtteranceSpec
from models.valle import Valle
from tests.app.engine.ar.requests import request
from tests.samplers.ar.rows import GUIDED, STUCK

WORDS, MOST = 7, 40
NUMBERS = range(14)
CASES: Sequence[dict[str, Any]] = (
    {},
    GUIDED,
    {"temperature": 0.25, **STUCK},
    {"repetition_penalty": 1.3, "backtrack_repeat_frames": 2, **STUCK, **GUIDED},
    {"mirostat_mode": 2, "mirostat_tau": 1.5},
    {"dry_multiplier": 1.0, **STUCK},
    {"prompt_as_prefix": True, "penalty_includes_prompt": True, "repetition_penalty": 1.2},
)


def versions(model: Valle, number: int, others: int = 0, lookahead: int = 0) -> list[UtteranceSpec]:
    """What is known of a text of words with more and more of them.

    Each word reads otherwise while it is the last one. ``others`` has it end in other words.
    """
    sample = random.Random(number)
    words = [[sample.randint(10, 20) for _ in range(sample.randint(1, 3))] for _ in range(WORDS)]
    for at in range(WORDS - others, WORDS):
        words[at] = [21] * (1 + others)
    knobs = {"text_lookahead_words": lookahead or 1 + number % 3, "temperature": 1.0}
    knobs |= CASES[number % len(CASES)] | {"seed": number}
    base = request(model, 5 * number + 1, context=(), kept=None, trace=False)
    params = base.params.__class__.model_validate(knobs)
    found = []
    for count in range(params.text_lookahead_words + 1, WORDS + 1):
        whole = count == WORDS
        known = [*words[: count - 1], words[count - 1] if whole else [22, 22]]
        begins = np.cumsum([1, *map(len, known)])[:-1].tolist()
        ids = [1, *(symbol for word in known for symbol in word), 2]
        frames = 30 + len(ids) // 2
        found.append(
            replace(
                base, phoneme_ids=ids, params=params, begins=begins, whole=whole,
                max_frames=frames, spare=MOST + 60 - len(ids) - frames,
            )
        )  # fmt: skip
    return found
