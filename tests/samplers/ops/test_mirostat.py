"""Mirostat against golden vectors, its own identity, and a rewind."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch

from samplers.ar.trace import Trace
from samplers.knobs.params import SamplingParams
from samplers.ops import mirostat
from samplers.ops.filters import descending, keep_from
from tests.samplers.reference.harness import (
    Case,
    assert_probs,
    entries_of,
    kept,
    load,
    make_sampler,
    stack,
)


def _mu(cases: list[Case]) -> torch.Tensor:
    return torch.tensor([[case["state"]["mu"]] for case in cases])


def _check_update(case: Case, full: torch.Tensor, truncated: torch.Tensor) -> None:
    wanted = case["expected"]["update_if_token"]
    tau, eta = (torch.tensor([[case["params"][name]]]) for name in ("tau", "eta"))
    mu = torch.tensor([[case["state"]["mu"]]])
    for row, field in ((full, "mu_author"), (truncated, "mu_llama")):
        log_prob = row.log_softmax(-1)[:, wanted["token"], None]
        moved = mirostat.update(mu, log_prob, tau, eta)
        assert moved.item() == pytest.approx(wanted[field], abs=1e-4)


def test_golden_version_1_keeps_k_codes(golden: Path) -> None:
    for case in load(golden, "mirostat_v1"):
        logits, size = stack([case["logits"]]), case["params"]["n_vocab_in_formula"]
        floor = mirostat.version_1_floor(descending(logits), _mu([case]), size)
        filtered = keep_from(logits, floor)
        assert kept(filtered) == [case["expected"]["kept_author"]], case["id"]
        s = torch.tensor([[case["expected"]["s_hat"]]])
        k = mirostat.log_k(s, _mu([case]), size).exp().item()
        assert k == pytest.approx(case["expected"]["k_raw"], rel=1e-3)


def _version_2_cases(golden: Path) -> list[Case]:
    return [case for case in load(golden, "mirostat_v2") if "logits" in case]


def test_golden_version_2_are_met_by_every_row_of_one_batch(golden: Path) -> None:
    cases = _version_2_cases(golden)
    logits = stack([case["logits"] for case in cases])
    filtered = keep_from(logits, mirostat.version_2_floor(logits, _mu(cases)))
    assert kept(filtered) == [case["expected"]["kept"] for case in cases]
    assert_probs(filtered, [case["expected"]["probs"] for case in cases])
    for row, case in enumerate(cases):
        _check_update(case, logits[row : row + 1], filtered[row : row + 1])


def test_golden_version_2_is_met_along_a_trace(golden: Path) -> None:
    traces = [case for case in load(golden, "mirostat_v2") if "steps" in case]
    for case in traces:
        tau, eta = (torch.tensor(case["params"][name]) for name in ("tau", "eta"))
        mu = _mu([case])
        for step in case["steps"]:
            logits = stack([step["logits"]])
            filtered = keep_from(logits, mirostat.version_2_floor(logits, mu))
            assert len(kept(filtered)[0]) == step["n_kept"]
            log_prob = logits.log_softmax(-1)[:, step["token"], None]
            mu = mirostat.update(mu, log_prob, tau, eta)
            assert mu.item() == pytest.approx(step["mu_after"], abs=1e-4)
        assert mu.item() == pytest.approx(case["expected"]["mu_final"], abs=1e-4)


@pytest.mark.parametrize("mode", [1, 2])
@pytest.mark.parametrize("surprise", ["full", "truncated"])
def test_the_mean_surprise_is_the_target_but_for_the_drift_of_mu(mode: Any, surprise: Any) -> None:
    tau, eta, steps, size = 3.0, 0.1, 60, 129
    params = SamplingParams(
        mirostat_mode=mode, mirostat_tau=tau, mirostat_eta=eta, mirostat_surprise=surprise
    )
    sampler = make_sampler([params], [1], stop_token=size - 1, vocab_size=size, max_frames=steps)
    trace = Trace()
    generator = torch.Generator().manual_seed(0)
    for _ in range(steps):
        logits = -1.1 * torch.arange(1, size + 1).log() + 0.1 * torch.randn(
            size, generator=generator
        )
        logits[-1] = -torch.inf
        sampler.step(logits[None], trace)
    field = "logprob" if surprise == "full" else "score"
    rows = entries_of(trace, 0)
    mean = sum(-row[field] / math.log(2) for row in rows) / steps
    assert mean == pytest.approx(
        tau + (2 * tau - rows[-1]["mirostat_mu"]) / (eta * steps), abs=1e-4
    )


@pytest.mark.parametrize("seed", range(20))
def test_more_surprise_allowed_keeps_more(seed: int) -> None:
    ordered = descending(2 * torch.randn(1, 300, generator=torch.Generator().manual_seed(seed)))
    counts = [
        int((ordered >= mirostat.version_1_floor(ordered, torch.tensor([[mu]]), 300)).sum())
        for mu in torch.linspace(-3, 60, 40).tolist()
    ]
    assert counts == sorted(counts)
    assert (counts[0], counts[-1]) == (1, 300)


def test_a_flat_row_and_a_single_code_are_kept_whole() -> None:
    rows = torch.full((2, 120), -torch.inf)
    rows[0] = 0.0
    rows[1, 7] = 3.0
    ordered = descending(rows)
    mu = torch.full((2, 1), 2.0)
    assert [
        len(row) for row in kept(keep_from(rows, mirostat.version_1_floor(ordered, mu, 120)))
    ] == [120, 1]


def test_a_rewind_puts_mu_back() -> None:
    params = SamplingParams(mirostat_mode=2, mirostat_tau=2.0)
    sampler = make_sampler([params] * 2, [1, 2], stop_token=32, vocab_size=33, max_frames=30)
    logits = torch.randn(2, 33)
    logits[:, 32] = -torch.inf
    trace = Trace()
    for _ in range(10):
        sampler.step(logits, trace)
    sampler.rewind(0, 4)
    sampler.step(logits, trace)
    first, second = entries_of(trace, 0), entries_of(trace, 1)
    code, before = first[-1]["code"], first[3]["mirostat_mu"]
    surprise = -logits[0].log_softmax(-1)[code].item() / math.log(2)
    assert first[-1]["frame"] == 4
    assert first[-1]["mirostat_mu"] == pytest.approx(before - 0.1 * (surprise - 2.0), abs=1e-5)
    assert second[-1]["frame"] == 10
