"""What takes are ranked by, against definitions written out."""

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from samplers.knobs.params import SamplingParams
from samplers.ranking import beyond, oddity, rank, repeated

CODES = st.lists(st.integers(0, 2), max_size=30)


@given(CODES, st.integers(1, 6), st.integers(2, 4), st.integers(2, 12))
def test_what_repeats_is_every_copy_of_a_long_enough_loop_but_the_first(
    codes: list[int], max_period: int, min_repeats: int, min_frames: int
) -> None:
    expected = set[int]()
    for period in range(1, max_period + 1):
        for start in range(len(codes)):
            for end in range(start + max(min_repeats * period, min_frames), len(codes) + 1):
                if all(codes[at] == codes[at - period] for at in range(start + period, end)):
                    expected |= set(range(start + period, end))
    found = repeated(
        np.array(codes, np.int64),
        max_period=max_period, min_repeats=min_repeats, min_frames=min_frames,
    )  # fmt: skip
    assert set(np.flatnonzero(found)) == expected


@given(st.lists(st.booleans(), max_size=20), st.integers(0, 4))
def test_what_is_too_long_of_a_run_is_all_behind_what_it_may_have(
    flags: list[bool], longest: int
) -> None:
    found = beyond(np.array(flags, np.bool_), longest=longest)
    for at, flag in enumerate(found):
        run = flags[max(0, at - longest) : at + 1]
        assert flag == (longest > 0 and len(run) == longest + 1 and all(run))


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
