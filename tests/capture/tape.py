"""A CUDA graph on a CPU.

Recording runs a function once, notes every operator with the very tensors and numbers that it was
given, and undoes what was written to memory that existed before. Playing runs the **operators**
again, never the function: on the captured memory, with the captured numbers. So whatever a graph
would get wrong is wrong here: a number of the host that was baked in, a buffer that was replaced
after the graph, a result that nobody copies out, a Python branch that should have been data.

Recordings share the memory of their temporaries, so between two plays those of each are spoilt:
NaN, or -1 of whole numbers. What is read before it is written, or after the play, shows.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from tests.capture.watch import Watch

ALLOCATIONS: Final = frozenset({
    "empty", "empty_like", "new_empty", "empty_strided", "new_empty_strided",
})  # fmt: skip
"""Operators that give memory and queue no kernel."""

Replay = Callable[[], None]
Captured = Callable[[], object]


class Queued(NamedTuple):
    """One operator, of ``torch.ops``, as it was queued."""

    operator: Any
    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    outputs: Sequence[Tensor]  # a replay writes into those that it made


class Tape:
    """Records functions; takes the place of `gpu.graphs.Recorder`."""

    failed: Sequence[str] = ()

    def __init__(self, *_: Any) -> None:
        self.sizes: list[int] = []  # operators of each graph, views left out
        self.replays = 0

    def capture(self, function: Captured) -> Replay:
        """Return what plays a function, which works on tensors that stay where they are.

        Raises:
            NotCaptureSafe: The function would wait for the device.
        """
        graph = _Recording()
        with Watch("raise").on(), graph:
            function()
        graph.undo()
        queue, temporaries = graph.queue, graph.temporaries
        self.sizes.append(len(queue))
        _spoil(temporaries)

        @torch.inference_mode()
        def replay() -> None:
            self.replays += 1
            for one in queue:
                _run(one)
            _spoil(temporaries)

        return replay


class _Recording(TorchDispatchMode):
    """Notes the operators that run within the context, and the memory that they make."""

    def __init__(self) -> None:
        super().__init__()
        self.queue: list[Queued] = []  # in order, but for views and allocations
        self.temporaries: list[torch.UntypedStorage] = []
        self._made: set[int] = set()
        self._before: dict[int, tuple[torch.UntypedStorage, torch.UntypedStorage]] = {}

    def undo(self) -> None:
        """Give memory that existed before the contents that it had: a capture runs nothing."""
        for storage, contents in self._before.values():
            storage.copy_(contents)

    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        inputs = {_address(one) for one in _tensors((args, kwargs))}
        writes = func._schema.is_mutable
        if writes:
            self._save(args, kwargs)
        result = func(*args, **kwargs)
        outputs = list(_tensors(result))
        fresh = [one for one in outputs if _address(one) not in inputs]
        self._made.update(map(_address, fresh))
        self.temporaries += [one.untyped_storage() for one in fresh]
        if func.overloadpacket.__name__ not in ALLOCATIONS and (writes or fresh):
            self.queue.append(Queued(func, args, kwargs, outputs))
        return result

    def _save(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        for one in _tensors((args, kwargs)):
            storage, address = one.untyped_storage(), _address(one)
            if address not in self._made and address not in self._before:
                self._before[address] = storage, storage.clone()


def _spoil(temporaries: Sequence[torch.UntypedStorage]) -> None:
    for storage in temporaries:
        storage.fill_(0xFF)  # type: ignore[attr-defined]  # of floats, NaN


def _run(queued: Queued) -> None:
    """Run an operator again; its result has another shape only if that depends on contents."""
    results = _tensors(queued.operator(*queued.args, **queued.kwargs))
    for output, result in zip(queued.outputs, results, strict=False):
        if _address(output) == _address(result):
            continue
        assert output.shape == result.shape, (
            f"{queued.operator} gave {tuple(output.shape)} and gives {tuple(result.shape)}"
        )
        output.copy_(result)


def _tensors(value: Any) -> Iterator[Tensor]:
    """Yield the tensors among arguments or results; `tree_leaves` takes most of a graph."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, list | tuple | dict):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _tensors(part)


def _address(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()
