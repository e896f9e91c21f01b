"""The cost model counts what a GPU would run, and runs nothing."""

from collections.abc import Callable

import pytest
import torch
from torch.nn import functional as F

from benchmarks.card.step_cost import (
    BANDWIDTH,
    KERNEL_S,
    RATE,
    Counted,
    _Attention,
    chunk_costs,
    counted_step,
    meta_model,
    prefix_costs,
    step_costs,
    targets,
    window_costs,
)
from samplers.ar.chain import FULL, LIGHT, PLAIN

META = torch.device("meta")


def counted(run: Callable[[], object]) -> Counted:
    found = Counted()
    with torch.inference_mode(), _Attention(found), found:
        run()
    return found


def test_views_and_memory_are_no_kernels_and_conversions_are() -> None:
    x = torch.zeros(8, 8, device=META)
    assert counted(lambda: torch.empty_like(x).view(4, 16).T[:2].expand(2, 4)).kernels == 0
    assert counted(lambda: x.to(torch.bfloat16).add_(1)).kernels == 2


def test_bytes_are_those_read_and_written() -> None:
    x, weight = (torch.zeros(1000, 1000, device=META) for _ in range(2))
    ids = torch.zeros(5, dtype=torch.int64, device=META)
    assert counted(lambda: x + weight).bytes == 3 * 4_000_000
    assert counted(lambda: F.embedding(ids, x)).bytes == 2 * 5 * 4000
    assert counted(lambda: x + weight).seconds == pytest.approx(12e6 / BANDWIDTH)
    assert counted(lambda: x[:1] + 1).seconds == KERNEL_S


def test_a_product_takes_its_operations_with_or_without_a_bias() -> None:
    x, weight = (torch.zeros(4096, 4096, device=META, dtype=torch.bfloat16) for _ in range(2))
    for run in (lambda: F.linear(x, weight), lambda: torch.addmm(x, x, weight)):
        assert counted(run).seconds == pytest.approx(2 * 4096**3 / RATE)


def test_fused_attention_is_one_kernel() -> None:
    q, k = torch.zeros(1, 4, 1, 8, device=META), torch.zeros(1, 4, 99, 8, device=META)
    found = counted(lambda: F.scaled_dot_product_attention(q, k, k))
    assert found.by_name == {"attention": 1}


def test_kernels_do_not_depend_on_the_streams_and_grow_with_the_layers_and_the_chain() -> None:
    one, two = meta_model(layers=1, width=64), meta_model(layers=2, width=64)
    base = counted_step(one, 1, 300, LIGHT)
    assert counted_step(one, 4, 300, LIGHT).kernels == base.kernels
    assert 10 <= counted_step(two, 1, 300, LIGHT).kernels - base.kernels <= 25
    assert counted_step(one, 1, 300, FULL).kernels > 2 * base.kernels
    assert counted_step(one, 1, 300, PLAIN).kernels < 0.8 * base.kernels


def test_the_table_has_every_size_and_a_target_where_one_was_asked() -> None:
    rows = step_costs(layers=1, width=64, streams=(1, 2))
    assert [(row["streams"], row["chain"]) for row in rows] == [
        (1, "plain"), (2, "plain"), (1, "light"), (2, "light"), (1, "full"), (2, "full"),
    ]  # fmt: skip
    assert [target.what for target in targets(rows)] == ["expected codes/s, 1 streams"]


@pytest.mark.slow
def test_a_recorded_chunk_has_few_launches_and_of_more_streams_fewer_kernels_each() -> None:
    rows = chunk_costs(layers=1, width=64)
    alone = [row["launches"] for row in rows if "one by one" in row["chunk"]]
    assert min(alone) > 50
    recorded = {
        (row["streams"], row["frames"]): row for row in rows if row["chunk"] == "recorded, light"
    }
    assert all(row["launches"] <= 5 for row in recorded.values())
    one, many = recorded[1, 15], recorded[16, 15]
    assert many["kernels of each"] < one["kernels of each"] / 10
    assert many["s of sound a second"] > 2 * one["s of sound a second"]


@pytest.mark.slow
def test_recorded_windows_have_few_launches_and_of_more_streams_fewer_kernels_each() -> None:
    rows = window_costs(layers=1, width=64)
    assert min(row["launches"] for row in rows if "one by one" in row["chunk"]) > 100
    recorded = [row for row in rows if "recorded" in row["chunk"]]
    assert all(row["launches"] <= 5 for row in recorded)
    one, *_, many = [row for row in recorded if row["frames"] == 30]
    assert many["kernels of each"] < one["kernels of each"] / 10


def test_the_prefixes_of_a_known_voice_cost_less_than_those_of_a_new_one() -> None:
    rows = prefix_costs(layers=4, width=64)
    new, new_at_once, known, known_at_once = (row["launches"] for row in rows)
    assert known < new
    assert known_at_once < 0.6 * known
    assert new_at_once < 0.8 * new
