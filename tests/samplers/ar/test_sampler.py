"""What rows of a table remember, what a rewind or a fork takes with it, and that no host waits.

That rows are independent is said by `test_runner` of level 0; when they stop, by the kernels'
`test_plain`, whose reference says it once more; what codes depend on, by
`tests/app/engine/test_decode`.
"""

from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor

from samplers.ar.sampler import ArSampler
from samplers.ar.state import Avoided, RowInput, SlotTable
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
    spoil,
)
from tests.samplers.reference.harness import attention, codes_of

SLOTS, SAMPLED = 9, 12
SEEDS = range(len(MIXED))
HISTORY = PROMPT.tolist()
PENALTIES: dict[str, dict[str, Any]] = {
    "repetition": {"repetition_penalty": 4.0, "repetition_penalty_window": 6},
    "whole history": {"repetition_penalty": 4.0, "repetition_penalty_window": 0},
    "frequency": {"frequency_penalty": 2.0},
    "presence": {"presence_penalty": 2.0},
    "dry": {"dry_multiplier": 3.0, "dry_allowed_length": 1},
    "ngram": {"no_repeat_ngram_size": 2},
}


def begun(params: SamplingParams, prompt: Tensor | None, *codes: int) -> ArSampler:
    """Return a row that has sampled some codes and may sample `DRAWN` more, in a used table.

    Every number of the table is the worst that rows before may have left.
    """
    table = SlotTable(SLOTS, frames=30, prompt=len(PROMPT), vocab_size=VOCAB)
    spoil(table)
    sampler = ArSampler(table, stop_token=STOP)
    sampler.join([0], RowInput(params, 1, len(codes) + SAMPLED, prompt=prompt))
    for code in codes:
        assert int(sampler.step(leaning(code, against=-1e6))) == code
    return sampler


def sample(sampler: ArSampler, row: int = 0, first: int = 0) -> list[int]:
    """Sample to the end from logits that change at every frame, so that greedy does not loop."""
    rows = len(sampler.active)
    told = (logits_of(t, 0).expand(rows, -1) for t in range(first, SAMPLED + 1))
    return [int(sampler.step(one)[row]) for one in told]


@pytest.mark.parametrize("knobs", PENALTIES.values(), ids=PENALTIES)
def test_codes_count_alike_whether_drawn_given_or_forked_also_after_a_rewind(knobs) -> None:
    params = SamplingParams(temperature=0.0, ban_tokens=(STOP,), **knobs)
    counting = params.model_copy(update={"penalty_includes_prompt": True})
    given, sampled = begun(counting, PROMPT), begun(params, None, *HISTORY)
    expected = sample(sampled)
    assert expected[-1] == STOP
    assert sample(given) == expected
    assert codes_of(given, 0) == expected[:-1]  # the prompt is no speech
    plain = sample(begun(params, None))
    assert plain != expected  # every penalty has something to change
    assert plain == sample(begun(params, PROMPT))  # which does not count it
    for length in (7, 0, 11):  # a row that has ended goes on
        given.rewind(0, length)
        assert sample(given, first=length) == expected[length:]
    forked = begun(counting, PROMPT[:2], HISTORY[2], 5)
    forked.fork(0, 3, 1 + 1, HISTORY[3], 1)
    assert [codes_of(forked, slot) for slot in (0, 3)] == [[HISTORY[2], 5], HISTORY[2:]]
    assert sample(forked, row=1) == expected


def test_forks_with_other_numbers_draw_otherwise_and_the_row_itself_as_before() -> None:
    samplers = [begun(SamplingParams(), None) for _ in range(2)]
    for sampler in samplers:
        sampler.step(leaning(None))
    (code,) = codes_of(samplers[0], 0)
    for number in (1, 2):
        samplers[0].fork(0, 3 * number, 1, code, number)
    for sampler in samplers:
        for _ in range(SAMPLED - 1):
            sampler.step(leaning(*[None] * len(sampler.active)))
    assert codes_of(samplers[0], 0) == codes_of(samplers[1], 0)
    assert len({tuple(codes_of(samplers[0], slot)) for slot in (0, 3, 6)}) == 3


