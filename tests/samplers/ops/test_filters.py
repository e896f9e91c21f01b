"""The filters against golden vectors, brute force, and each other."""

import math
from pathlib import Path

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from torch import Tensor

from samplers.knobs.params import SamplingParams
from samplers.knobs.steps import StepName
from samplers.ops import filters
from samplers.ops.rows import sanitise
from tests.samplers.reference.harness import Case, assert_probs, kept, load, run, stack


@given(
    st.lists(
        st.floats(width=32, allow_nan=False, max_value=2.0**99), min_size=1, max_size=60
    )
)  # fmt: skip
def test_the_sorted_row_is_that_of_torch(row: list[float]) -> None:
    logits = torch.tensor([row, row[::-1]])
    assert torch.equal(filters.descending(logits), logits.sort(-1, descending=True).values)


def _row(values: list[float]) -> Tensor:
    return torch.tensor([values], dtype=torch.float32)


LOGITS = st.lists(
    st.floats(-30, 30, width=32) | st.just(-math.inf), min_size=1, max_size=40
).filter(lambda row: max(row) > -math.inf)


@given(LOGITS, st.integers(1, 60))
def test_top_k_keeps_what_fewer_than_k_codes_beat(row: list[float], k: int) -> None:
    expected = [
        i for i, z in enumerate(row) if z > -math.inf and sum(other > z for other in row) < k
    ]
    assert kept(run(["top_k"], [SamplingParams(top_k=k)], _row(row))) == [expected]


@example([i / 10 for i in range(10)], 0.75)
@given(LOGITS, st.floats(0, 0.999))
def test_top_p_keeps_the_shortest_prefix_that_reaches_p(row: list[float], p: float) -> None:
    logits = _row(row)
    filtered = run(["top_p"], [SamplingParams(top_p=p)], logits)
    probs = logits.double().softmax(-1)[0]
    inside = filtered[0] > -math.inf
    least = probs[inside].min()
    assert inside.any()
    assert (logits[0][~inside] < logits[0][inside].min()).all()
    assert probs[inside].sum() >= p - 1e-5
    assert probs[probs > least].sum() <= p + 1e-5 or inside.sum() == 1


@given(LOGITS, st.floats(0.001, 1))
def test_min_p_keeps_what_is_p_times_as_likely_as_the_best(row: list[float], p: float) -> None:
    floor = max(row) + math.log(p)
    filtered = run(["min_p"], [SamplingParams(min_p=p)], _row(row))[0]
    for before, after in zip(row, filtered.tolist(), strict=True):
        if abs(before - floor) > 1e-4:
            assert (after > -math.inf) == (before > floor)


@pytest.mark.parametrize("p", [1.0, 1.05, 1.5, 1e9])
def test_a_min_p_of_one_or_more_keeps_the_best(p: float) -> None:
    assert kept(run(["min_p"], [SamplingParams(min_p=p)], _row([0.0, 2.0, 1.0]))) == [[1]]


@example([0.0] * 7)
@example([50.0, 0.0, -50.0])
@given(LOGITS)
def test_p_less_keeps_what_is_as_likely_as_two_equal_draws(row: list[float]) -> None:
    probs = _row(row).double().softmax(-1)[0]
    least = probs.square().sum()
    filtered = run(["p_less"], [SamplingParams(p_less=True)], _row(row))[0]
    for probability, after in zip(probs, filtered.tolist(), strict=True):
        if abs(probability - least) > 1e-5 * least:
            assert (after > -math.inf) == (probability > least)
    assert filtered.max() == max(row)


def test_p_less_counts_what_other_filters_have_left_and_is_a_rows_own() -> None:
    row = [math.log(one) for one in (0.4, 0.3, 0.2, 0.1)]
    alone, off = SamplingParams(p_less=True), SamplingParams()
    assert kept(run(["p_less"], [alone, off], _row(row).repeat(2, 1))) == [[0, 1], [0, 1, 2, 3]]
    # of 0.57 and 0.43 the sum of squares is 0.51: the second goes
    both = SamplingParams(top_k=2, p_less=True)
    assert kept(run(["top_k", "p_less"], [both], _row(row))) == [[0]]
    hot = SamplingParams(temperature=4.0, p_less=True)
    assert kept(run(["temperature", "p_less"], [hot], _row(row))) == [[0, 1]]


