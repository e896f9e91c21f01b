"""The batched chain: what it takes, what a rewind takes back, and that no host waits for it.

That rows are independent is said by `test_state`; when they stop, by the kernels' `test_plain`,
whose reference says it once more; what codes depend on, by `tests/app/engine/test_decode`.
"""

import pytest
import torch

from samplers.ar.trace import Trace
from samplers.knobs.params import SamplingParams
from tests.capture.watch import Watch
from tests.samplers.ar.rows import (
    MIXED,
    PROMPT,
    STOP,
    VOCAB,
    leaning,
    logits_of,
    make,
    plain_attention,
)


def test_logits_may_be_in_half_precision_and_neither_they_change_nor_a_trace_the_codes() -> None:
    single, half, heads = make(MIXED), make(MIXED), plain_attention(len(MIXED))
    for _ in range(6):
        logits = torch.randn(len(MIXED), VOCAB).to(torch.bfloat16)
        given, trace = logits.float(), Trace()
        codes = single.step(given, trace, attention=heads)
        assert torch.equal(given, logits.float())
        assert torch.equal(half.step(logits, attention=heads), codes)
        assert len(trace.records) == 1


def test_a_rewound_row_is_drawn_with_fresh_noise() -> None:
    sampler, flat = make([SamplingParams()]), leaning(None)
    first = [int(sampler.step(flat)) for _ in range(20)]
    sampler.rewind(0, 5)
    assert [int(sampler.step(flat)) for _ in range(15)] != first[5:]


def test_a_rewind_takes_back_what_penalties_saw_and_revives_a_stopped_row() -> None:
    sampler = make([SamplingParams(temperature=0.0, repetition_penalty=5.0)], max_frames=2)
    logits = leaning(None)
    logits[0, :3] = torch.tensor([4.0, 3.0, 2.0])
    assert [sampler.step(logits).item() for _ in range(3)] == [0, 1, STOP]
    sampler.rewind(0, 1)
    assert sampler.step(logits).item() == 1
    sampler.rewind(0, 0)
    assert sampler.step(logits).item() == 0


def test_what_is_missing_or_out_of_range_is_refused() -> None:
    with pytest.raises(ValueError, match="attention statistics"):
        make([SamplingParams(entropix=True)]).step(torch.zeros(1, VOCAB))
    with pytest.raises(ValueError, match="stop_token"):
        make(MIXED, stop_token=VOCAB)


@pytest.mark.usefixtures("sorted_as_on_a_gpu")
def test_a_step_never_makes_the_host_wait_for_the_device() -> None:
    sampler, heads = make(MIXED), plain_attention(len(MIXED))
    sampler.step(torch.zeros(len(MIXED), VOCAB), attention=heads)  # reads the params of the rows
    with Watch("raise").on():
        for _ in range(3):
            sampler.step(torch.zeros(len(MIXED), VOCAB), attention=heads)


def test_a_row_that_does_not_count_its_prompt_does_not_notice_it() -> None:
    plain = [SamplingParams(repetition_penalty=4.0, repetition_penalty_window=6)]
    with_prompt, without = make(plain, prompts=[PROMPT]), make(plain)
    for step in range(12):
        logits = logits_of(step, 0)[None]
        assert with_prompt.step(logits) == without.step(logits)
