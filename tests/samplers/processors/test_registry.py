"""The registered processors: every step has one, every feature of a step is read by one."""

import pytest

from samplers.ar.state import RowInput, lookback
from samplers.knobs.features import FEATURES
from samplers.knobs.params import BannedSequence, SamplingParams
from samplers.knobs.steps import STEPS
from samplers.ops.rows import ALL
from samplers.processors.processor import LogitsProcessor, Penalty
from samplers.processors.registry import BY_STEP, FIXED, MOVABLE


def test_every_feature_of_a_step_belongs_to_a_processor_of_it() -> None:
    claimed = {(name, one.step()) for one in MOVABLE for name in one.features if one.step()}
    assert {(name, one.step) for name, one in FEATURES.items() if one.step} <= claimed
    assert set(BY_STEP) == set(STEPS)
    assert all(BY_STEP.values())


def test_the_fixed_processors_belong_to_no_step() -> None:
    assert [one.step() for one in FIXED] == [None] * len(FIXED)


@pytest.mark.parametrize("step", STEPS)
def test_the_processors_of_a_step_are_all_penalties_or_none_is(step: str) -> None:
    assert len({issubclass(one, Penalty) for one in BY_STEP[step]}) == 1


@pytest.mark.parametrize("processor", [*FIXED, *MOVABLE], ids=lambda one: one.__name__)
def test_a_processor_does_not_act_on_a_row_with_the_default_params(
    processor: type[LogitsProcessor],
) -> None:
    assert not processor.acts_on(SamplingParams())


@pytest.mark.parametrize(
    ("knobs", "frames", "runs"),
    [
        ({}, 0, False),
        ({"temperature": 0.5, "top_k": 5}, 0, False),
        ({"repetition_penalty": 1.2}, 75, False),
        ({"presence_penalty": 0.1, "repetition_penalty_window": 9}, 9, False),
        ({"repetition_penalty": 1.2, "repetition_penalty_window": 0}, ALL, False),
        ({"dry_multiplier": 1.0}, ALL, True),
        ({"no_repeat_ngram_size": 3}, ALL, True),
        ({"ras": True, "ras_window": 12}, 12, False),
        ({"ras": True, "ras_window": 12, "frequency_penalty": 0.1}, 75, False),
        ({"entropix": True, "entropix_action": "pause", "entropix_pause_silence": 7}, 7, False),
        ({"entropix": True, "entropix_pause_silence": 7}, 0, False),
        (
            {"ban_sequences": (BannedSequence(codes=(1, 2, 3)), BannedSequence(codes=(4,)))},
            2,
            False,
        ),
    ],
)
def test_a_row_reads_as_much_of_its_history_as_its_farthest_processor(
    knobs, frames: int, runs: bool
) -> None:
    params = SamplingParams(**knobs)
    assert (lookback(params), RowInput(params, 0, 100).tracks_runs) == (frames, runs)
