"""The tape is a CUDA graph: the same memory, the same numbers, and never the function."""

import pytest
import torch

from tests.capture.tape import Tape
from tests.capture.watch import NotCaptureSafe

pytestmark = pytest.mark.usefixtures("without_gradients")


def test_a_replay_reads_what_is_in_memory_then_and_calls_nothing() -> None:
    given, result, calls = torch.zeros(3), torch.zeros(3), []

    def function() -> None:
        calls.append(1)
        result.copy_((given * 2).exp())

    play = Tape().record(function)
    given.copy_(torch.tensor([1.0, 2.0, 3.0]))
    play()

    assert torch.equal(result, (given * 2).exp())
    assert len(calls) == 1


def test_recording_writes_nothing() -> None:
    kept = torch.ones(4)
    view = kept[1:3]

    Tape().record(lambda: view.add_(1))

    assert kept.tolist() == [1, 1, 1, 1]


def test_a_number_of_the_host_and_the_tensor_that_was_there_are_baked_in() -> None:
    host, buffers, result = [1.0], {"x": torch.zeros(1)}, torch.zeros(2)

    def function() -> None:
        result[:1].fill_(host[0])
        result[1:].copy_(buffers["x"] + 1)

    play = Tape().record(function)
    host[0], buffers["x"] = 7.0, torch.full((1,), 5.0)
    play()

    assert result.tolist() == [1.0, 1.0]


def test_views_of_intermediate_results_follow_them() -> None:
    given, result = torch.zeros(2, 3), torch.zeros(3)

    def function() -> None:
        first, second = (given + 1).unbind()
        result.copy_(first * second)

    play = Tape().record(function)
    given.copy_(torch.arange(6.0).view(2, 3))
    play()

    assert result.tolist() == [1 * 4, 2 * 5, 3 * 6]


def test_a_wait_cannot_be_recorded() -> None:
    given = torch.ones(1)
    with pytest.raises(NotCaptureSafe):
        Tape().record(lambda: given.mul_(given.item()))


def test_a_warm_up_runs_its_recording_is_counted_and_state_advances_with_every_play() -> None:
    state, tape = torch.zeros(1), Tape()
    play = tape.record(lambda: state.add_(1).mul_(2), warm_ups=1)
    assert state.item() == 2
    assert tape.sizes == [2]
    for _ in range(3):
        play()
    assert state.item() == 30
    assert tape.plays == 3
