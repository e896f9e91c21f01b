"""The tape is a CUDA graph: the same memory, the same numbers, and never the function.

Every test that plays from one says more of it: equal results, seeded faults and waits that show.
"""

import pytest
import torch

from tests.capture.tape import Tape

pytestmark = pytest.mark.usefixtures("without_gradients")


def test_a_play_runs_operators_on_what_is_in_memory_then_with_the_hosts_recorded_numbers() -> None:
    given, state, result = torch.zeros(2, 3), torch.ones(4), torch.zeros(3)
    host, buffers, calls, tape = [1.0], {"x": torch.zeros(3)}, list[int](), Tape()

    def function() -> None:
        calls.append(1)
        state[1:3].add_(host[0])
        first, second = (given * 2).unbind()  # views of an intermediate result
        result.copy_(first * second + buffers["x"])

    replay = tape.capture(function)
    assert (len(calls), state.tolist()) == (1, [1, 1, 1, 1])  # graph writes nothing
    given.copy_(torch.arange(6.0).view(2, 3))
    host[0], buffers["x"] = 7.0, torch.full((3,), 5.0)
    for _ in range(3):
        replay()
    assert result.tolist() == [0 * 6, 2 * 8, 4 * 10]
    assert (len(calls), state.tolist()) == (1, [1, 4, 4, 1])
    assert (tape.sizes, tape.replays) == ([5], 3)