@pytest.mark.parametrize("tag", ["single_survivor_all_filters", "top_k_over_vocab", "top_p_zero"])
def test_filters_keep_in_edge_cases_what_the_golden_data_keeps(golden: Path, tag: str) -> None:
    (case,) = (case for case in load(golden, "edge_policy") if tag in case["tags"])
    names: list[StepName] = ["top_n_sigma", "temperature", "top_k", "top_p", "min_p", "typical_p"]
    params = SamplingParams(**{
        name: case["params"][name] for name in names if name in case["params"]
    })
    assert_probs(run(names, [params], stack([case["logits"]])), [case["expected"]["probs"]])


def test_filters_that_follow_one_another_share_a_sort(monkeypatch: pytest.MonkeyPatch) -> None:
    sorts: list[Tensor] = []
    sort = filters.descending

    def counting(logits: Tensor) -> Tensor:
        sorts.append(logits)
        return sort(logits)

    monkeypatch.setattr(filters, "descending", counting)
    params = SamplingParams(top_k=20, top_p=0.9, min_p=0.05, min_tokens_to_keep=2)
    run(["top_k", "top_p", "min_p"], [params], torch.randn(1, 50))
    assert len(sorts) == 1


def _cases_with(cases: list[Case], tag: str) -> list[Case]:
    return [case for case in cases if tag in case.get("tags", [])]


def test_golden_sanitising_turns_nan_and_infinities_into_numbers(golden: Path) -> None:
    cases = load(golden, "edge_policy")
    for tag in ("nan_becomes_masked", "one_plus_inf", "two_plus_inf"):
        (case,) = _cases_with(cases, tag)
        clean = sanitise(stack([case["logits"]]))
        assert_probs(clean, [case["expected"]["probs"]])


def test_golden_xtc_are_met_by_every_row_of_one_batch(golden: Path) -> None:
    cases = load(golden, "xtc")
    logits = stack([case["logits"] for case in cases])
    protected = torch.zeros_like(logits, dtype=torch.bool)
    for row, case in enumerate(cases):
        protected[row, case["params"]["protected_tokens"]] = True
    threshold = torch.tensor([[case["params"]["xtc_threshold"]] for case in cases])
    filtered = filters.xtc(logits, threshold, torch.ones(len(cases), 1) > 0, protected)
    assert_probs(filtered, [case["expected"]["probs"] for case in cases])
    removed = [
        [code for code, z in enumerate(row) if z > -math.inf and after[code] == -math.inf]
        for row, after in zip(logits.tolist(), filtered.tolist(), strict=True)
    ]
    assert removed == [case["expected"]["removed"] for case in cases]


def test_xtc_leaves_a_row_alone_whose_coin_does_not_fall_or_whose_stop_it_would_remove() -> None:
    logits = torch.tensor([[2.0, 1.9, 0.0]]).repeat(3, 1)
    always = {"xtc_probability": 1.0, "xtc_threshold": 0.2}
    params = [
        SamplingParams(**always, protect_stop=False),
        SamplingParams(**always),
        SamplingParams(xtc_probability=1e-9, xtc_threshold=0.2),
    ]
    assert kept(run(["xtc"], params, logits, stop_token=0)) == [[1, 2], [0, 1, 2], [0, 1, 2]]


def test_typical_may_remove_the_best_code_but_not_a_protected_stop() -> None:
    logits = torch.tensor([[3.0, *[1.0] * 12, -5.0]]).repeat(2, 1)
    params = [SamplingParams(typical_p=0.3), SamplingParams(typical_p=0.3, protect_stop=False)]
    first, second = kept(run(["typical_p"], params, logits, stop_token=13))
    assert 0 not in first
    assert 13 in first
    assert second == first[:-1]
