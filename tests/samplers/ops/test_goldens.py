"""Golden vectors of single steps: the cases of a family as rows of one batch; none is forgotten."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch

from samplers.knobs.params import SamplingParams
from samplers.knobs.presets import PRESETS
from samplers.knobs.steps import StepName
from tests.samplers.reference.harness import (
    FILTERS,
    Case,
    assert_logits,
    assert_probs,
    kept,
    load,
    run,
    stack,
)

Knobs = dict[str, Any]


def _as_named(case: Case) -> Knobs:
    return dict(case["params"])


class Golden(NamedTuple):
    """A family, the step that it is of, and how its cases are told in our knobs."""

    family: str
    step: StepName
    knobs: Callable[[Case], Knobs] = _as_named
    field: str = "logits"  # of what is expected
    stop: str = ""  # the parameter with the id of the stop, of which alone the result is given
    length: Callable[[Knobs], int] = lambda _: 0
    holds: Callable[[Case], bool] = lambda _: True  # whether a case is one of the row


def _moving(case: Case) -> Knobs:
    knobs = case["params"]
    if "dynatemp_high" in knobs:
        return {
            "dynatemp_mode": "entropy", "temperature": knobs["dynatemp_high"],
            "min_temperature": knobs["dynatemp_low"],
            "dynatemp_exponent": knobs["dynatemp_exponent"],
        }  # fmt: skip
    return {
        "temperature": knobs["temperature"], "min_temperature": knobs["min_temperature"],
        "dynatemp_slope": knobs["k"], "dynatemp_center": knobs["sigmoid_center"],
    }  # fmt: skip


def _repeating(**fixed: Any) -> Callable[[Case], Knobs]:
    def knobs(case: Case) -> Knobs:
        own = dict(case["params"])
        return {"repetition_penalty_one_time": own.pop("one_time", False), **own, **fixed}

    return knobs


def _frequent(case: Case) -> Knobs:
    own = dict(case["params"])
    return {"repetition_penalty_window": own.pop("window"), **own}


def _longer(mode: str) -> Callable[[Case], Knobs]:
    return lambda case: {
        "length_penalty": case["params"]["length_penalty"], "length_penalty_mode": mode
    }  # fmt: skip


def _no_decay(case: Case) -> bool:
    return not case["params"]["repetition_penalty_decay"]


AS_TRANSFORMERS = {name: PRESETS["hf"][name] for name in PRESETS["hf"] if name[:10] == "repetition"}
GOLDENS = [
    *(Golden(family, step) for family, step in FILTERS.items()),
    Golden("temperature", "temperature"),
    Golden("dynatemp_sigmoid", "temperature", _moving),
    Golden("dynatemp_entropy", "temperature", _moving),
    *(
        Golden(
            "rep_pen_decay", "repetition_penalty",
            _repeating(repetition_penalty_mode=mode, repetition_penalty_clamp=clamp), field,
            holds=_no_decay if mode == "additive" else lambda _: True,  # its decay is ours
        )
        for field, mode, clamp in (
            ("logits_signed", "signed", True),
            ("logits_raw", "raw", True),
            ("logits_additive", "additive", True),
            ("logits_signed_unclamped", "signed", False),
            ("logits_raw_unclamped_vall_e_8920e5e", "raw", False),
        )
    ),
    Golden("rep_pen_hf", "repetition_penalty", _repeating(**AS_TRANSFORMERS)),
    Golden("freq_presence", "repetition_penalty", _frequent),
    Golden("no_repeat_ngram", "no_repeat_ngram"),
    Golden(
        "exp_decay_length_penalty", "length_penalty",
        lambda case: {f"exponential_decay_{n}": case["params"][n] for n in ("factor", "start")},
        "eos_logit", "eos", lambda own: own["cur_len"] - own["prompt_len"],
    ),
    *(
        Golden(
            "length_penalty", "length_penalty",
            _longer(mode),
            field, "stop_token", lambda own: own["length"] - 1,
        )
        for field, mode in (
            ("stop_logit_signed", "signed"), ("stop_logit_additive", "additive"),
            ("stop_logit_raw_vall_e", "raw"),
        )
    ),
]  # fmt: skip


@pytest.mark.parametrize("row", GOLDENS, ids=lambda row: f"{row.family}, {row.field}")
def test_golden_cases_are_met_by_every_row_of_one_batch(golden: Path, row: Golden) -> None:
    cases = [
        case
        for case in load(golden, row.family)
        if row.holds(case) and {row.field, "kept", "token"} & case["expected"].keys()
    ]
    assert len(cases) >= 5
    params = [SamplingParams(**row.knobs(case)) for case in cases]
    if row.stop:
        # Its id differs between cases, and within a batch it cannot: it is the only code.
        stops = [[float(case["logits"][case["params"][row.stop]])] for case in cases]
        lengths = [row.length(case["params"]) for case in cases]
        after = run([row.step], params, torch.tensor(stops), lengths=lengths, stop_token=0)
        assert_logits(after, [[case["expected"][row.field]] for case in cases])
        return
    logits = stack([case["logits"] for case in cases])
    after = run([row.step], params, logits, [case.get("history", []) for case in cases])
    for number, case in enumerate(cases):
        found, expected = after[number, None], case["expected"]
        if "kept" in expected:
            assert kept(found) == [expected["kept"]], case["id"]
        if "token" in expected:
            assert found.argmax() == expected["token"], case["id"]
        if "probs" in expected:
            assert_probs(found[:, : len(expected["probs"])], [expected["probs"]])
        if row.field in expected:
            assert_logits(found[:, : len(expected[row.field])], [expected[row.field]])


def test_every_family_is_read_by_some_test(golden: Path) -> None:
    index = json.loads((golden / "samplers" / "index.json").read_text())
    sources = "".join(path.read_text() for path in Path(__file__).parents[1].glob("**/test_*.py"))
    families = [family["family"] for family in index["families"]]
    assert [family for family in families if f'"{family}"' not in sources] == []
