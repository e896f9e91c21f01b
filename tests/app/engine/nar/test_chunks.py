from itertools import accumulate, count, cycle, islice, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.engine.nar.chunks import Window, Windows, chunks_of, first_chunks
from samplers.ar.backtracking import Backtracker
from samplers.knobs.params import SamplingParams


def lengths(frames: int, block_frames: int) -> list[int]:
    windows = chunks_of(block_frames).up_to(frames, ended=True)
    assert all((one.first, one.last) == (one.start, one.end) for one in windows)
    return [one.end - one.start for one in windows]


def test_chunks_are_whole_blocks_and_grow_up_to_four() -> None:
    assert lengths(260, 15) == [15, 15, 30, 45, 60, 60, 35]
    assert lengths(10, 4) == [4, 4, 2]


@given(
    st.integers(0, 60), st.lists(st.integers(1, 70), min_size=1), st.integers(0, 30),
    st.integers(0, 30), st.lists(st.integers(0, 60), max_size=8),
)  # fmt: skip
def test_windows_tile_the_utterance_however_its_frames_come_as_soon_as_all_they_see_is_there(
    total: int, sizes: list[int], left: int, right: int, counts: list[int]
) -> None:
    plan, found = Windows(cycle(sizes), left, right), list[Window]()
    ends = [*accumulate(islice(cycle(sizes), total + 1))]
    for come in sorted(min(one, total) for one in counts):
        found += plan.up_to(come, ended=False)
        assert len(found) == sum(end + right <= come for end in ends)
    found += plan.up_to(total, ended=True)
    spans = [(a, min(b, total)) for a, b in pairwise([0, *ends]) if a < total]
    assert found == [
        Window(max(0, start - left), start, end, min(end + right, total)) for start, end in spans
    ]


def frames_until_final(params: SamplingParams, block_frames: int) -> list[int]:
    """Sample frames, none of which repeats another, until the first five chunks are final."""
    ends = list(accumulate(lengths(20 * block_frames, block_frames)[:5]))
    backtracker = Backtracker(params, (), first_block=block_frames)
    finals = (backtracker.final for n in count(1) if backtracker.check(range(n)) is None)
    found: list[int] = []
    for sampled, final in enumerate(finals, start=1):
        while final >= ends[len(found)]:
            found.append(sampled)
            if len(found) == len(ends):
                return found
    raise AssertionError("unreachable")


@given(st.floats(0.01, 1.0), st.integers(1, 200), st.sampled_from([3, 15]))
def test_first_chunks_wait_for_as_many_frames_as_backtracking_holds_back(
    share: float, window: int, block_frames: int
) -> None:
    params = SamplingParams(backtrack=True, backtrack_share=share, backtrack_window=window)
    first, *sampled = frames_until_final(params, block_frames)
    early = first_chunks(params, block_frames, 75.0)
    assert [one.frames for one in early] == [n - first for n in sampled]


def test_first_chunks_behind_a_window_beyond_any_range_are_told() -> None:
    params = SamplingParams(backtrack=True, backtrack_window=10**30)
    assert all(one.frames > 10**9 for one in first_chunks(params, 15, 75.0))


def test_first_chunks_of_the_built_in_voice_wait_for_few_frames() -> None:
    plain = first_chunks(SamplingParams(), 15, 75.0)
    assert [one.frames for one in plain] == [15, 45, 90, 150]
    assert [one.before_s for one in plain] == pytest.approx([0.2, 0.4, 0.8, 1.4])
    for share, frames in ((1.0, [90, 120, 165, 225]), (0.35, [30, 76, 146, 225])):
        early = first_chunks(SamplingParams(backtrack=True, backtrack_share=share), 15, 75.0)
        assert [one.frames for one in early] == frames
        assert all(before.frames < after.frames for before, after in pairwise(early))