def test_a_rewound_row_is_drawn_with_fresh_noise() -> None:
    sampler, flat = make([SamplingParams()], [0]), leaning(None)
    first = [int(sampler.step(flat)) for _ in range(20)]
    sampler.rewind(0, 5)
    assert [int(sampler.step(flat)) for _ in range(15)] != first[5:]


def test_what_a_rewound_row_is_to_avoid_is_avoided_until_a_frame() -> None:
    sampler, flat = make([SamplingParams(temperature=0.0)] * 2, [0, 1]), torch.zeros(2, VOCAB)
    flat[:, 7], flat[:, 4] = 3.0, 2.0
    for _ in range(9):
        sampler.step(flat)
    nats = torch.zeros(VOCAB).index_fill(0, torch.tensor([7]), -1.5)
    sampler.rewind(0, 5, Avoided(nats, 8))
    for _ in range(5):
        sampler.step(flat)
    assert codes_of(sampler, 0) == [*[7] * 5, *[4] * 3, *[7] * 2]
    assert codes_of(sampler, 1) == [7] * 14
    sampler.rewind(0, 6)  # what was to be avoided is forgotten
    sampler.step(flat)
    assert codes_of(sampler, 0) == [*[7] * 5, 4, 7]


def test_a_rewound_row_may_be_unguided_until_a_frame() -> None:
    greedy = {"temperature": 0.0, "cfg_strength": 2.0, "cfg_rescale": 0.0}
    sampler = make([SamplingParams.model_validate(greedy)] * 2, [0, 1])
    own, null = torch.zeros(2, VOCAB), torch.zeros(2, VOCAB)
    own[:, 4], own[:, 7], null[:, 4] = 3.0, 2.0, 3.0  # guided, 7 is better
    for _ in range(9):
        sampler.step(own, null=null)
    for slot, unguided in enumerate((True, False)):
        sampler.rewind(slot, 5, Avoided(torch.zeros(VOCAB), 8, unguided))
    for _ in range(5):
        sampler.step(own, null=null)
    assert codes_of(sampler, 0) == [*[7] * 5, *[4] * 3, *[7] * 2]
    assert codes_of(sampler, 1) == [7] * 10


@pytest.mark.usefixtures("sorted_as_on_a_gpu")
def test_half_precision_and_a_trace_change_no_code_and_no_step_makes_the_host_wait() -> None:
    single, half, heads = (
        make(MIXED, SEEDS),
        make(MIXED, SEEDS),
        attention([[3.0, 2.0, 0.05, 1.0]] * len(MIXED)),
    )
    for step in range(6):
        logits, trace = torch.randn(len(MIXED), VOCAB).to(torch.bfloat16), Trace()
        given = logits.float()
        with Watch("raise").on() if step else nullcontext():  # the first reads the rows' params
            codes = single.step(given, trace, attention=heads)
            others = half.step(logits, attention=heads)
        assert torch.equal(codes, others)
        assert torch.equal(given, logits.float())
        assert len(trace.records) == 1


def test_what_is_missing_or_out_of_range_is_refused() -> None:
    with pytest.raises(ValueError, match="attention statistics"):
        make([SamplingParams(entropix=True)], [0]).step(torch.zeros(1, VOCAB))
    with pytest.raises(ValueError, match="stop_token"):
        make(MIXED, SEEDS, stop_token=VOCAB)


def test_a_code_that_is_drawn_already_is_appended_and_told_though_no_operator_would_sample_it() -> (
    None
):
    params = SamplingParams(top_k=1)
    sampler, other = begun(params, None, 5), begun(params, None, 5)
    trace = Trace()
    logits = leaning(7)
    found = sampler.advance(logits, trace, known_codes=torch.tensor([9])).codes
    assert (found.tolist(), int(trace.records[0]["code"])) == ([9], 9)
    assert sampler.advance(logits, known_codes=torch.tensor([-1])).codes.tolist() == [7]
    assert sampler.table.codes[0, :3].tolist() == [5, 9, 7]
    assert other.advance(logits, known_codes=torch.tensor([STOP])).codes.tolist() == [STOP]
    assert other.table.stopped[0]
