import torch
from hypothesis import given
from hypothesis import strategies as st

from app.engine.sound.chunks import Chunks


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
