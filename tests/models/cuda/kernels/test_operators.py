"""A kernel is one operator, whose kernel on a CPU is the reference, and which can be recorded."""

import pytest
import torch
from torch import Tensor

from models.cuda.kernels import operators, reference
from tests.capture.tape import Tape
from tests.models.cuda.kernels.cases import normal

pytestmark = pytest.mark.usefixtures("without_gradients")

NAMES = ("norm", "gated", "store", "attend")
SEEN, PLACES = torch.tensor([[5], [70]]), torch.tensor([4, 8])
PAGES = torch.tensor([[0, 0], [1, 2]])
ROTATIONS = torch.polar(torch.ones(2, 1, 8), normal(2, 1, 8))


def arguments(name: str) -> tuple[object, ...]:
    cached = normal(192, 2, 16, seed=1), normal(192, 2, 16, seed=2)
    return {
        "norm": (normal(3, 24), normal(24), 1e-5),
        "gated": (normal(3, 24), "silu"),
        "store": (normal(2, 8, 16), ROTATIONS, *cached, PLACES),
        "attend": (normal(2, 4, 16), *cached, SEEN, PAGES),
    }[name]


@pytest.mark.parametrize("name", NAMES)
def test_the_operator_is_the_reference_on_a_cpu(name: str) -> None:
    one, other = arguments(name), arguments(name)
    assert torch.equal(getattr(operators, name)(*one), getattr(reference, name)(*other))
    for left, right in zip(one, other, strict=True):
        assert not isinstance(left, Tensor) or torch.equal(left, right)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", NAMES)
def test_the_operator_is_what_it_says_of_itself(name: str) -> None:
    with torch.inference_mode(False):
        given = arguments(name)
        checks = ("test_schema", "test_faketensor")
        torch.library.opcheck(getattr(operators, name), given, test_utils=checks)


@pytest.mark.parametrize("name", NAMES)
def test_a_recording_holds_one_operator_and_plays_it(name: str) -> None:
    given, tape = arguments(name), Tape()
    result = torch.empty_like(getattr(operators, name)(*arguments(name)))

    def function() -> None:
        result.copy_(getattr(operators, name)(*given))

    play = tape.record(function)
    assert tape.sizes == [2]  # it, and the copy
    first = given[0]
    assert isinstance(first, Tensor)
    first.mul_(1.5)
    play()
    changed = list(arguments(name))
    changed[0] = normal(*first.shape) * 1.5
    assert torch.equal(result, getattr(reference, name)(*changed))
