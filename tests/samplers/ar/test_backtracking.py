"""What is avoided where speech was taken back: which codes, how much, and until which frame.

What is found and how far it is rewound is said by `tests/app/engine/ar/test_backtracking`.
"""

import math
from collections.abc import Sequence

import pytest

from samplers.ar.backtrack import PENALISED_BEHIND, Backtrack
from samplers.ar.backtracking import Backtracker
from samplers.knobs.params import SamplingParams

VOCAB = 40
PARAMS = SamplingParams(backtrack=True, backtrack_factor=0.1, backtrack_strength=1.0)
NATS = math.log(10)
FIRST = Backtrack("repeat", 30, 20, 1, (1, 2, 3))
SECOND = Backtrack("repeat", 34, 12, 4, (4, 2))
LOOP = Backtrack("loop", 29, 24, 2)
END = FIRST.frames + PENALISED_BEHIND


@pytest.mark.parametrize(
    ("taken", "frame", "avoided", "until"),
    [
        ([], 20, {}, None),
        ([LOOP], 24, {2: 1}, 25),
        ([LOOP], 25, {}, None),
        ([LOOP, LOOP], 24, {2: math.inf}, 25),
        ([FIRST], 20, {1: 1, 2: 1, 3: 1}, END),
        ([FIRST], END - 2, {1: 1, 2: 1, 3: 1}, END),
        ([FIRST], END, {}, None),
        # Once for each time that they were removed about there
        ([FIRST, SECOND], 12, {1: 1, 2: 2, 3: 1, 4: 1}, SECOND.frames + PENALISED_BEHIND),
        ([FIRST, Backtrack("repeat", 90, 70, 5, (5,))], 70, {5: 1}, 90 + PENALISED_BEHIND),
        # A loop meanwhile
        ([FIRST, LOOP], 24, {1: 1, 2: 2, 3: 1}, END),
        ([FIRST, Backtrack("loop", 29, 24, 8)], 24, {1: 1, 2: 1, 3: 1, 8: 1}, END),
        ([FIRST, LOOP, LOOP], 24, {1: 1, 2: math.inf, 3: 1}, END),
        # One that goes back further takes the repeat itself away
        ([FIRST, Backtrack("silence", 29, 18, 8)], 18, {8: 1}, 19),
    ],
)  # fmt: skip
def test_what_failed_is_avoided_at_its_frame_and_words_said_again_until_they_are_over(
    taken: Sequence[Backtrack], frame: int, avoided: dict[int, float], until: int | None
) -> None:
    backtracker = Backtracker(PARAMS, (), first_block=0, kept_backtracks=taken)
    found = backtracker.avoided(frame, VOCAB)
    if found is None:
        assert until is None
        return
    expected = [-NATS * avoided[code] if code in avoided else 0.0 for code in range(VOCAB)]
    assert found.nats.tolist() == pytest.approx(expected)
    assert found.until == until
    assert found.unguided == (until != frame + 1)


def test_a_repeat_that_is_found_is_avoided_as_one_of_an_earlier_take_is() -> None:
    codes = [*range(30)]
    found = Backtracker(PARAMS, (), first_block=0)
    verdict = found.check(codes, returned=25)
    assert verdict is not None
    given = Backtracker(PARAMS, (), first_block=0, kept_backtracks=found.taken)
    one, other = (each.avoided(verdict.keep, VOCAB) for each in (found, given))
    assert one is not None
    assert other is not None
    assert one.nats.tolist() == other.nats.tolist()
    assert one.nats.nonzero().flatten().tolist() == codes[verdict.keep :]
    assert (one.until, other.until) == (30 + PENALISED_BEHIND,) * 2
    assert one.unguided
    assert other.unguided
