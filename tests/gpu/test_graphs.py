"""Recording: what is replayed is the function; a capture that fails is told from a lost device."""

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from gpu.graphs import GraphCapturer, device_lock
from gpu.lost import is_device_lost


def test_playing_runs_the_function_on_the_tensors_as_they_are_then() -> None:
    total, given = torch.zeros(()), torch.ones(())

    def add() -> None:
        total.add_(given)

    replay = GraphCapturer(torch.device("cpu"), warm_ups=2).capture(add)
    assert total == 2
    given.fill_(5)
    replay()
    replay()
    assert total == 12


class Captures:
    """Stands for `torch.cuda` and its graphs on a machine without a GPU, as torch 2.11 to 2.13 are.

    A capture that ends in an error leaves its pool underway: then the allocator can be emptied no
    more, and nothing can be captured to that pool.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.streams: list[Any] = []
        self.pools: list[int] = []
        self.captured_on: list[Any] = []
        self.broken: list[Exception] = []  # what the next captures end with
        self.underway: set[int] = set()
        current = SimpleNamespace(wait_stream=lambda _: None)
        for name, stand_in in {
            "graph_pool_handle": self._pool, "Stream": self._stream,
            "CUDAGraph": lambda: self, "current_stream": lambda _: current,
            "stream": self._entered, "empty_cache": self._empty,
        }.items():  # fmt: skip
            monkeypatch.setattr(torch.cuda, name, stand_in)
        monkeypatch.setattr(
            torch._C, "_cuda_endAllocateToPool", lambda _, pool: self.underway.discard(pool)
        )

    def _pool(self) -> int:
        self.pools.append(len(self.pools))
        return self.pools[-1]

    def _stream(self, device: torch.device, priority: int = 0) -> Any:
        stream = SimpleNamespace(device=device, priority=priority, wait_stream=lambda _: None)
        self.streams.append(stream)
        return stream

    def _entered(self, stream: Any) -> AbstractContextManager[None]:
        self.stream = stream
        return nullcontext()

    def _empty(self) -> None:
        if self.underway:
            raise RuntimeError("INTERNAL ASSERT FAILED: captures_underway.empty()")

    def capture_begin(self, pool: int, capture_error_mode: str) -> None:
        assert capture_error_mode == "thread_local"
        assert pool not in self.underway
        self.underway.add(pool)
        self.captured_on.append(self.stream)
        self.pool = pool

    def capture_end(self) -> None:
        if self.broken:
            raise self.broken.pop(0)
        self.underway.remove(self.pool)

    def replay(self) -> None:
        assert not self.underway


CAPTURE = torch.AcceleratorError("CUDA error: operation not permitted when stream is capturing")
LOST = torch.AcceleratorError("CUDA error: an illegal memory access was encountered")


@pytest.fixture
def captures(monkeypatch: pytest.MonkeyPatch) -> Captures:
    return Captures(monkeypatch)


def test_all_captures_are_on_one_stream_of_high_priority(captures: Captures) -> None:
    capturer = GraphCapturer(torch.device("cuda"))
    for _ in range(40):  # torch hands out 32 streams in turn
        capturer.capture(lambda: None)
    assert len(captures.streams) == 1
    assert captures.streams[0].priority < 0
    assert captures.captured_on == captures.streams * 40


@pytest.mark.parametrize(
    ("broken", "failed"),
    [
        ([], []),
        ([CAPTURE], []),
        ([CAPTURE, RuntimeError("out of memory")], ["RuntimeError: out of memory"]),
    ],
)
def test_a_failed_capture_is_tried_once_more_in_another_pool_and_spoils_no_other(
    captures: Captures, broken: list[Exception], failed: list[str]
) -> None:
    captures.broken, calls = [*broken], list[int]()
    capturer = GraphCapturer(torch.device("cuda"))
    replay, other = capturer.capture(lambda: calls.append(1)), capturer.capture(lambda: None)
    captured = len(calls)
    replay()
    other()
    assert capturer.failed == failed
    assert len(calls) - captured == len(failed)  # it is launched as usual, else replayed
    assert len(captures.pools) == 1 + len(broken)
    torch.cuda.empty_cache()  # as where the weights are sent away


def test_a_lost_device_is_let_through(captures: Captures) -> None:
    captures.broken = [LOST]
    capturer = GraphCapturer(torch.device("cuda"))
    with pytest.raises(torch.AcceleratorError, match="illegal memory access"):
        capturer.capture(lambda: None)
    assert capturer.failed == []


@pytest.mark.parametrize(
    ("error", "lost"), [(LOST, True), (CAPTURE, False), (RuntimeError("illegal"), False)]
)
def test_a_device_is_lost_by_all_errors_of_torch_but_those_of_a_capture(
    error: Exception, lost: bool
) -> None:
    assert is_device_lost(error) == lost


@pytest.mark.parametrize(
    "other", [lambda: GraphCapturer(torch.device("cuda")).capture(lambda: None), list]
)
def test_while_one_thread_records_no_other_records_or_uses_the_device(
    captures: Captures, other: Callable[[], object]
) -> None:
    order: list[str] = []

    def use() -> None:
        with device_lock(torch.device("cuda")):
            other()
            order.append("other")

    thread = threading.Thread(target=use)

    def function() -> None:
        if thread.ident is None:
            thread.start()
            thread.join(0.05)
        order.append("recorded")

    GraphCapturer(torch.device("cuda"), warm_ups=0).capture(function)
    thread.join()
    assert order == ["recorded", "other"]
