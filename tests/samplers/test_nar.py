"""The NAR levels: greedy by default, every `nar_` knob at work.

That chunks have the codes of the whole is said by `sound/test_utterance`.
"""

import pytest
import torch

from samplers.knobs.params import SamplingParams
from samplers.nar import FULL, LIGHT, NarKind, kind_of, pack_rows, row_of, sample_nar
from tests.samplers.frames import sample_frames

LOGITS = torch.randn(60, 32, generator=torch.Generator().manual_seed(3)) * 2
WARM = SamplingParams(nar_temperature=1.0)


def _sample(
    params: SamplingParams, seed: int = 1, utterance: int = 0, level: int = 1, position: int = 0
) -> list[int]:
    codes: list[int] = sample_frames(
        LOGITS, params, seed=seed, utterance=utterance, level=level, position=position
    ).tolist()
    return codes


def test_the_default_is_greedy_whatever_the_seed() -> None:
    assert _sample(SamplingParams()) == LOGITS.argmax(-1).tolist()
    assert _sample(SamplingParams(), seed=9) == _sample(SamplingParams())


def test_the_seed_the_utterance_the_level_and_the_frame_choose_the_codes() -> None:
    sampled = [_sample(WARM, **change) for change in (
        {}, {"seed": 2}, {"utterance": 1}, {"level": 2}, {"position": 60}
    )]  # fmt: skip
    assert len({tuple(codes) for codes in sampled}) == len(sampled)


def test_levels_may_have_their_own_temperatures() -> None:
    params = SamplingParams(nar_temperature=1.0, nar_level_temperatures=(0.0, 2.0))
    assert _sample(params, level=1) == _sample(SamplingParams())
    assert _sample(params, level=2) == _sample(SamplingParams(nar_temperature=2.0), level=2)
    assert _sample(params, level=3) == _sample(WARM, level=3)


BOOK = torch.randn(32, 6, generator=torch.Generator().manual_seed(4))
MEAN = SamplingParams(nar_decision="mean")


def _nearest(logits: torch.Tensor) -> torch.Tensor:
    """Return the code of least expected squared error, by trying all of them."""
    apart = torch.cdist(BOOK.double(), BOOK.double()).pow(2)
    return (logits.double().softmax(-1) @ apart).argmin(-1)


def test_the_mean_decision_has_the_least_expected_squared_error() -> None:
    sampled = sample_frames(LOGITS, MEAN, seed=1, utterance=0, level=1, codebook=BOOK)
    assert torch.equal(sampled, _nearest(LOGITS))
    assert sampled.tolist() != LOGITS.argmax(-1).tolist()


def test_the_mean_decision_never_takes_what_is_masked() -> None:
    masked = LOGITS.clone().masked_fill(torch.arange(32) % 4 > 0, -torch.inf)
    sampled = sample_frames(masked, MEAN, seed=1, utterance=0, level=1, codebook=BOOK)
    assert not (sampled % 4).any()
    kept = SamplingParams(nar_decision="mean", nar_top_k=1)
    sampled = sample_frames(LOGITS, kept, seed=1, utterance=0, level=1, codebook=BOOK)
    assert sampled.tolist() == LOGITS.argmax(-1).tolist()


@pytest.mark.parametrize("knob", [{"nar_top_k": 1}, {"nar_top_p": 0.0}, {"nar_min_p": 1.0}])
def test_a_filter_that_keeps_one_code_is_greedy(knob: dict[str, float]) -> None:
    assert _sample(SamplingParams(nar_temperature=1.0, **knob)) == _sample(SamplingParams())


def test_the_logits_are_not_changed() -> None:
    for params in (SamplingParams(), WARM):
        logits = LOGITS.clone()
        sample_frames(logits, params, seed=1, utterance=0, level=1)
        assert torch.equal(logits, LOGITS)


def test_a_row_without_a_finite_logit_still_gives_a_code() -> None:
    logits = torch.full((2, 5), -torch.inf)
    logits[1, 2] = torch.nan
    for params in (SamplingParams(), WARM, MEAN):
        codes = sample_frames(logits, params, seed=0, utterance=0, level=1, codebook=BOOK[:5])
        assert codes.tolist() == [0, 0]


ROWS = [
    SamplingParams(),
    WARM,
    MEAN,
    SamplingParams(nar_decision="mean", nar_top_k=4, nar_min_p=0.1),
    SamplingParams(nar_temperature=0.8, nar_top_k=9, nar_top_p=0.9, nar_min_p=0.05),
    SamplingParams(nar_temperature=1.3, nar_top_p=0.0, nar_min_p=2e-3),
    SamplingParams(nar_temperature=1e-9, nar_top_k=64),
    SamplingParams(nar_temperature=1.0, nar_level_temperatures=(0.5, -1.0)),
]


@pytest.mark.parametrize("level", [1, 2])
@pytest.mark.parametrize("kind", [LIGHT, FULL])
def test_rows_of_all_kinds_are_drawn_as_each_alone(level: int, kind: NarKind) -> None:
    own = [params for params in ROWS if kind is FULL or kind_of(params, level).is_light]
    logits = torch.randn(len(own), 20, 32, generator=torch.Generator().manual_seed(level)) * 2
    logits[:, 3, 5], logits[:, 4], logits[:, 6, 2] = torch.nan, -torch.inf, torch.inf
    rows = torch.from_numpy(
        pack_rows([
            row_of(params, seed=seed, utterance=2, level=level, vocab_size=32)
            for seed, params in enumerate(own)
        ])
    )
    found = sample_nar(logits, rows, torch.arange(len(own)) * 15, BOOK, kind)
    for number, params in enumerate(own):
        alone = sample_frames(
            logits[number], params, seed=number, utterance=2, level=level,
            position=15 * number, codebook=BOOK,
        )  # fmt: skip
        assert torch.equal(found[number], alone), params
