"""Orders: the goldens of whole chains, and rows of one batch that differ in order."""

from pathlib import Path
from typing import Any, get_args

import pytest
import torch
from pydantic import ValidationError

from samplers.ar.pipeline import Pipeline
from samplers.ar.state import RowInput
from samplers.knobs.params import SamplingParams
from samplers.knobs.steps import ORDERS, OrderName, arrange
from tests.samplers.reference.harness import (
    assert_probs,
    chain_params,
    kept,
    load,
    make_sampler,
    make_scores,
    run,
    stack,
)


def test_the_canonical_order_is_that_of_the_knobs_in_their_declaration() -> None:
    assert ORDERS["canonical"] == (
        "repetition_penalty", "dry", "no_repeat_ngram", "length_penalty", "top_n_sigma",
        "temperature", "top_k", "top_p", "min_p", "p_less", "typical_p", "epsilon_cutoff",
        "eta_cutoff", "xtc",
    )  # fmt: skip
    assert set(ORDERS) == set(get_args(OrderName))


def test_golden_chains_keep_what_they_should_after_each_step(golden: Path) -> None:
    for case in load(golden, "chain"):
        params, stop = chain_params(case)
        logits = stack([case["logits"]])
        for place, count in enumerate(case["expected"]["kept_after_each_step"], start=1):
            after = run(case["order"][:place], [params], logits, [case["history"]], stop_token=stop)
            assert len(kept(after)[0]) == count, (case["id"], case["order"][place - 1])
        assert kept(after) == [case["expected"]["kept"]]
        assert_probs(after, [case["expected"]["probs"]])


def test_golden_chains_of_unlike_orders_and_params_are_met_by_every_row_of_one_batch(
    golden: Path,
) -> None:
    for stop in {case["params"]["stop_token"] for case in load(golden, "chain")}:
        cases = [case for case in load(golden, "chain") if case["params"]["stop_token"] == stop]
        params = [
            chain_params(case)[0].model_copy(update={"sampler_order": tuple(case["order"])})
            for case in cases
        ]
        rows = [RowInput(one, 0, 100) for one in params]
        pipeline = Pipeline(rows, vocab_size=stop + 1, stop_token=stop, device=torch.device("cpu"))
        scores = make_scores(
            stack([case["logits"] for case in cases]),
            [case["history"] for case in cases],
            [len(case["history"]) for case in cases],
        )
        pipeline.run(scores, tracing=False)
        assert kept(scores.logits) == [case["expected"]["kept"] for case in cases]
        assert_probs(scores.logits, [case["expected"]["probs"] for case in cases])


def test_the_named_orders_are_those_of_the_golden_chains(golden: Path) -> None:
    for case in load(golden, "chain"):
        named = ORDERS[case["order_name"]]
        assert [step for step in named if step in case["order"]] == case["order"]


def test_the_temperature_can_be_moved_last() -> None:
    assert arrange("canonical", temperature_last=True)[-1] == "temperature"
    assert arrange(("temperature", "top_k"), temperature_last=True) == ("top_k", "temperature")
    assert arrange(("top_k",), temperature_last=True) == ("top_k",)


def test_a_step_left_out_is_off() -> None:
    params = SamplingParams(top_k=1, sampler_order=("temperature",))
    sampler = make_sampler([params] * 50, range(50), stop_token=9, vocab_size=10, max_frames=2)
    logits = torch.zeros(50, 10)
    logits[:, 9] = -torch.inf
    assert len(set(sampler.step(logits).tolist())) > 3


@pytest.mark.parametrize("order", [["top_q"], ["top_k", "top_k"], "hugging_face"])
def test_unknown_and_repeated_names_are_refused(order: Any) -> None:
    with pytest.raises(ValidationError, match="sampler_order"):
        SamplingParams(sampler_order=order)
