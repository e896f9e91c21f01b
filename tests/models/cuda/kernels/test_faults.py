"""What tries the kernels at a start sees the mistakes that such kernels have."""

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import pytest
import torch

pytest.importorskip("triton")

from samplers.ar import plain
from samplers.ar.state import Host
from tests.models.cuda.kernels.cases import CLOSE, USUAL, distances, few_programs, module_of, normal
from tests.models.cuda.kernels.test_plain import (
    CODES,
    PENALISED,
    ROWS,
    STOP,
    drawn,
    records,
    rows_of,
)

__all__ = ["few_programs"]
FLOAT = torch.float32
pytestmark = [
    pytest.mark.usefixtures("without_gradients", "few_programs"),
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),  # NumPy's, of NaN
]


def code_differs(module: ModuleType, device: torch.device) -> bool:
    """Return whether a code differs where nothing but penalties and the like decide."""
    table = records([knobs | {"temperature": 0.0} for knobs in PENALISED], 0)
    for seed in range(6):
        logits = 1.5 + normal(ROWS, CODES, seed=seed)
        logits[:, 12:] -= 9  # so that it is one of the codes that were drawn before
        logits[2, STOP] = 9
        logits[3, :12] += 20  # where a factor and a difference are not alike
        state = rows_of(seed, codes=12)
        state.lengths[:], state.stopped[:] = 20, False
        state.numbers[:, Host.LIMIT], state.numbers[:, Host.AVOID] = 99, -1
        state.numbers[:, Host.PARTNER] = torch.arange(ROWS)
        state.numbers[:, Host.ACTIVE] = 1
        found = drawn(module.draw, logits, state.on(device), table)
        expected = drawn(plain.draw, logits, state, table)
        if not torch.equal(found[:, 0], expected[:, 0]):
            return True
    return False


class Fault(NamedTuple):
    """A mistake: what of a kernel's source becomes what."""

    kernel: str
    right: str
    wrong: str


FAULTS = {
    "a mask that is one too long": Fault(
        "attend", "place[None] < sees[:, None]", "place[None] <= sees[:, None]"
    ),
    "a mask that is one too short": Fault(
        "attend", "place[None] < sees[:, None]", "place[None] + 1 < sees[:, None]"
    ),
    "a frame that sees what its tile sees": Fault(
        "attend", "place[None] < sees[:, None]", "place[None] < longest"
    ),
    "heads that do not share": Fault(
        "attend", "own_head = head * GROUP + row % GROUP", "own_head = head + row % GROUP"
    ),
    "frames that see what the first sees": Fault(
        "attend", "tl.load(seen + position, real, 0)", "tl.load(seen + position * 0, real, 0)"
    ),
    "a stale page": Fault(
        "attend", "pages + sequence * pages_stride + block", "pages + sequence * pages_stride"
    ),
    "another's pages": Fault("attend", "pages + sequence * pages_stride + block", "pages + block"),
    "a share that is left out": Fault(
        "attend", "tl.minimum((share + 1) * each, blocks)", "(share + 1) * each - 1"
    ),
    "shares on different levels": Fault(
        "attend", "weights = tl.exp(best - ", "weights = tl.exp(0.0 * best - 0.0 * "
    ),
    "a maximum that is not carried on": Fault("attend", "        best = higher", "        pass"),
    "no scale": Fault("attend", 'input_precision="ieee") * scale', 'input_precision="ieee")'),
    "another head's keys": Fault(
        "attend", "(stored * KV_HEADS + head) * HEAD", "(stored * KV_HEADS) * HEAD"
    ),
    "another head's scale": Fault("attend", "HEAD_DIM // 4 + head", "HEAD_DIM // 4"),
    "the scales of keys for values": Fault(
        "attend", "values.to(tl.pointer_type", "keys.to(tl.pointer_type"
    ),
    "8 bits that are rounded down": Fault("store", "+ 0.5)", "+ 0.0)"),
    "scales over the next position": Fault(
        "store", "origin += place * KV_HEADS * 4", "origin += 0"
    ),
    "no epsilon": Fault("norm", "/ WIDTH + eps", "/ WIDTH"),
    "a mean over the padding": Fault("norm", "/ WIDTH + eps", "/ BLOCK + eps"),
    "the gate for both": Fault("gated", "row * 2 * WIDTH + WIDTH", "row * 2 * WIDTH"),
    "a rotation backwards": Fault("store", "wide * cos - other * sin", "wide * cos + other * sin"),
    "infinity that is stored": Fault("store", '< float("inf")', '<= float("inf")'),
    "values over keys": Fault("store", "_store_heads(values,", "_store_heads(keys,"),
    "a bias that is left out": Fault("draw", "x += tl.load(bias + ids, inside, 0.0)", "pass"),
    "a window one too short": Fault("draw", "back < span, -1", "back < span - 1, -1"),
    "history of another row": Fault(
        "draw", "row * SIZE, codes + row * codes_stride", "row * SIZE, codes"
    ),
    "occurrences that all count once": Fault("draw", "if tl.load(own + ONCE) > 0:", "if True:"),
    "sums that go on from what was there": Fault(
        "draw", "tl.store(sums + ids, tl.zeros_like(ids).to(tl.int64), inside)", "pass"
    ),
    "a sign that is not asked": Fault("draw", "(x > 0) | (mode == RAW)", "mode == RAW"),
    "a penalty that is never additive": Fault(
        "draw", "tl.where(mode == ADDITIVE, x - lowered, x * factor)", "x * factor"
    ),
    "presence for every occurrence": Fault(
        "draw", "(count > 0).to(tl.float32) *", "count.to(tl.float32) *"
    ),
    "a stop that is held a frame longer": Fault(
        "draw", "(length < tl.load(own + LEAST)", "(length <= tl.load(own + LEAST)"
    ),
    "another row's place": Fault("store", "tl.load(places + row)", "tl.load(places)"),
}  # fmt: skip


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


def test_without_one_the_likeliest_code_is_that_of_the_sampler(device: torch.device) -> None:
    assert not code_differs(module_of("draw"), device)


@pytest.mark.slow
@pytest.mark.parametrize("name", FAULTS)
def test_a_mistake_in_a_kernel_is_seen(name: str, tmp_path: Path, device: torch.device) -> None:
    fault = FAULTS[name]
    module = changed(module_of(fault.kernel), fault, tmp_path)
    if fault.kernel == "draw":
        assert code_differs(module, device)
    else:
        found = distances(fault.kernel, USUAL, FLOAT, module)
        assert any(far > 10 * CLOSE[FLOAT] for far in found)
