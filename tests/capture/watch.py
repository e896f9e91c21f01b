"""Finds what makes the host wait for a device, or copies between the two, on any device.

On a CPU such calls are free and go unnoticed; on a GPU each stops the queue, and inside a capture
each is an error. Two modes are needed: `Tensor.tolist` and the like never reach the dispatcher on a
CPU, and a mask used as an index never reaches Python's functions.
"""

import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, Literal

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

aten = torch.ops.aten

TO_HOST: Final = frozenset({
    "tolist", "item", "numpy", "cpu", "__bool__", "__int__", "__float__", "__index__", "__array__",
    "__contains__", "equal", "allclose", "is_nonzero",
})  # fmt: skip
"""Functions of torch whose result the host must wait for."""

FROM_HOST: Final = frozenset({"tensor", "as_tensor", "new_tensor", "from_numpy", "asarray"})
"""Functions of torch that copy from the host to the device; from pageable memory they wait."""

SHAPES: Final = frozenset({
    aten._local_scalar_dense, aten.nonzero, aten.nonzero_numpy, aten.masked_select, aten.argwhere,
    aten.is_nonzero, aten.equal, aten._unique2, aten.unique_dim, aten.unique_consecutive,
    aten.repeat_interleave, aten.bincount,
})  # fmt: skip
"""Operators whose result, or the shape of it, depends on the contents of a tensor."""

_INDEXING: Final = frozenset({aten.index, aten.index_put, aten.index_put_})


class NotCaptureSafe(AssertionError):
    """Something would wait for the device; the message says what and where."""


class Watch:
    """Counts every wait for a device, or raises `NotCaptureSafe` at the first."""

    def __init__(self, mode: Literal["count", "raise"] = "raise") -> None:
        self._raises = mode == "raise"
        self.inside = 0  # an operator: what one of ours does on a CPU is a kernel's own matter
        self.waits: Counter[str] = Counter()  # by ``name @ file:line`` of the caller
        self.operators: Counter[str] = Counter()  # by name with overload

    @contextmanager
    def on(self) -> Iterator["Watch"]:
        """Watch what this thread does within the context."""
        with _Functions(self), _Operators(self):
            yield self

    def note(self, what: str) -> None:
        """Count a wait, or raise `NotCaptureSafe`."""
        place = _caller()
        self.waits[f"{what} @ {place}"] += 1
        if self._raises:
            raise NotCaptureSafe(f"{what} waits for the device at {place}")


class _Mode:
    """What both modes have: whom they tell."""

    def __init__(self, watch: Watch) -> None:
        super().__init__()
        self._watch = watch


class _Functions(_Mode, TorchFunctionMode):
    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        name = getattr(func, "__name__", "")
        if not self._watch.inside and (name in TO_HOST or name in FROM_HOST):
            self._watch.note(name)
        return func(*args, **(kwargs or {}))


class _Operators(_Mode, TorchDispatchMode):
    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        packet = func.overloadpacket
        if packet in SHAPES:
            self._watch.note(str(packet))
        if packet in _INDEXING and any(
            isinstance(index, Tensor) and index.dtype in {torch.bool, torch.uint8}
            for index in args[1] or ()
        ):
            self._watch.note(f"{packet} by a mask")
        self._watch.operators[str(func)] += 1
        self._watch.inside += 1
        try:
            return func(*args, **(kwargs or {}))
        finally:
            self._watch.inside -= 1


def _caller() -> str:
    """Return file and line of the innermost frame that is neither torch's nor of this file."""
    for frame in reversed(traceback.extract_stack()):
        if "/torch/" not in frame.filename and frame.filename != __file__:
            return f"{frame.filename}:{frame.lineno}"
    return "an unknown place"
