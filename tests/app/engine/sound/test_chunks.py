from itertools import accumulate, count, pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from app.engine.level_0.backtracking import Backtracker
from app.engine.sound.chunks import Chunks, first_chunks
from samplers.knobs.params import SamplingParams


def lengths(frames: int, block_frames: int) -> list[int]:
    chunks = Chunks(block_frames)
    return [len(chunk) for chunk in [*chunks.push(torch.arange(frames)), chunks.rest()]]


def test_chunks_are_whole_blocks_and_grow_up_to_four() -> None:
    assert lengths(260, 15) == [15, 15, 30, 45, 60, 60, 35]
    assert lengths(10, 4) == [4, 4, 2]


def test_a_chunk_comes_with_its_last_frame_and_only_the_rest_may_be_empty() -> None:
    chunks = Chunks(15)
    assert not chunks.push(torch.arange(14))
    assert [len(chunk) for chunk in chunks.push(torch.arange(1))] == [15]
    assert not chunks.push(torch.arange(0))
    assert len(chunks.rest()) == 0


@given(st.lists(st.integers(0, 40), min_size=1, max_size=20))
def test_where_the_cuts_are_does_not_depend_on_how_the_frames_come(pushes: list[int]) -> None:
    frames = torch.arange(sum(pushes))
    chunks, found = Chunks(15), []
    for part in torch.split(frames, pushes):
        found += chunks.push(part)
    found.append(chunks.rest())
    assert [len(chunk) for chunk in found] == lengths(len(frames), 15)
    assert torch.equal(torch.cat(found), frames)


def frames_until_final(params: SamplingParams, block_frames: int) -> list[int]:
    """Draw frames, none of which repeats another, until the first five chunks are final."""
    ends = list(accumulate(lengths(20 * block_frames, block_frames)[:5]))
    backtracker = Backtracker(params, torch.zeros(9, dtype=torch.bool), first_block=block_frames)
    finals = (backtracker.final for n in count(1) if backtracker.check(range(n)) is None)
    found: list[int] = []
    for drawn, final in enumerate(finals, start=1):
        while final >= ends[len(found)]:
            found.append(drawn)
            if len(found) == len(ends):
                return found
    raise AssertionError("unreachable")


@given(st.floats(0.01, 1.0), st.integers(1, 200), st.sampled_from([3, 15]))
def test_first_chunks_wait_for_as_many_frames_as_backtracking_holds_back(
    share: float, window: int, block_frames: int
) -> None:
    params = SamplingParams(backtrack=True, backtrack_share=share, backtrack_window=window)
    first, *drawn = frames_until_final(params, block_frames)
    early = first_chunks(params, block_frames, 75.0)
    assert [one.frames for one in early] == [n - first for n in drawn]


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
