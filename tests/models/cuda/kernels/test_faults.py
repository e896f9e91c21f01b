"""What tries the kernels at a start sees the mistakes that such kernels have."""

from pathlib import Path
from types import ModuleType

import pytest
import torch

pytest.importorskip("triton")

from tests.models.cuda.kernels.cases import CLOSE, USUAL, distances, few_programs, module_of
from tests.models.cuda.kernels.test_plain import GREEDY, assert_sampled_as_by_the_sampler

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
    "sample": [
        ("x += tl.load(bias + ids, inside, 0.0)", "pass"),
        ("back < span, -1", "back < span - 1, -1"),
        ("row * SIZE, codes + row * codes_stride", "row * SIZE, codes"),
        ("if tl.load(own + ONCE) > 0:", "if True:"),
        ("tl.store(sums + ids, tl.zeros_like(ids).to(tl.int64), inside)", "pass"),
        ("(x > 0) | (mode == RAW)", "mode == RAW"),
        ("tl.where(mode == ADDITIVE, x - lowered, x * factor)", "x * factor"),
        ("(count > 0).to(tl.float32) *", "count.to(tl.float32) *"),
        ("(length < tl.load(own + LEAST)", "(length <= tl.load(own + LEAST)"),
    ],
}  # fmt: skip
"""Of each kernel: what of its source becomes what."""


def changed(module: ModuleType, right: str, wrong: str, path: Path) -> ModuleType:
    assert module.__file__
    source, made = Path(module.__file__).read_text(encoding="utf-8"), ModuleType("faulty")
    assert right in source
    path.write_text(source.replace(right, wrong), encoding="utf-8")  # where Triton reads it
    exec(compile(path.read_text(encoding="utf-8"), path, "exec"), vars(made))
    return made


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kernel", "right", "wrong"), [(kernel, *one) for kernel in FAULTS for one in FAULTS[kernel]]
)
def test_a_mistake_in_a_kernel_is_seen(
    kernel: str, right: str, wrong: str, tmp_path: Path, device: torch.device
) -> None:
    module = changed(module_of(kernel), right, wrong, tmp_path / "faulty.py")
    if kernel == "sample":
        with pytest.raises(AssertionError):
            assert_sampled_as_by_the_sampler(module.sample, GREEDY, range(8), device)
    else:
        found = distances(kernel, USUAL, torch.float32, module)
        assert any(far > 10 * CLOSE[torch.float32] for far in found)
