"""Any params in bounds, any logits, any history: a legal code, and neither an exception nor a hang.

ArSequence does not shrink here: with inputs of this size that would take minutes.
"""

import pytest
import torch
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from torch import Tensor

from samplers.ar.sampler import ArSampler
from samplers.knobs.params import SamplingParams
from tests.samplers.frames import sample_frames
from tests.samplers.reference.harness import attention, codes_of, make_sampler
from tests.samplers.strategies import hard_logits, sampling_params

STOP, VOCAB, FRAMES = 16, 17, 6
CODES = st.integers(0, STOP - 1)

without_shrinking = settings(
    max_examples=200,
    deadline=None,
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


def _sampler(data: st.DataObject, params: list[SamplingParams]) -> ArSampler:
    prompts = [data.draw(st.none() | st.lists(CODES, max_size=4)) for _ in params]
    silent = data.draw(st.lists(st.integers(0, STOP - 1), unique=True))
    return make_sampler(
        params,
        [data.draw(st.integers(-(2**63), 2**64)) for _ in params],
        stop_token=STOP,
        vocab_size=VOCAB,
        max_frames=FRAMES,
        prompts=[None if codes is None else torch.tensor(codes).long() for codes in prompts],
        silent=silent,
    )


def _step(data: st.DataObject, sampler: ArSampler, rows: int) -> Tensor:
    heads = data.draw(
        st.lists(st.lists(st.floats(), min_size=4, max_size=4), min_size=rows, max_size=rows)
    )
    return sampler.step(data.draw(hard_logits(rows, VOCAB)), attention=attention(heads))


def a_legal_code_at_every_step(data: st.DataObject) -> None:
    """Sample params, logits and rewinds from `data`, and check what each row gives."""
    rows = data.draw(st.integers(1, 4))
    params = [data.draw(sampling_params()) for _ in range(rows)]
    sampler = _sampler(data, params)
    params = [one for one in params for _ in range(one.beam_width or 1)]
    rows = len(sampler.active)
    for _ in range(data.draw(st.integers(1, FRAMES + 1))):
        codes = _step(data, sampler, rows).tolist()
        for row, code in enumerate(codes):
            assert 0 <= code < VOCAB
            assert code == STOP or code not in params[row].ban_tokens
            sampled = codes_of(sampler, row)
            assert STOP not in sampled
            assert code == STOP or sampled[-1] == code
        if data.draw(st.booleans()):
            row = data.draw(st.integers(0, rows - 1))
            sampler.rewind(row, data.draw(st.integers(0, int(sampler.table.lengths[row]))))


@pytest.mark.slow
@without_shrinking
@given(st.data())
def test_any_params_any_logits_any_history_give_a_legal_code(data: st.DataObject) -> None:
    a_legal_code_at_every_step(data)


@pytest.mark.slow
@without_shrinking
@given(st.data())
def test_a_row_without_a_possible_code_gives_the_stop(data: st.DataObject) -> None:
    sampler = _sampler(data, [data.draw(sampling_params())])
    _step(data, sampler, len(sampler.active))
    nothing = torch.full((len(sampler.active), VOCAB), -torch.inf)
    heads = attention([[1.0] * 4] * len(sampler.active))
    assert sampler.step(nothing, attention=heads).tolist() == [STOP] * len(sampler.active)


@pytest.mark.slow
@without_shrinking
@given(st.data())
def test_any_frames_give_legal_codes_of_a_finer_level(data: st.DataObject) -> None:
    frames, params = data.draw(st.integers(0, 4)), data.draw(sampling_params())
    codes = sample_frames(
        data.draw(hard_logits(frames, VOCAB)), params, seed=data.draw(st.integers(0, 2**63)),
        utterance=0, level=data.draw(st.integers(1, 7)),
        codebook=torch.randn(VOCAB, 3),
    )  # fmt: skip
    assert len(codes) == frames
    for code in codes.tolist():
        assert 0 <= code < VOCAB


def test_a_top_k_beyond_any_tensor_keeps_every_code_of_a_finer_level() -> None:
    logits = torch.randn(5, VOCAB)
    plain, huge = (
        sample_frames(
            logits, SamplingParams(nar_temperature=1.0, nar_top_k=k), seed=1, utterance=0, level=1
        )
        for k in (0, 10**30)
    )
    assert torch.equal(plain, huge)
