"""The suite is worth something: each of these faults makes a test of it fail.

They are the faults of the references, and the slips that a rewrite of a sampler invites.
"""

import math
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from samplers.ops import draw, entropix, filters, mirostat, penalties, ras, repeats
from samplers.processors import draw as terminal
from samplers.processors import scores
from samplers.processors.scores import Scores
from tests.samplers import distributions
from tests.samplers.ar import test_sampler as test_chain
from tests.samplers.ar import test_trace
from tests.samplers.knobs import test_order
from tests.samplers.ops import (
    test_entropix,
    test_filters,
    test_guidance,
    test_mirostat,
    test_penalties,
    test_repeats,
)
from tests.samplers.statistics import rejected

pytestmark = pytest.mark.slow

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


def _mass_of_what_is_gone(patch: Patch) -> None:
    def keep_from(self: Scores, floor: Tensor) -> None:
        self.logits = filters.keep_from(self.logits, floor)  # and the sorted row keeps them

    patch.setattr(Scores, "keep_from", keep_from)


def _spread_of_what_is_gone(patch: Patch) -> None:
    right = filters.top_n_sigma_floor
    patch.setattr(
        filters, "top_n_sigma_floor",
        lambda logits, n: right(logits.masked_fill(logits == -torch.inf, 0.0), n),
    )  # fmt: skip


def _spread_of_each_frame(patch: Patch) -> None:
    def guide(positive: Tensor, negative: Tensor, strength: Tensor, rescale: Tensor) -> Tensor:
        guided = negative + (positive - negative) * strength
        ratio = positive.std(2, keepdim=True) / guided.std(2, keepdim=True)
        return guided * (rescale * ratio + (1 - rescale))

    patch.setattr(test_guidance, "guide", guide)


def _nats_for_bits(patch: Patch) -> None:
    right = entropix.moments
    patch.setattr(entropix, "moments", lambda logits: [m * math.log(2) for m in right(logits)])


def _penalty_without_sign_rule(patch: Patch) -> None:
    right = penalties.apply_penalty
    patch.setattr(
        penalties, "apply_penalty",
        lambda logits, nats, mode: right(logits, nats, torch.full_like(mode, penalties.RAW)),
    )  # fmt: skip


def _window_of_74(patch: Patch) -> None:
    right = penalties.nats_by_distance

    def shorter(width: int, *, window: Tensor, **rest: Tensor) -> Tensor:
        return right(width, window=window - 1, **rest)

    patch.setattr(penalties, "nats_by_distance", shorter)


def _oldest_of_one_time(patch: Patch) -> None:
    right = penalties._is_newest
    patch.setattr(
        penalties, "_is_newest",
        lambda ids, valid, size: right(ids.flip(1), valid.flip(1), size).flip(1),
    )  # fmt: skip


def _reward_for_distance(patch: Patch) -> None:
    right = penalties.nats_by_distance

    def unclamped(width: int, *, clamp: Tensor, **rest: Tensor) -> Tensor:
        return right(width, clamp=torch.zeros_like(clamp), **rest)

    patch.setattr(penalties, "nats_by_distance", unclamped)


def _dry_across_breakers(patch: Patch) -> None:
    right = repeats.dry

    def dry(
        logits: Tensor, recent: Tensor, runs: Tensor, *, breakers: Tensor | None, **rest: Tensor
    ) -> Tensor:
        return right(logits, recent, runs, **rest)

    patch.setattr(repeats, "dry", dry)


def _dry_off_by_one(patch: Patch) -> None:
    right = repeats.dry

    def later(logits: Tensor, recent: Tensor, runs: Tensor, **rest: Tensor) -> Tensor:
        return right(logits, recent.roll(-1, 1), runs, **rest)

    patch.setattr(repeats, "dry", later)


