"""Whatever would wait for a device is found, and nothing else."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from tests.capture.watch import NotCaptureSafe, Watch

X = torch.arange(6.0)

WAITS: dict[str, Callable[[Tensor], object]] = {
    "item": lambda x: x.sum().item(),
    "tolist": lambda x: x.tolist(),
    "int": lambda x: int(x[0]),
    "float": lambda x: float(x[0]),
    "bool": lambda x: bool(x.any()),
    "if": lambda x: 1 if x[0] > 0 else 2,
    "in": lambda x: 3.0 in x,
    "numpy": lambda x: x.numpy(),
    "cpu": lambda x: x.cpu(),
    "a mask as an index": lambda x: x[x > 2],
    "a write by a mask": lambda x: x.clone().__setitem__(x > 2, 0.0),
    "nonzero": lambda x: x.nonzero(),
    "masked_select": lambda x: x.masked_select(x > 2),
    "unique": lambda x: x.unique(),
    "repeat_interleave": lambda x: x.repeat_interleave(x.long()),
    "bincount": lambda x: x.long().bincount(),
    "torch.equal": lambda x: torch.equal(x, x),
    "new_tensor": lambda x: x.new_tensor([1.0]),
    "torch.tensor": lambda _: torch.tensor([1.0]),
}

SAFE: dict[str, Callable[[Tensor], object]] = {
    "arithmetic": lambda x: (x + 1).softmax(-1),
    "where": lambda x: torch.where(x > 2, x, 0.0),
    "masked_fill": lambda x: x.masked_fill(x > 2, 0.0),
    "gather": lambda x: x.gather(0, x.argsort()),
    "an index of numbers": lambda x: x[torch.arange(3)],
    "index_copy": lambda x: x.index_copy(0, torch.arange(2), x[:2]),
    "views": lambda x: x.view(2, 3).T[None],
    "argmax": lambda x: x.argmax(),
    "arange": lambda _: torch.arange(4),
}


@pytest.mark.parametrize("name", WAITS)
def test_a_wait_is_counted_or_refused_and_its_place_told(name: str) -> None:
    with Watch("count").on() as watch:
        WAITS[name](X)
    assert watch.waits.total() >= 1
    with Watch("raise").on(), pytest.raises(NotCaptureSafe, match=r"test_watch\.py"):
        WAITS[name](X)


@pytest.mark.parametrize("name", SAFE)
def test_what_stays_on_the_device_passes(name: str) -> None:
    with Watch("raise").on() as watch:
        SAFE[name](X)
    assert not watch.waits
