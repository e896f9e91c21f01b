"""The rank of sequences, against its definition."""

import math
from itertools import pairwise

import pytest

from samplers.knobs.params import SamplingParams
from samplers.ranking import oddity, rank


def test_a_rank_is_the_mean_log_probability_less_what_is_odd() -> None:
    params = SamplingParams(
        rank_loop_penalty=3.0, rank_silence_penalty=5.0, backtrack_min_repeats=2,
        backtrack_min_frames=4, backtrack_max_silence=2,
    )  # fmt: skip
    codes = [1, 2, 1, 2, 1, 9, 9, 9, 9, 7]  # three frames only repeat, two are too silent
    logprobs = [-1.0, -2.0] * 5 + [-0.5]
    mean = sum(logprobs) / 11
    assert rank(logprobs, codes, [9], params) == pytest.approx(mean - 3 * 0.3 - 5 * 0.2)
    assert rank(logprobs, codes, [], params) < mean - 3 * 0.3  # now the silence is a loop, too
    assert rank(logprobs[4:], codes, [9], params, start=4) == pytest.approx(
        sum(logprobs[4:]) / 7 - 3 / 6 - 5 * 2 / 6
    )
    assert rank([], [], [9], params) == -math.inf
    assert rank([-1.5], [], [9], params) == -1.5


def test_a_length_is_the_odder_the_further_from_the_median() -> None:
    odd = oddity([100, 50, 25, 100, 0])
    assert odd[1] == 0
    assert odd[0] == odd[3] == pytest.approx(math.log(101 / 51))
    assert odd[4] == pytest.approx(math.log(51))
    assert all(near < far for near, far in pairwise([odd[1], odd[2], odd[4]]))
