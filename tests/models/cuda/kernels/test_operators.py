"""A kernel is one operator, which can be recorded; on a CPU it is the reference."""

from typing import Any

import pytest
import torch

from models.cuda.kernels import operators
from models.cuda.kernels.check import inputs_of
from models.cuda.kernels.operators import NAMES
from tests.capture.tape import Tape
from tests.models.cuda.kernels.cases import USUAL

CPU = torch.device("cpu")


def first(name: str) -> tuple[Any, ...]:
    return next(inputs_of(USUAL, CPU, torch.float32)[name]())


@pytest.mark.parametrize("name", NAMES)
def test_the_operator_is_what_it_says_of_itself(name: str) -> None:
    checks = ("test_schema", "test_faketensor")
    torch.library.opcheck(getattr(operators, name), first(name), test_utils=checks)


@pytest.mark.usefixtures("without_gradients")
@pytest.mark.parametrize("name", ["norm", "gated", "store", "attend"])
def test_a_recording_holds_one_operator_and_plays_it(name: str) -> None:
    given, tape, operator = first(name), Tape(), getattr(operators, name)
    result = torch.empty_like(operator(*first(name)))
    play = tape.record(lambda: result.copy_(operator(*given)))
    assert tape.sizes == [2]  # it, and the copy

    changed = first(name)
    given[0].copy_(changed[0].mul_(1.5))
    play()
    expected = operators.reference_of(name)(*changed)
    torch.testing.assert_close(result, expected, rtol=0, atol=0, equal_nan=True)