def _surprise_of_the_wrong_distribution(patch: Patch) -> None:
    right = terminal.Mirostat.update

    def update(self: terminal.Mirostat, scores: Scores, codes: Tensor) -> Tensor:
        truncated = self._truncated
        self._truncated = torch.ones_like(self.active) if truncated is None else None
        moved = right(self, scores, codes)
        self._truncated = truncated
        return moved

    patch.setattr(terminal.Mirostat, "update", update)


def _one_mirostat_for_all_rows(patch: Patch) -> None:
    right = mirostat.update
    patch.setattr(
        mirostat, "update", lambda mu, *rest: right(mu, *rest).mean(0, keepdim=True).expand_as(mu)
    )


def _coin_upside_down(patch: Patch) -> None:
    right = filters.xtc
    patch.setattr(filters, "xtc", lambda logits, t, acts, *rest: right(logits, t, ~acts, *rest))


def _second_draw_of_the_nucleus(patch: Patch) -> None:
    right = ras.fallback
    patch.setattr(
        ras, "fallback",
        lambda logits, *rest: right(logits.masked_fill(logits < logits.mean(), -torch.inf), *rest),
    )  # fmt: skip


def _noise_without(argument: str) -> Callable[[Patch], None]:
    def fault(patch: Patch) -> None:
        right = draw.uniform

        def uniform(keys: Tensor, width: int, **place: Any) -> Tensor:
            if argument == "keys":
                keys = torch.zeros_like(keys)
            return right(keys, width, **{n: c for n, c in place.items() if n != argument})

        patch.setattr(scores, "uniform", uniform)

    fault.__name__ = f"_noise_without_{argument}"
    return fault


def _stated(family: Callable[[Path], distributions.PValues]) -> Check:
    def check(golden: Path) -> None:
        assert rejected(family(golden)) == []

    return check


def _golden_filter(family: str) -> Check:
    return partial(
        test_filters.test_golden_rows_of_different_params_keep_the_stated_codes, family=family
    )


FAULTS: dict[Callable[[Patch], None], Check] = {
    _ascending_top_p: _golden_filter("top_p"),
    _dropped_crossing_code: _golden_filter("top_p"),
    _one_more_than_k: _golden_filter("top_k"),
    _mass_of_what_is_gone: test_order.test_golden_chains_keep_what_they_should_after_each_step,
    _spread_of_what_is_gone: _golden_filter("top_n_sigma"),
    _spread_of_each_frame: test_guidance.test_golden_guidance_aligned_at_the_end,
    _nats_for_bits: test_entropix.test_golden_entropy_and_varentropy_in_one_batch,
    _coin_upside_down: _stated(distributions.xtc),
    _second_draw_of_the_nucleus: _stated(distributions.repetition_aware),
    _noise_without("keys"): lambda golden: (
        test_chain.test_the_seed_the_utterance_and_the_candidate_choose_the_codes()
    ),
    _noise_without("attempt"): lambda golden: (
        test_chain.test_a_rewound_row_is_drawn_with_fresh_noise_and_others_do_not_notice()
    ),
    _noise_without("draw"): _stated(distributions.xtc),
    _min_p_without_effect: _golden_filter("min_p"),
    _score_without_renormalising: test_trace.test_golden_scores_and_log_probabilities_in_one_batch,
    _penalty_without_sign_rule: partial(
        test_penalties.test_golden_repetition_penalty_in_each_mode,
        field="logits_signed", mode="signed", clamp=True,
    ),
    _window_of_74: lambda golden: (
        test_penalties.test_a_window_of_75_counts_the_75th_code_back_and_not_the_76th()
    ),
    _oldest_of_one_time: partial(
        test_penalties.test_golden_repetition_penalty_in_each_mode,
        field="logits_signed", mode="signed", clamp=True,
    ),
    _reward_for_distance: partial(
        test_penalties.test_golden_repetition_penalty_in_each_mode,
        field="logits_signed", mode="signed", clamp=True,
    ),
    _dry_across_breakers: test_repeats.test_golden_dry_in_one_batch,
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
