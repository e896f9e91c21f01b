import torch
from hypothesis import given
from hypothesis import strategies as st

from app.engine.sound.chunks import Chunks


def lengths(frames: int, block_frames: int | None) -> list[int]:
    return [len(chunk) for chunk in Chunks(block_frames).push(torch.arange(frames), ended=True)]


def test_chunks_are_whole_blocks_and_grow_up_to_four() -> None:
    assert lengths(260, 15) == [15, 15, 30, 45, 60, 60, 35]
    assert lengths(10, 4) == [4, 4, 2]


def test_without_blocks_there_is_one_chunk_and_not_before_the_end() -> None:
    chunks = Chunks(None)
    assert not chunks.push(torch.arange(1000))
    assert [len(chunk) for chunk in chunks.push(torch.arange(5), ended=True)] == [1005]


def test_a_chunk_comes_with_its_last_frame_and_an_empty_one_never() -> None:
    chunks = Chunks(15)
    assert not chunks.push(torch.arange(14))
    assert [len(chunk) for chunk in chunks.push(torch.arange(1))] == [15]
    assert not chunks.push(torch.arange(0), ended=True)


@given(st.lists(st.integers(0, 40), max_size=20))
def test_where_the_cuts_are_does_not_depend_on_how_the_frames_come(pushes: list[int]) -> None:
    frames = torch.arange(sum(pushes))
    chunks, pieces = Chunks(15), []
    for inputs in torch.split(frames, pushes):
        pieces += chunks.push(inputs)
    pieces += chunks.push(frames[:0], ended=True)
    assert [len(inputs) for inputs in pieces] == lengths(len(frames), 15)
    assert torch.equal(torch.cat([*pieces, frames[:0]]), frames)
