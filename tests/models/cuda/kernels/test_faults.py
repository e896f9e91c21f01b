"""What tries the kernels at a start sees the mistakes that such kernels have."""

from importlib import import_module
from pathlib import Path

import pytest
import torch

pytest.importorskip("triton")

from tests.gpu.faults import changed
from tests.models.cuda.kernels.cases import CLOSE, USUAL, distances, few_programs, module_of

__all__ = ["few_programs"]
pytestmark = [
    pytest.mark.usefixtures("without_gradients", "few_programs"),
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),  # NumPy's, of NaN
]


FAULTS = {
    "attend": [
        ("place[None] < sees[:, None]", "place[None] <= sees[:, None]"),
        ("place[None] < sees[:, None]", "place[None] + 1 < sees[:, None]"),
        ("place[None] < sees[:, None]", "place[None] < longest"),
        ("own_head = head * GROUP + row % GROUP", "own_head = head + row % GROUP"),
        ("tl.load(seen + position, real, 0)", "tl.load(seen + position * 0, real, 0)"),
        ("pages + sequence * pages_stride + block", "pages + sequence * pages_stride"),
        ("pages + sequence * pages_stride + block", "pages + block"),
        ("tl.minimum((share + 1) * each, blocks)", "(share + 1) * each - 1"),
        ("weights = tl.exp(best - ", "weights = tl.exp(0.0 * best - 0.0 * "),
        ("        best = higher", "        pass"),
        ('input_precision="ieee") * scale', 'input_precision="ieee")'),
        ("(stored * KV_HEADS + head) * HEAD", "(stored * KV_HEADS) * HEAD"),
        ("HEAD_DIM // 4 + head", "HEAD_DIM // 4"),
        ("values.to(tl.pointer_type", "keys.to(tl.pointer_type"),
    ],
    "store": [
        ("+ 0.5)", "+ 0.0)"),
        ("origin += place * KV_HEADS * 4", "origin += 0"),
        ("wide * cos - other * sin", "wide * cos + other * sin"),
        ('< float("inf")', '<= float("inf")'),
        ("_store_heads(values,", "_store_heads(keys,"),
        ("tl.load(places + row)", "tl.load(places)"),
    ],
    "norm": [
        ("/ WIDTH + eps", "/ WIDTH"),
        ("/ WIDTH + eps", "/ BLOCK + eps"),
    ],
    "project": [
        ("row * 2 * WIDTH + WIDTH", "row * 2 * WIDTH"),
        ("column.to(tl.int64)[:, None]", "tl.arange(0, COLUMNS)[:, None]"),
        ("other = origin + outputs", "other = origin + 0 * outputs"),
        ("x + row * INPUTS + start", "x + start"),
        ("squares += entries * entries", "squares = entries * entries"),
        ("tl.load(gain + start + at", "tl.load(gain + at"),
        ("tl.load(other + start", "tl.load(origin + start"),
        ("up = up * factor", "up = up * 1.0"),
    ],
    "add_product": [
        ("found += tl.load(target", "found = tl.load(target"),
        ("out + row * outputs + column", "out + column"),
        ("tl.load(origin + start", "tl.load(origin"),
    ],
}  # fmt: skip
"""Of each kernel: what of its source becomes what."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kernel", "right", "wrong"), [(kernel, *one) for kernel in FAULTS for one in FAULTS[kernel]]
)
def test_a_mistake_in_a_kernel_is_seen(kernel: str, right: str, wrong: str, tmp_path: Path) -> None:
    source = import_module(module_of(kernel))
    module = changed(source, right, wrong, tmp_path / "faulty.py")
    found = distances(kernel, USUAL, torch.float32, module)
    assert any(far > 10 * CLOSE[torch.float32] for far in found)
