"""The published test vectors of llama.cpp, transcribed in the golden folder (never copied here)."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from samplers.knobs.params import SamplingParams
from samplers.knobs.steps import StepName
from samplers.ops import filters
from tests.samplers.reference.harness import Case, kept, load, run

STEPS: dict[str, tuple[StepName, dict[str, str], dict[str, Any]]] = {
    "temp": ("temperature", {"temp": "temperature"}, {}),
    "top_k": ("top_k", {"k": "top_k"}, {}),
    "top_p": ("top_p", {"p": "top_p"}, {}),
    "typical": ("typical_p", {"p": "typical_p"}, {}),
    "top_n_sigma": ("top_n_sigma", {"n": "top_n_sigma"}, {}),
    "dry": (
        "dry",
        {
            "multiplier": "dry_multiplier", "base": "dry_base",
            "allowed_length": "dry_allowed_length", "last_n": "dry_range",
        },
        {},
    ),
}  # fmt: skip


def _filtered(case: Case) -> torch.Tensor:
    knobs, logits = case["params"], torch.tensor([case["input_probs"]]).log()
    if case["sampler"] == "xtc":
        acts = torch.tensor([[True]])
        return filters.xtc(logits, torch.tensor([[knobs["threshold"]]]), acts)
    if case["sampler"] == "min_p":
        return run(["min_p"], [SamplingParams(min_p=knobs["p"])], logits)
    if case["sampler"] == "penalties":
        params = SamplingParams(
            preset="llama_cpp", repetition_penalty=knobs["repeat"],
            repetition_penalty_mode="signed", repetition_penalty_one_time=True,
            frequency_penalty=knobs["freq"], presence_penalty=knobs["presence"],
        )  # fmt: skip
        return run(["repetition_penalty"], [params], logits, [knobs["last_tokens"]])
    if case["sampler"] == "temp_ext":
        low, high = knobs["temp"] - knobs["delta"], knobs["temp"] + knobs["delta"]
        params = SamplingParams(
            temperature=high, min_temperature=max(low, 0.0) if knobs["delta"] else -1,
            dynatemp_mode="entropy", dynatemp_exponent=knobs["exponent"],
        )  # fmt: skip
        return run(["temperature"], [params], logits)
    step, renamed, fixed = STEPS[case["sampler"]]
    chosen = {renamed[name]: value for name, value in knobs.items() if name in renamed}
    if "breakers" in knobs:
        chosen["dry_sequence_breakers"] = _single(knobs["breakers"])
    params = SamplingParams(**chosen, **fixed)
    return run([step], [params], logits, [knobs.get("last_tokens", [])])


def _single(breakers: Sequence[int | Sequence[int]]) -> tuple[int, ...]:
    """Return breakers, told as ids or as sequences of one id, as ids."""
    sequences = [[one] if isinstance(one, int) else list(one) for one in breakers]
    assert all(len(sequence) == 1 for sequence in sequences), "only single codes break a sequence"
    return tuple(sequence[0] for sequence in sequences)


def test_samplers_keep_what_llama_cpp_keeps_of_its_test_vectors(golden: Path) -> None:
    for case in load(golden, "llama_cpp_vectors"):
        filtered, expected = _filtered(case), case["expected"]
        probs = filtered.softmax(-1)[0]
        if not expected["renormalised"]:
            probs = torch.where(filtered[0] > -torch.inf, torch.tensor(case["input_probs"]), 0.0)
        wanted = torch.zeros(len(case["input_probs"]))
        wanted[expected["ids"]] = torch.tensor(expected["probs_listed"], dtype=torch.float32)
        torch.testing.assert_close(probs, wanted, atol=2e-5, rtol=0, msg=case["id"])


def _sizes(case: Case) -> Sequence[int]:
    knobs = case["params"]
    logits = torch.arange(knobs["n_vocab"]).float().log()[None]
    names: dict[str, StepName] = {"k": "top_k", "p": "top_p", "m": "min_p"}
    params = SamplingParams(**{name: knobs[name] for name in names.values()})
    order = [names[letter] for letter in knobs["sequence"]]
    return [len(kept(run(order[: i + 1], [params], logits))[0]) for i in range(len(order))]


def test_golden_queues_keep_as_many_codes_after_each_step(golden: Path) -> None:
    for case in load(golden, "llama_cpp_queue"):
        expected = case["expected"]
        sizes = zip(
            _sizes(case), expected["size_after_each_step_llama"],
            expected["finite_after_each_step_float64"], strict=True,
        )  # fmt: skip
        for found, theirs, exact in sizes:
            assert found in (theirs, exact), case["id"]
