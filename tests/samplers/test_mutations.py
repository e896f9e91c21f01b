"""The suite is worth something: each of these faults makes a test of it fail."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import Tensor

from samplers import filters, mirostat, penalties, repeats, terminal
from samplers.scores import Scores
from tests.samplers import (
    test_chain,
    test_filters,
    test_mirostat,
    test_penalties,
    test_repeats,
    test_trace,
)

Patch = pytest.MonkeyPatch
Check = Callable[[Path], None]


def _ascending_top_p(patch: Patch) -> None:
    right = filters.top_p_floor
    patch.setattr(filters, "top_p_floor", lambda ordered, p: right(ordered.flip(-1), p))


def _dropped_crossing_code(patch: Patch) -> None:
    def floor(ordered: Tensor, p: Tensor) -> Tensor:
        kept = (ordered.softmax(-1).cumsum(-1) <= p).sum(-1, keepdim=True).clamp(min=1)
        return ordered.gather(-1, kept - 1)

    patch.setattr(filters, "top_p_floor", floor)


def _one_more_than_k(patch: Patch) -> None:
    right = filters.top_k_floor
    patch.setattr(filters, "top_k_floor", lambda ordered, k: right(ordered, k + 1))


def _min_p_without_effect(patch: Patch) -> None:
    patch.setattr(filters, "min_p_floor", lambda best, p: best - torch.inf)


def _score_without_renormalising(patch: Patch) -> None:
    def score(logits: Tensor, codes: Tensor) -> Tensor:
        return logits.gather(-1, codes[:, None])[:, 0]

    patch.setattr(test_trace, "log_prob_of", score)


def _penalty_without_sign_rule(patch: Patch) -> None:
    right = penalties.apply_penalty
    patch.setattr(
        penalties, "apply_penalty",
        lambda logits, nats, mode: right(logits, nats, torch.full_like(mode, penalties.RAW)),
    )  # fmt: skip


def _window_of_74(patch: Patch) -> None:
    right = penalties.repetition_nats

    def shorter(recent: Tensor, vocab_size: int, *, window: Tensor, **rest: Tensor) -> Tensor:
        return right(recent, vocab_size, window=window - 1, **rest)

    patch.setattr(penalties, "repetition_nats", shorter)


def _dry_off_by_one(patch: Patch) -> None:
    right = repeats.dry

    def later(logits: Tensor, recent: Tensor, runs: Tensor, **rest: Tensor) -> Tensor:
        return right(logits, recent.roll(-1, 1), runs, **rest)

    patch.setattr(repeats, "dry", later)


def _surprise_of_the_wrong_distribution(patch: Patch) -> None:
    right = terminal.Mirostat.update

    def update(self: terminal.Mirostat, scores: Scores, codes: Tensor) -> None:
        self._truncated = ~self._truncated
        right(self, scores, codes)
        self._truncated = ~self._truncated

    patch.setattr(terminal.Mirostat, "update", update)


def _one_mirostat_for_all_rows(patch: Patch) -> None:
    right = mirostat.update
    patch.setattr(
        mirostat, "update", lambda mu, *rest: right(mu, *rest).mean(0, keepdim=True).expand_as(mu)
    )


def _golden_filter(family: str) -> Check:
    return partial(
        test_filters.test_golden_rows_of_different_params_keep_the_stated_codes, family=family
    )


FAULTS: dict[Callable[[Patch], None], Check] = {
    _ascending_top_p: _golden_filter("top_p"),
    _dropped_crossing_code: _golden_filter("top_p"),
    _one_more_than_k: _golden_filter("top_k"),
    _min_p_without_effect: _golden_filter("min_p"),
    _score_without_renormalising: test_trace.test_golden_scores_and_log_probabilities_in_one_batch,
    _penalty_without_sign_rule: partial(
        test_penalties.test_golden_repetition_penalty_in_each_mode,
        field="logits_signed", mode="signed", clamp=True,
    ),
    _window_of_74: lambda golden: (
        test_penalties.test_a_window_of_75_counts_the_75th_code_back_and_not_the_76th()
    ),
    _dry_off_by_one: test_repeats.test_golden_dry_in_one_batch,
    _surprise_of_the_wrong_distribution: lambda golden: (
        test_mirostat.test_the_mean_surprise_is_the_target_but_for_the_drift_of_mu(2, "full")
    ),
    _one_mirostat_for_all_rows: lambda golden: (
        test_chain.test_a_row_gives_the_same_codes_alone_in_any_slot_and_beside_any_neighbour(17)
    ),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__.strip("_"))
def test_the_fault_is_found(
    fault: Callable[[Patch], None], golden: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    FAULTS[fault](golden)
    fault(monkeypatch)
    with pytest.raises(AssertionError):
        FAULTS[fault](golden)
