"""Recording: what is played is the function, and it is warmed up as often as asked."""

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
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


class Captures:
    """Stands for `torch.cuda` on a machine without a GPU: notes streams and captures."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.streams: list[Any] = []
        self.captured_on: list[Any] = []
        self.fails = False
        current = SimpleNamespace(wait_stream=lambda _: None)
        graph = SimpleNamespace(replay=lambda: None)
        for name, stand_in in {
            "graph_pool_handle": lambda: 1, "Stream": self._stream, "CUDAGraph": lambda: graph,
            "current_stream": lambda _: current, "stream": lambda _: nullcontext(),
            "graph": self._graph,
        }.items():  # fmt: skip
            monkeypatch.setattr(torch.cuda, name, stand_in)

    def _stream(self, device: torch.device, priority: int = 0) -> Any:
        stream = SimpleNamespace(device=device, priority=priority, wait_stream=lambda _: None)
        self.streams.append(stream)
        return stream

    def _graph(self, graph: Any, *, pool: Any, stream: Any, capture_error_mode: str) -> Any:
        if self.fails:
            raise RuntimeError("cannot be captured, on purpose")
        self.captured_on.append(stream)
        return nullcontext()


def test_all_captures_are_on_one_stream_of_high_priority(monkeypatch: pytest.MonkeyPatch) -> None:
    captures = Captures(monkeypatch)
    recorder = Recorder(torch.device("cuda"))
    for _ in range(40):  # torch hands out 32 streams in turn
        recorder.record(lambda: None)
    assert len(captures.streams) == 1
    assert captures.streams[0].priority < 0
    assert captures.captured_on == captures.streams * 40


def test_what_cannot_be_captured_is_launched_as_usual(monkeypatch: pytest.MonkeyPatch) -> None:
    captures, calls = Captures(monkeypatch), list[int]()
    captures.fails = True
    play = Recorder(torch.device("cuda")).record(lambda: calls.append(1))
    play()
    assert calls == [1]
