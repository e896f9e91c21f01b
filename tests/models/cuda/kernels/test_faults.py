"""The comparisons with the reference see the mistakes that such kernels have."""

import importlib.util
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import pytest
import torch

pytest.importorskip("triton")

import models.cuda.kernels.attention
import models.cuda.kernels.gated
import models.cuda.kernels.norm
import models.cuda.kernels.plain
import models.cuda.kernels.rotation
from models.cuda.kernels import reference
from samplers.ar import plain
from samplers.ar.plain import light_row, plain_row
from samplers.ar.state import Host
from samplers.knobs.params import SamplingParams
from tests.models.cuda.kernels.cases import (
    CLOSE,
    Attending,
    Storing,
    attention_differs,
    difference,
    normal,
    storing_differs,
)
from tests.models.cuda.kernels.test_plain import CODES, ROWS, STOP, drawn, fed_alike, rows_of

FLOAT = torch.float32
STEP = Attending((300, 63, 2), kv_heads=2, columns=512)
pytestmark = [
    pytest.mark.usefixtures("without_gradients"),
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),  # NumPy's, of NaN
]

Differs = Callable[[ModuleType, torch.device], float]


def _norm(module: ModuleType, device: torch.device) -> float:
    x, weight = normal(3, 100), normal(100, seed=1)
    found = module.norm(x.to(device), weight.to(device), 1e-2)
    return difference(found, reference.norm(x, weight, 1e-2))


def _gated(module: ModuleType, device: torch.device) -> float:
    both = normal(2, 2 * 1500)
    return difference(module.gated(both.to(device), "gelu"), reference.gated(both, "gelu"))


def _stored(module: ModuleType, device: torch.device) -> float:
    return storing_differs(module.store, Storing(3, 6, 2, 16, broken=True), FLOAT, device)


def _step(module: ModuleType, device: torch.device) -> float:
    return attention_differs(module.attend, STEP, FLOAT, device)


def _step_in_8_bits(module: ModuleType, device: torch.device) -> float:
    return attention_differs(module.attend, STEP, FLOAT, device, eight=True)


def _stored_in_8_bits(module: ModuleType, device: torch.device) -> float:
    return storing_differs(module.store, Storing(3, 6, 2, 16), FLOAT, device, eight=True)


def _chunk(module: ModuleType, device: torch.device) -> float:
    case = Attending((10, 60), new=20, block=5, kv_heads=2)
    return attention_differs(module.attend, case, FLOAT, device)


def _begun(module: ModuleType, device: torch.device) -> float:
    return float(not fed_alike(module.begin, 0, device))


LIGHT_KNOBS: list[dict[str, Any]] = [
    {"repetition_penalty": 1.5, "repetition_penalty_mode": "signed"},
    {"repetition_penalty": 1.5, "repetition_penalty_one_time": True},
    {"repetition_penalty": 2.0},
    {"repetition_penalty": 1.5, "repetition_penalty_window": 6},
    {"presence_penalty": 1.0},
    {"frequency_penalty": 0.7},
    {"logit_bias": {3: 3.0}, "ban_tokens": (5, 7)},
    {"min_frames": 20},
]


