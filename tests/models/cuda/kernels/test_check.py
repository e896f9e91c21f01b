"""Each kernel computes what torch's operators do; one that does not is left to torch."""

import logging
from typing import Any

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton")

from gpu.kernels import TORCH, distance, usable
from models.cuda.kernels import operators, reference
from models.cuda.kernels.check import trials
from models.cuda.kernels.sharing import sharing
from samplers import plain
from samplers.cuda import check as sampling
from tests.models.cuda.kernels.cases import CLOSE, SIZES, USUAL, distances, few_programs, trial_of

__all__ = ["few_programs"]
CPU = torch.device("cpu")
FLOAT, NARROW = torch.float32, torch.bfloat16
NAMES = [kernel.name for kernel in operators.KERNELS]
SLOW = {*SIZES} - {"usual"}


@pytest.mark.usefixtures("without_gradients", "few_programs")
@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # NumPy's, of NaN and wrapping
@pytest.mark.parametrize("dtype", [FLOAT, NARROW])
@pytest.mark.parametrize(
    "size", [pytest.param(one, marks=pytest.mark.slow if one in SLOW else ()) for one in SIZES]
)
@pytest.mark.parametrize("name", NAMES)
def test_a_kernel_computes_what_its_reference_does_and_reads_nothing_that_is_not_seen(
    name: str, size: str, dtype: torch.dtype
) -> None:
    # A product between norm and gate is of three roundings, which the interpreter makes downwards.
    roundings = 2 if (name, dtype) == ("project", NARROW) else 1
    assert max(distances(name, SIZES[size], dtype)) < roundings * CLOSE[dtype]


@pytest.mark.parametrize("name", NAMES)
def test_the_operator_is_what_it_says_of_itself(name: str) -> None:
    trial = trial_of(name, USUAL, CPU, FLOAT)
    checks = ("test_schema", "test_faketensor")
    operator: Any = trial.kernel.operator
    torch.library.opcheck(operator, next(iter(trial.inputs())), test_utils=checks)


@pytest.mark.parametrize("queries", [1, 3, 16, 100, 1000])
@pytest.mark.parametrize("columns", [1, 64, 256, 1075, 4096])
@pytest.mark.parametrize("dtype", [FLOAT, NARROW])
def test_positions_are_shared_out_only_where_a_card_would_idle(
    queries: int, columns: int, dtype: torch.dtype
) -> None:
    rows, tiles, shares = sharing(queries, 2, 4, columns, dtype)
    assert rows & (rows - 1) == shares & (shares - 1) == 0
    assert rows * tiles >= queries > rows * (tiles - 1)
    assert shares == 1 or (shares * tiles * 8 <= 256 and shares * 64 <= columns)
    assert sharing(1, 1, 16, 1075, dtype).shares == 16


def test_where_all_compute_the_same_all_are_fused() -> None:
    kernels = usable(trials(USUAL, CPU, FLOAT))
    assert kernels.failed == {}
    assert all(map(kernels.runs, NAMES))
    assert str(kernels) == "fused: norm, project, add_product, store, attend"
    assert str(TORCH) == "fused: none"


def cannot_run(*_: Any) -> None:
    raise RuntimeError("no C compiler")


def sees_less(queries: Tensor, keys: Tensor, values: Tensor, seen: Tensor, pages: Tensor) -> Tensor:
    return reference.attend(queries, keys, values, (seen - 1).clamp(min=1), pages)


def stores_no_values(qkv: Tensor, at: Tensor, keys: Tensor, values: Tensor, *rest: Any) -> Tensor:
    return reference.store(qkv, at, keys, values.clone(), *rest)


@pytest.mark.parametrize(
    ("name", "other", "why"),
    [
        *((name, cannot_run, "RuntimeError: no C compiler") for name in (*NAMES, "sample")),
        ("attend", sees_less, "of the largest entry, of [128, 6, 10]"),
        ("sample", lambda logits, *rest: plain.sample(-logits, *rest), "of the largest entry"),
        ("store", stores_no_values, "of the largest entry"),
    ],
)
def test_one_that_cannot_run_or_computes_something_else_is_left_to_torch_and_told(
    name: str, other: Any, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    every = [*trials(USUAL, CPU, FLOAT), sampling.trial(USUAL.codes + 1, USUAL.stop_token, CPU)]
    faulty = [
        trial._replace(kernel=trial.kernel._replace(operator=other))
        if trial.kernel.name == name
        else trial
        for trial in every
    ]
    with caplog.at_level(logging.WARNING):
        kernels = usable(faulty)
    assert [one for one in kernels.tried if not kernels.runs(one)] == [name]
    assert why in kernels.failed[name]
    assert f"{name} is torch's: {kernels.failed[name]}" in str(kernels)
    assert name in caplog.text


def test_the_distance_is_a_share_of_the_largest_entry_of_results_and_of_what_is_changed() -> None:
    x, broken = torch.linspace(-4, 4, 9), torch.tensor([1.0, torch.nan])
    assert distance(lambda x: x + 1e-2, lambda x: x, (x,)) == pytest.approx(1e-2 / 4, rel=1e-3)
    assert distance(lambda x: x.add_(1), lambda x: x + 1, (x,)) == pytest.approx(1 / 4)
    assert distance(lambda x: (x, x > 0), lambda x: (x, x >= 0), (x,)) == torch.inf
    assert distance(lambda x: x, lambda x: x.nan_to_num(), (broken,)) == torch.inf
    assert distance(lambda x: x / 0, lambda x: -x / 0, (x,)) == torch.inf
