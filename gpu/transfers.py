"""Transfers between host and device that neither side waits for, through pinned memory."""

import sys
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

DEPTH = 64  # transfers of one kind that may be on their way, if nothing else is said


class Upload:
    """Copies of the host's numbers to one tensor, each as they were when it was queued."""

    def __init__(self, target: Tensor, depth: int = DEPTH) -> None:
        self._target = target
        self._depth = depth
        self._pinned = _pinned(target, depth)
        self._numbers = self._pinned.numpy()
        self._next = 0

    def send(self, numbers: NDArray[Any]) -> None:
        """Queue a copy; ``numbers``, in the target's shape, may change afterwards."""
        place = self._next = (self._next + 1) % self._depth
        self._numbers[place] = numbers
        self._target.copy_(self._pinned[place], non_blocking=True)


class Download:
    """Copies of one tensor to the host, each of what it held when the copy was queued."""

    def __init__(self, source: Tensor, depth: int = DEPTH) -> None:
        self._source = source
        self._depth = depth
        self._pinned = _pinned(source, depth)
        self._numbers = self._pinned.numpy()
        self._most = [0] * depth
        self._arrived = [
            torch.cuda.Event() if source.is_cuda else None  # type: ignore[no-untyped-call]
            for _ in range(depth)
        ]
        self._next = 0

    def fetch(self, most: int = sys.maxsize) -> int:
        """Queue a copy; returns its ticket for `wait`, valid for the next ``depth`` copies.

        ``most`` are the first rows that are copied, if not all are wanted.
        """
        place = self._next = (self._next + 1) % self._depth
        self._most[place] = most
        self._pinned[place, :most].copy_(self._source[:most], non_blocking=True)
        if (arrived := self._arrived[place]) is not None:
            arrived.record()
        return place

    def wait(self, ticket: int) -> NDArray[Any]:
        """Return what a copy brought, once it has arrived."""
        if (arrived := self._arrived[ticket]) is not None:
            arrived.synchronize()
        return np.array(self._numbers[ticket, : self._most[ticket]])


def to_device(numbers: object, device: torch.device) -> Tensor:
    """Return numbers of the host, as `torch.tensor` takes them, on a device; nobody waits."""
    held = torch.tensor(numbers)
    if device.type == "cuda":  # `torch.tensor` itself does not pin what comes from numpy
        held = held.pin_memory()
    return held.to(device, non_blocking=True)


def _pinned(like: Tensor, depth: int) -> Tensor:
    return torch.zeros((depth, *like.shape), dtype=like.dtype, pin_memory=like.is_cuda)