def _light(module: ModuleType, device: torch.device) -> float:
    """Return 1 if a code differs where nothing but penalties and the like decide."""
    params = [SamplingParams(temperature=0.0, **knobs) for knobs in LIGHT_KNOBS]
    knobs = torch.tensor([plain_row(one, CODES) for one in params], dtype=torch.float64)
    light = torch.stack([light_row(one, CODES) for one in params])
    for seed in range(6):
        logits = 1.5 + normal(ROWS, CODES, seed=seed)
        logits[:, 12:] -= 9  # so that it is one of the codes that were drawn before
        logits[2, :12] += 20  # where a factor and a difference are not alike
        logits[-1, STOP] = 9
        state = rows_of(seed, codes=12)
        state.lengths[:], state.stopped[:] = 20, False
        state.numbers[:, Host.LIMIT], state.numbers[:, Host.AVOID] = 99, -1
        state.numbers[:, Host.PARTNER] = torch.arange(ROWS)
        state.numbers[:, Host.ACTIVE] = 1
        found = drawn(module.draw, logits, state.on(device), knobs, light)
        expected = drawn(plain.draw, logits, state, knobs, light)
        if not torch.equal(found[:, 0], expected[:, 0]):
            return 1.0
    return 0.0


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
    "another head's keys": Fault(
        _step, "cached = (stored * KV_HEADS + head) * HEAD", "cached = (stored * KV_HEADS) * HEAD"
    ),
    "another head's scale": Fault(_step_in_8_bits, "HEAD_DIM // 4 + head", "HEAD_DIM // 4"),
    "the scales of keys for values": Fault(
        _step_in_8_bits, "values.to(tl.pointer_type", "keys.to(tl.pointer_type"
    ),
    "8 bits that are rounded down": Fault(_stored_in_8_bits, "+ 0.5)", "+ 0.0)"),
    "scales over the next position": Fault(
        _stored_in_8_bits, "origin += place * KV_HEADS * 4", "origin += 0"
    ),
    "no epsilon": Fault(_norm, "/ WIDTH + eps", "/ WIDTH"),
    "a mean over the padding": Fault(_norm, "/ WIDTH + eps", "/ BLOCK + eps"),
    "the gate for both": Fault(_gated, "row * 2 * WIDTH + WIDTH", "row * 2 * WIDTH"),
    "a rotation backwards": Fault(_stored, "wide * cos - other * sin", "wide * cos + other * sin"),
    "infinity that is stored": Fault(_stored, '< float("inf")', '<= float("inf")'),
    "values over keys": Fault(_stored, "_store_heads(values,", "_store_heads(keys,"),
    "a row that writes to its first page": Fault(
        _begun, "pages_stride + place // PAGE", "pages_stride"
    ),
    "a row that does not see itself": Fault(_begun, "sees + row, place + 1", "sees + row, place"),
    "a bias that is left out": Fault(_light, "x += tl.load(bias + ids, inside, 0.0)", "pass"),
    "a window one too short": Fault(_light, "back < span, -1", "back < span - 1, -1"),
    "history of another row": Fault(_light, "codes + row * codes_stride,\n", "codes,\n"),
    "occurrences that all count once": Fault(_light, "if tl.load(own + 3) > 0:", "if True:"),
    "sums that go on from what was there": Fault(
        _light, "tl.store(sums + ids, tl.zeros_like(ids).to(tl.int64), inside)", "pass"
    ),
    "a sign that is not asked": Fault(_light, "(x > 0) | (mode == RAW)", "mode == RAW"),
    "a penalty that is never additive": Fault(
        _light, "tl.where(mode == ADDITIVE, x - lowered, x * factor)", "x * factor"
    ),
    "presence for every occurrence": Fault(
        _light, "(count > 0).to(tl.float32) *", "count.to(tl.float32) *"
    ),
    "a stop that is held a frame longer": Fault(
        _light, "(length < tl.load(own)", "(length <= tl.load(own)"
    ),
    "another row's place": Fault(_stored, "tl.load(places + row)", "tl.load(places)"),
}  # fmt: skip

MODULES: dict[Differs, ModuleType] = {
    _norm: models.cuda.kernels.norm,
    _gated: models.cuda.kernels.gated,
    _stored: models.cuda.kernels.rotation,
    _stored_in_8_bits: models.cuda.kernels.rotation,
    _step: models.cuda.kernels.attention,
    _step_in_8_bits: models.cuda.kernels.attention,
    _chunk: models.cuda.kernels.attention,
    _begun: models.cuda.kernels.plain,
    _light: models.cuda.kernels.plain,
}


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


@pytest.mark.slow
@pytest.mark.parametrize("name", FAULTS)
def test_a_mistake_in_a_kernel_is_seen(name: str, tmp_path: Path, device: torch.device) -> None:
    fault = FAULTS[name]
    module = MODULES[fault.differs]
    assert fault.differs(changed(module, fault, tmp_path), device) > 10 * CLOSE[FLOAT]
