"""The cost model counts what a GPU would run, and runs nothing."""

from collections.abc import Callable

import pytest
import torch
from torch.nn import functional as F

from gpu.kernels import TORCH
from lab.benchmarks.card.step_cost import (
    BANDWIDTH,
    FLOAT_RATE,
    KERNEL_S,
    PRODUCT_BANDWIDTH,
    PRODUCT_S,
    Counted,
    LayoutName,
    _Attention,
    counted_step,
    meta_model,
    prefix_costs,
    window_costs,
)

META = torch.device("meta")


def counted(run: Callable[[], object]) -> Counted:
    found = Counted()
    with torch.inference_mode(), _Attention(found), found:
        run()
    return found


def test_bytes_are_those_read_and_written() -> None:
    x, weight = (torch.zeros(1000, 1000, device=META) for _ in range(2))
    ids = torch.zeros(5, dtype=torch.int64, device=META)
    assert counted(lambda: x + weight).bytes == 3 * 4_000_000
    assert counted(lambda: F.embedding(ids, x)).bytes == 2 * 5 * 4000
    assert counted(lambda: x + weight).seconds == pytest.approx(12e6 / BANDWIDTH)
    assert counted(lambda: x[:1] + 1).seconds == KERNEL_S


def test_a_product_is_estimated_slower_than_its_bytes_and_in_float32_than_its_operations() -> None:
    wide = torch.zeros(4096, 4096, device=META)
    narrow, small = wide.to(torch.bfloat16), wide[:64, :64].contiguous()
    few, many = counted(lambda: F.linear(small, small)), counted(lambda: F.linear(wide, wide))
    row = counted(lambda: F.linear(narrow[:1], narrow))
    assert few.estimate_s == KERNEL_S > few.bound_s
    assert many.estimate_s == pytest.approx(2 * 4096**3 / FLOAT_RATE)
    assert row.estimate_s == pytest.approx(row.bytes / PRODUCT_BANDWIDTH + PRODUCT_S)
    assert row.bound_s == pytest.approx(row.bytes / BANDWIDTH)


@pytest.mark.parametrize(("layout", "of_a_layer"), [("ar+nar-len", 7), ("vall-e-x", 7)])
def test_kernels_do_not_depend_on_the_streams_and_grow_with_the_layers(
    layout: LayoutName, of_a_layer: int
) -> None:
    one, two = (meta_model(layers=layers, width=64, layout=layout) for layers in (1, 2))
    base = counted_step(one, 1, 300)
    assert counted_step(one, 4, 300).kernels == base.kernels
    a_layer = counted_step(two, 1, 300).kernels - base.kernels
    assert a_layer == of_a_layer
    forward = counted_step(one, 1, 300, draws=False)
    assert forward.kernels == base.kernels  # a copy in place of the sample
    one.transformer.kernels = two.transformer.kernels = TORCH
    one_by_one = [counted_step(model, 1, 300, draws=False).kernels for model in (one, two)]
    assert one_by_one[1] - one_by_one[0] > 2 * a_layer


def test_a_recorded_step_of_the_published_size_has_at_most_100_kernels() -> None:
    model = meta_model(layers=12, width=1024)
    assert counted_step(model, 1, 1088).kernels <= 100


def test_a_recorded_prefix_of_a_known_voice_takes_two_launches_and_of_a_new_one_five() -> None:
    rows = prefix_costs(layers=4, width=64)
    found = {(row["prefixes of"], row["voice"], row["read"]): row["launches"] for row in rows}
    for levels in ("level 0", "NAR levels"):
        assert found[levels, "known", "recorded"] == 2  # a table, and a graph
        assert found[levels, "new", "recorded"] == 2 + 3  # and the codes of the voice
        assert found[levels, "new", "one by one"] > found[levels, "known", "one by one"] > 40


def test_all_levels_of_vall_e_x_see_every_frame_and_pay_for_it() -> None:
    window, whole = window_costs(layers=1, width=64, layout="vall-e-x")
    assert (window["frames"], whole["frames"]) == (30, 375)
    assert window["launches"] == whole["launches"]  # both read text and prompt anew
    assert window["MB of each"] < whole["MB of each"]
