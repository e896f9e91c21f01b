"""Recording: what is played is the function, and it is warmed up as often as asked."""

import torch

from models.cuda.graphs import Recorder


def test_playing_runs_the_function_on_the_tensors_as_they_are_then() -> None:
    total, given = torch.zeros(()), torch.ones(())

    def add() -> None:
        total.add_(given)

    play = Recorder(torch.device("cpu")).record(add, warm_ups=2)
    assert total == 2
    given.fill_(5)
    play()
    play()
    assert total == 12
