"""The comparisons with the reference see the mistakes that such kernels have."""

import importlib.util
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import pytest
import torch

pytest.importorskip("triton")

import models.cuda.kernels.attention
import models.cuda.kernels.gated
import models.cuda.kernels.norm
import models.cuda.kernels.rotation
from models.cuda.kernels import reference
from tests.models.cuda.kernels.cases import (
    CLOSE,
    Attending,
    attention_differs,
    difference,
    normal,
    storing_differs,
)

FLOAT = torch.float32
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # NumPy's, of NaN

Differs = Callable[[ModuleType, torch.device], float]


def _norm(module: ModuleType, device: torch.device) -> float:
    x, weight = normal(3, 100), normal(100, seed=1)
    found = module.norm(x.to(device), weight.to(device), 1e-2)
    return difference(found, reference.norm(x, weight, 1e-2))


def _gated(module: ModuleType, device: torch.device) -> float:
    both = normal(2, 2 * 1500)
    return difference(module.gated(both.to(device), "gelu"), reference.gated(both, "gelu"))


def _stored(module: ModuleType, device: torch.device) -> float:
    return storing_differs(module.store, 3, 6, 2, 16, FLOAT, device, paged=False, broken=True)


def _step(module: ModuleType, device: torch.device) -> float:
    case = Attending((300, 63, 2), kv_heads=2, columns=512)
    return attention_differs(module.attend, case, FLOAT, device, paged=False)


def _chunk(module: ModuleType, device: torch.device) -> float:
    case = Attending((10, 60), new=20, block=5, kv_heads=2)
    return attention_differs(module.attend, case, FLOAT, device, paged=True)


class Fault(NamedTuple):
    """A mistake: what of a kernel's source becomes what, and what should see it."""

    differs: Differs
    right: str
    wrong: str


FAULTS = {
    "a mask that is one too long": Fault(
        _step, "place[None] < sees[:, None]", "place[None] <= sees[:, None]"
    ),
    "a mask that is one too short": Fault(
        _step, "place[None] < sees[:, None]", "place[None] + 1 < sees[:, None]"
    ),
    "a frame that sees what its tile sees": Fault(
        _chunk, "place[None] < sees[:, None]", "place[None] < longest"
    ),
    "heads that do not share": Fault(
        _step, "own_head = head * GROUP + row % GROUP", "own_head = head + row % GROUP"
    ),
    "frames that see what the first sees": Fault(
        _chunk, "tl.load(seen + position, real, 0)", "tl.load(seen + position * 0, real, 0)"
    ),
    "a stale page": Fault(
        _chunk, "pages + sequence * pages_stride + block", "pages + sequence * pages_stride"
    ),
    "another's pages": Fault(_chunk, "pages + sequence * pages_stride + block", "pages + block"),
    "a share that is left out": Fault(
        _step, "tl.minimum((share + 1) * each, blocks)", "(share + 1) * each - 1"
    ),
    "shares on different levels": Fault(
        _step, "weights = tl.exp(best - ", "weights = tl.exp(0.0 * best - 0.0 * "
    ),
    "a maximum that is not carried on": Fault(_step, "        best = higher", "        pass"),
    "no scale": Fault(_step, 'input_precision="ieee") * scale', 'input_precision="ieee")'),
    "another's slot": Fault(_step, "cached += sequence * slot_stride", "cached += slot_stride"),
    "no epsilon": Fault(_norm, "/ WIDTH + eps", "/ WIDTH"),
    "a mean over the padding": Fault(_norm, "/ WIDTH + eps", "/ BLOCK + eps"),
    "the gate for both": Fault(_gated, "row * 2 * WIDTH + WIDTH", "row * 2 * WIDTH"),
    "a rotation backwards": Fault(_stored, "wide * cos - other * sin", "wide * cos + other * sin"),
    "infinity that is stored": Fault(_stored, '< float("inf")', '<= float("inf")'),
    "values over keys": Fault(_stored, "target = values + cached", "target = keys + cached"),
    "another row's place": Fault(_stored, "tl.load(places + row)", "tl.load(places)"),
}  # fmt: skip

MODULES: dict[Differs, ModuleType] = {
    _norm: models.cuda.kernels.norm,
    _gated: models.cuda.kernels.gated,
    _stored: models.cuda.kernels.rotation,
    _step: models.cuda.kernels.attention,
    _chunk: models.cuda.kernels.attention,
}


@pytest.fixture(autouse=True)
def without_gradients() -> Iterator[None]:
    with torch.inference_mode():
        yield


def changed(module: ModuleType, fault: Fault, folder: Path) -> ModuleType:
    assert module.__file__
    source = Path(module.__file__).read_text(encoding="utf-8")
    assert fault.right in source
    path = folder / "faulty.py"
    path.write_text(source.replace(fault.right, fault.wrong), encoding="utf-8")
    spec = importlib.util.spec_from_file_location("faulty", path)
    assert spec
    assert spec.loader
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


@pytest.mark.parametrize("differs", MODULES)
def test_a_kernel_without_one_is_close(differs: Differs, device: torch.device) -> None:
    assert differs(MODULES[differs], device) < CLOSE[FLOAT]


@pytest.mark.parametrize("name", FAULTS)
def test_a_mistake_in_a_kernel_is_seen(name: str, tmp_path: Path, device: torch.device) -> None:
    fault = FAULTS[name]
    module = MODULES[fault.differs]
    assert fault.differs(changed(module, fault, tmp_path), device) > 10 * CLOSE[FLOAT]
