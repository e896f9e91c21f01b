"""Penalties that count the voice's prompt: as if its codes had been drawn just before."""

import pytest
import torch
from torch import Tensor

from samplers.ar.sampler import ArSampler
from samplers.knobs.params import SamplingParams
from tests.samplers.ar.test_sampler import STOP, VOCAB, logits_of, make, speak

# 7 is what the first logits would draw, so that every penalty has something to change.
PROMPT = torch.tensor([3, 7, 9, 3])
GREEDY = {"temperature": 0.0, "ban_tokens": (STOP,)}
PENALTIES: dict[str, dict[str, float]] = {
    "repetition": {"repetition_penalty": 4.0, "repetition_penalty_window": 6},
    "whole history": {"repetition_penalty": 4.0, "repetition_penalty_window": 0},
    "frequency": {"frequency_penalty": 2.0},
    "presence": {"presence_penalty": 2.0},
    "dry": {"dry_multiplier": 3.0, "dry_allowed_length": 1},
    "ngram": {"no_repeat_ngram_size": 2},
}


def counting(**knobs: object) -> SamplingParams:
    return SamplingParams.model_validate(GREEDY | {"penalty_includes_prompt": True} | knobs)


def forced(code: int) -> Tensor:
    """Logits that draw one code whatever the penalties say."""
    return torch.full((1, VOCAB), -1e6).index_fill(1, torch.tensor([code]), 1e6)


def draw(sampler: ArSampler, frames: int = 12) -> list[int]:
    """Draw from logits that change at every frame, so that greedy does not loop."""
    return [int(sampler.step(logits_of(t, 0)[None])) for t in range(frames)]


@pytest.mark.parametrize("knobs", PENALTIES.values(), ids=PENALTIES)
def test_a_prompt_that_counts_acts_as_the_same_codes_drawn(knobs: dict[str, float]) -> None:
    drawn, given = make([counting(**knobs)]), make([counting(**knobs)], prompts=[PROMPT])
    for code in PROMPT.tolist():
        assert int(drawn.step(forced(code))) == code
    codes = draw(given)
    assert codes == draw(drawn)
    assert codes != draw(make([counting(**knobs)]))


def test_a_row_that_does_not_count_its_prompt_does_not_notice_it_or_its_neighbours() -> None:
    knobs = PENALTIES["repetition"] | PENALTIES["dry"]
    plain = counting(**knobs, penalty_includes_prompt=False)
    alone = speak(make([plain]), [0], 12)
    assert speak(make([plain], prompts=[PROMPT]), [0], 12) == alone
    mixed = make([counting(**knobs), plain], seeds=[1, 0], prompts=[PROMPT, None])
    assert speak(mixed, [1, 0], 12)[1:] == alone


def test_a_rewound_row_still_counts_its_prompt() -> None:
    sampler = make([counting(**PENALTIES["dry"])], prompts=[PROMPT])
    before = draw(sampler)
    sampler.rewind(0, 0)
    assert draw(sampler) == before


def test_a_prompt_is_no_speech_to_what_looks_at_speech_alone() -> None:
    sampler = make([counting(**PENALTIES["dry"])], prompts=[PROMPT])
    draw(sampler, 3)
    assert sampler.table.lengths.tolist() == [3]
