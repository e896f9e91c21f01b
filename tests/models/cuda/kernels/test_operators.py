"""A kernel is one operator: that a recording holds no more is said by its count of kernels."""

import pytest
import torch

from models.cuda.kernels import operators
from models.cuda.kernels.check import inputs_of
from models.cuda.kernels.operators import NAMES
from tests.models.cuda.kernels.cases import USUAL


@pytest.mark.parametrize("name", NAMES)
def test_the_operator_is_what_it_says_of_itself(name: str) -> None:
    given = next(inputs_of(USUAL, torch.device("cpu"), torch.float32)[name]())
    checks = ("test_schema", "test_faketensor")
    torch.library.opcheck(getattr(operators, name), given, test_utils=checks)
