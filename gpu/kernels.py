"""Kernels of our own, each as one operator of torch: its reference on a CPU, Triton's on a GPU.

So a graph holds one operator for it, on either, and Triton is imported when one first runs on a
GPU. Which of them run, and which references do instead, say `Kernels`; `usable` finds out.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from math import inf
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor
from torch._library.custom_ops import custom_op

from gpu.lost import is_device_lost

log = logging.getLogger(__name__)

TOLERANCE: Final = {torch.float32: 2**-14, torch.bfloat16: 2**-6}
"""Of the largest entry, by type. Float32 has 24 bits: some hundred sums in another order, and an
exponential of hardware, cost a few of them. Bfloat16 has 8: a kernel rounds once where operators
round up to three times, each half a unit of the last place; the integers of 8 bits that are made of
such numbers may differ by one. A mistake costs all bits."""

Arguments = tuple[Any, ...]
"""Of a kernel."""


class Kernel(NamedTuple):
    """A kernel, and what it computes.

    Attributes:
        module: Has a function of the kernel's name that launches it, and imports Triton.
        operator: Runs the kernel on a GPU, and its reference on a CPU.
        reference: Computes the same in operators of torch.
    """

    name: str
    module: str
    operator: Callable[..., Any]
    reference: Callable[..., Any]

    @classmethod
    def of(
        cls,
        reference: Callable[..., Any],
        module: str,
        result: Callable[..., object],
        mutates: Sequence[str] = (),
    ) -> "Kernel":
        """Return a kernel by the name of its reference.

        Args:
            reference: See the class.
            module: See the class.
            result: Makes what has the shape of its result.
            mutates: The arguments that it changes.
        """
        name = reference.__name__

        def on_gpu(*arguments: Any) -> Any:
            return getattr(import_module(module), name)(*arguments)

        operator = custom_op(f"valle::{name}", reference, mutates_args=mutates, device_types="cpu")
        operator.register_kernel("cuda")(on_gpu)
        operator.register_fake(result)
        return cls(name, module, operator, reference)


@dataclass(frozen=True)
class Kernels:
    """Which kernels run where a function is captured; for others their references run."""

    # Whether kernels run at all
    enabled: bool = True
    # Why some do not run, by name
    failed: Mapping[str, str] = field(default_factory=dict)
    # Names of those that were tried, in order
    tried: Sequence[str] = field(default=(), compare=False)

    def __str__(self) -> str:
        """Return which were tried and run, and why others do not."""
        fused = ", ".join(name for name in self.tried if self.runs(name))
        reasons = (f"{name} is torch's: {why}" for name, why in self.failed.items())
        return "; ".join([f"fused: {fused or 'none'}", *reasons])

    def runs(self, name: str) -> bool:
        """Return whether a kernel runs."""
        return self.enabled and name not in self.failed

    def of(self, kernel: Kernel) -> Callable[..., Any]:
        """Return a kernel: one operator if it runs, else its reference."""
        return kernel.operator if self.runs(kernel.name) else kernel.reference


FUSED: Final = Kernels()
TORCH: Final = Kernels(enabled=False)


def _as_it_is(tensor: Tensor) -> Tensor:
    return tensor


class Trial(NamedTuple):
    """A kernel to try.

    Attributes:
        inputs: Makes arguments.
        numbers: Returns the numbers that a tensor stands for, which are compared.
    """

    kernel: Kernel
    inputs: Callable[[], Iterable[Arguments]]
    numbers: Callable[[Tensor], Tensor] = _as_it_is


class RandomInputs:
    """Random tensors to try kernels with: the same numbers on every device.

    ``dtype`` is that of floats where none is named.
    """

    def __init__(self, device: torch.device, dtype: torch.dtype = torch.float32) -> None:
        self._device = device
        self._dtype = dtype
        self._chance = torch.Generator().manual_seed(0)

    def normal(self, *shape: int, dtype: torch.dtype | None = None) -> Tensor:
        """Return floats ``shape``, normally distributed."""
        floats = torch.randn(shape, generator=self._chance)
        return floats.to(self._device, dtype or self._dtype)

    def whole(self, high: int, *shape: int) -> Tensor:
        """Return integers ``shape`` int64 from 0 to below a bound."""
        return torch.randint(high, shape, generator=self._chance).to(self._device)

    def each_once(self, *shape: int) -> Tensor:
        """Return the integers below the number of entries ``shape``, int64, in random order."""
        count = torch.Size(shape).numel()
        return torch.randperm(count, generator=self._chance).view(shape).to(self._device)


def usable(trials: Iterable[Trial]) -> Kernels:
    """Return the kernels that compute on the device of their arguments what references do.

    One that does not, or that cannot be compiled, is left to torch's operators, with a warning.
    """
    tried: list[str] = []
    failed: dict[str, str] = {}
    for trial in trials:
        kernel = trial.kernel
        tried.append(kernel.name)
        try:
            with torch.inference_mode():
                why = _difference(trial)
        except Exception as error:
            if is_device_lost(error):
                raise
            log.warning("the kernel %s cannot run", kernel.name, exc_info=True)
            why = f"{type(error).__name__}: {error}".splitlines()[0][:200]
        if why:
            log.warning("the kernel %s is left to torch's operators: %s", kernel.name, why)
            failed[kernel.name] = why
    return Kernels(failed=failed, tried=tried)


def _difference(trial: Trial) -> str:
    """Return in what an operator differs from its reference more than the type allows; or ""."""
    kernel = trial.kernel
    for arguments in trial.inputs():
        far = distance(kernel.operator, kernel.reference, arguments, trial.numbers)
        if far > TOLERANCE.get(arguments[0].dtype, 0.0):
            shapes = ", ".join(str([*tensor.shape]) for tensor in _tensors(arguments))
            return f"differs by {far:.2g} of the largest entry, of {shapes}"
    return ""


def distance(
    kernel: Callable[..., Any],
    reference: Callable[..., Any],
    arguments: Arguments,
    numbers: Callable[[Tensor], Tensor] = _as_it_is,
) -> float:
    """Return by how much results, and what is changed of the arguments, differ at most.

    As a share of the largest entry, at least 1; infinite where whole numbers or NaN differ. Of each
    tensor, ``numbers`` returns what is compared.
    """
    own, other = (
        [value.clone() if isinstance(value, Tensor) else value for value in arguments]
        for _ in range(2)
    )
    pairs = zip(
        map(numbers, (*_tensors([kernel(*own)]), *_tensors(own))),
        map(numbers, (*_tensors([reference(*other)]), *_tensors(other))),
        strict=True,
    )
    return max(_apart(found, expected) for found, expected in pairs)


def _apart(found: Tensor, expected: Tensor) -> float:
    if not found.is_floating_point():
        return 0.0 if torch.equal(found, expected) else inf
    if not torch.equal(found.isnan(), expected.isnan()):
        return inf
    away = (found.double() - expected.double()).nan_to_num(0.0, inf, inf).abs().max()
    largest = expected.double().nan_to_num(0.0, 0.0, 0.0).abs().max().clamp(min=1.0)
    return (away / largest).item()


def _tensors(values: Iterable[Any]) -> Iterator[Tensor]:
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, tuple):
            yield from _tensors(value)
