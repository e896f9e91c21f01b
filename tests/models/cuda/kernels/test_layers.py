"""The kernels of a layer compute what operators of torch do."""

import pytest
import torch

pytest.importorskip("triton")

from models.cuda.kernels import reference
from models.cuda.kernels.gated import gated
from models.cuda.kernels.norm import norm
from models.cuda.kernels.rotation import store
from tests.models.cuda.kernels.cases import (
    CLOSE,
    STEP,
    Storing,
    difference,
    normal,
    storing_differs,
)

DTYPES = [torch.float32, torch.bfloat16]
pytestmark = [
    pytest.mark.usefixtures("without_gradients"),
    pytest.mark.filterwarnings("ignore::RuntimeWarning:triton"),  # NumPy, of NaN
]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("rows", "width"), [(1, 64), (3, 100), (5, 1024), (2, 7)])
def test_norm_is_that_of_torch(
    rows: int, width: int, dtype: torch.dtype, device: torch.device
) -> None:
    x, weight = normal(rows, width).to(dtype), normal(width, seed=1).to(dtype)
    found = norm(x.to(device), weight.to(device), 1e-5)
    assert found.dtype == dtype
    assert difference(found, reference.norm(x, weight, 1e-5)) < CLOSE[dtype]


def test_norm_of_zeros_is_zero_and_one_row_of_nan_stays_alone(device: torch.device) -> None:
    x = torch.stack([torch.zeros(24), normal(24), torch.full((24,), torch.nan)])
    found = norm(x.to(device), torch.ones(24, device=device), 1e-5)
    assert difference(found, reference.norm(x, torch.ones(24), 1e-5)) < CLOSE[torch.float32]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("activation", ["silu", "gelu"])
@pytest.mark.parametrize(("rows", "width"), [(1, 16), (4, 1024), (3, 1500)])
def test_the_gate_is_that_of_torch(
    rows: int, width: int, activation: str, dtype: torch.dtype, device: torch.device
) -> None:
    both = 2 * normal(rows, 2 * width).to(dtype)
    found = gated(both.to(device), activation)
    assert difference(found, reference.gated(both, activation)) < CLOSE[dtype]


@pytest.mark.parametrize("eight", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "case",
    [
        Storing(1, 1, 1, 8), Storing(1, 8, 2, 24), Storing(3, 6, 3, 16), Storing(5, 16, 16, 64),
        Storing(17, 3, 1, 32), Storing(4, 4, 2, 16, broken=True),
    ],
)  # fmt: skip
def test_queries_are_rotated_and_keys_and_values_stored_with_0_for_what_is_not_finite(
    case: Storing, dtype: torch.dtype, eight: bool, device: torch.device
) -> None:
    rounding = STEP if eight and dtype == torch.bfloat16 else 0.0
    assert storing_differs(store, case, dtype, device, eight=eight) < CLOSE[dtype] + rounding
