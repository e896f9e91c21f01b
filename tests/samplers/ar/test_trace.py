"""The trace: scores and log-probabilities as defined, and no effect on what is sampled."""

import math
from pathlib import Path

import pytest
import torch

from samplers.ar.effects import SAMPLING
from samplers.ar.sampler import ArSampler
from samplers.ar.trace import FIELDS, TOPS, Trace, columns, log_prob_of
from samplers.knobs.params import SamplingParams
from tests.conftest import ROOT
from tests.samplers.ar.rows import logits_of
from tests.samplers.reference.harness import entries_of, kept, load, make_sampler, run, stack


def sampler_of(*params: SamplingParams, vocab: int = 4) -> ArSampler:
    """Rows of the seeds 1, 2, ...; the last code is the stop."""
    seeds = range(1, 1 + len(params))
    return make_sampler(params, seeds, stop_token=vocab - 1, vocab_size=vocab, max_frames=9)


def test_golden_scores_and_log_probabilities_are_met_by_every_row_of_one_batch(
    golden: Path,
) -> None:
    cases = load(golden, "scores_logprobs")
    params = [SamplingParams(**case["params"]) for case in cases]
    logits = stack([case["logits"] for case in cases])
    codes = torch.tensor([case["token"] for case in cases])
    final = run(["temperature", "top_k", "top_p"], params, logits)
    assert kept(final) == [case["expected"]["kept"] for case in cases]
    scores, logprobs = log_prob_of(final, codes).tolist(), log_prob_of(logits, codes).tolist()
    assert scores == pytest.approx([case["expected"]["score"] for case in cases], abs=1e-4)
    assert logprobs == pytest.approx([case["expected"]["logprob"] for case in cases], abs=1e-4)


def test_a_record_says_what_was_drawn_and_from_what() -> None:
    sampler = sampler_of(
        SamplingParams(temperature=0.0),
        SamplingParams(temperature=0.5, top_k=2, ban_tokens=(0,), logit_bias={1: 1.0}),
    )
    trace = Trace()
    codes = sampler.step(torch.tensor([[3.0, 1.0, 0.0, -4.0]] * 2), trace)
    (greedy,), (warm,) = entries_of(trace, 0), entries_of(trace, 1)
    assert (greedy["code"], greedy["score"], greedy["kept"], greedy["temperature"]) == (0, 0, 1, 0)
    assert greedy["logprob"] == pytest.approx(
        torch.tensor([3.0, 1.0, 0.0, -4.0]).log_softmax(0)[0].item()
    )
    assert warm["code"] == codes[1]
    assert (warm["kept"], warm["banned"], warm["changed"]) == (2, 1, 1)
    assert warm["temperature"] == 0.5
    assert warm["score"] == pytest.approx(
        (torch.tensor([2.0, 0.0]) / 0.5).log_softmax(0)[warm["code"] - 1].item()
    )
    weighed = torch.tensor([2.0, 0.0, -4.0]).softmax(0)
    assert warm["stop_rank"] == 2
    assert warm["stop_probability"] == pytest.approx(weighed[2].item())
    assert warm["entropy_bits"] == pytest.approx(-(weighed * weighed.log2()).sum().item(), abs=1e-5)
    assert math.isnan(warm["mirostat_mu"])


def test_the_likeliest_codes_have_their_nats_before_and_after_penalties_and_filters() -> None:
    logits = torch.tensor([[4.0, 3.0, 2.0, 1.0, 0.0]])
    params = SamplingParams(logit_bias={0: -3.0}, top_k=2, temperature=0.5)
    sampler = sampler_of(params, vocab=5)
    trace = Trace(top=3)
    sampler.step(logits, trace)
    penalised = logits - torch.tensor([[3.0, 0, 0, 0, 0]])
    kept = torch.where(penalised >= 2, penalised / 0.5, -torch.inf)
    nats = [one.log_softmax(-1)[0].tolist() for one in (logits, penalised, kept)]
    (record,) = entries_of(trace, 0)
    for name, codes in (("top_logprobs", [0, 1, 2]), ("top_scores", [1, 2])):
        told = record[name]
        assert [one["code"] for one in told] == codes
        for one in told:
            expected = [stage[one["code"]] for stage in nats]
            assert [one["logprob"], one["penalised"], one["score"]] == pytest.approx(
                expected, abs=1e-4
            )


def test_the_effects_of_the_processors_lead_from_the_models_odds_to_those_drawn_from() -> None:
    """Rows of unlike orders and knobs in one batch: each has its own, and they sum up."""
    every = [
        SamplingParams(logit_bias={0: -3.0}, repetition_penalty=1.5, top_k=3, temperature=0.5),
        SamplingParams(sampler_order=["top_p", "temperature"], top_p=0.9, temperature=2.0),
        SamplingParams(mirostat_mode=2, mirostat_tau=0.5, min_frames=9),
    ]
    named = [
        {"logit_bias", "repetition_penalty", "temperature", "top_k"},
        {"top_p", "temperature"},
        {"min_frames", "draw"},
    ]
    sampler = sampler_of(*every, vocab=8)
    trace, seen = Trace(top=8), [set[str]() for _ in every]
    for step in range(6):
        sampler.step(torch.stack([logits_of(step, row, 8) for row in range(3)]), trace)
    for row in range(3):
        for one in (one for record in entries_of(trace, row) for one in record["top_logprobs"]):
            seen[row] |= one["effects"].keys()
            assert one["logprob"] + sum(one["effects"].values()) == pytest.approx(
                one["score"], abs=2e-3
            )
    assert seen == named


def test_rows_of_a_batch_tell_as_many_codes_as_each_asks_for() -> None:
    sampler = sampler_of(SamplingParams(), SamplingParams())
    trace = Trace(top=3)
    sampler.step(torch.randn(2, 4), trace)
    tokens = [(record, 1) for record in trace.records]
    assert columns(tokens, top=2)["top_logprobs"].shape[:2] == (1, 2)
    assert "top_logprobs" not in columns(tokens)


def test_every_field_of_a_record_is_on_the_page() -> None:
    page = (ROOT / "docs" / "trace.md").read_text()
    named = {*FIELDS, *TOPS, SAMPLING} - {"alive"}
    assert {name for name in named if f"`{name}`" not in page} == set()


def test_the_flags_say_what_was_wrong_with_the_logits() -> None:
    sampler, trace = sampler_of(*[SamplingParams()] * 3, vocab=3), Trace()
    sampler.step(torch.tensor([[math.nan, 0, 0], [math.inf, 0, 0], [-math.inf] * 3]), trace)
    names = ("saw_nan", "saw_inf", "all_masked")
    told = [[entries_of(trace, row)[0][name] for name in names] for row in range(3)]
    assert told == [[row == column for column in range(3)] for row in range(3)]
