"""The batched chain: rows are independent, state is per row, edges have one stated outcome."""

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from samplers.ar.sampler import ArSampler
from samplers.ar.trace import Trace
from samplers.knobs.params import BannedSequence, SamplingParams
from samplers.ops.entropix import AttentionStatistics
from tests.capture.watch import Watch
from tests.samplers.reference.harness import attention, make_sampler

STOP, VOCAB = 16, 17
SILENT = torch.arange(VOCAB - 1) % 5 == 0
ALWAYS_HELV: dict[str, Any] = {
    "entropix_low_entropy": 0.0, "entropix_helv_entropy": 0.0, "entropix_low_varentropy": 1e6,
}  # fmt: skip
MIXED = [
    SamplingParams(),
    SamplingParams(temperature=0.0),
    SamplingParams(temperature=0.7, top_k=5),
    SamplingParams(top_p=0.8, repetition_penalty=1.3),
    SamplingParams(min_p=0.1, min_tokens_to_keep=3, length_penalty=0.5),
    SamplingParams(repetition_penalty=1.2, repetition_penalty_decay=-0.5, top_k=9, top_p=0.95),
    SamplingParams(repetition_penalty=0.9, repetition_penalty_window=3, min_frames=6),
    SamplingParams(logit_bias={2: 4.0}, ban_tokens=(3, 4)),
    SamplingParams(temperature=1.4, min_temperature=0.3, frequency_penalty=0.4),
    SamplingParams(temperature=1.5, min_temperature=0.5, dynatemp_mode="entropy", typical_p=0.9),
    SamplingParams(xtc_probability=0.5, top_n_sigma=2.0, presence_penalty=0.3),
    SamplingParams(mirostat_mode=1, mirostat_tau=1.0),
    SamplingParams(mirostat_mode=2, mirostat_tau=1.5, mirostat_surprise="truncated"),
    SamplingParams(ras=True, ras_window=20),
    SamplingParams(dry_multiplier=1.0, dry_allowed_length=1, dry_sequence_breakers=(1,)),
    SamplingParams(no_repeat_ngram_size=2, exponential_decay_factor=1.05),
    SamplingParams(sampler_order="llama", top_p=0.9, temperature=0.8, typical_p=0.95),
    SamplingParams(sampler_order=("top_k", "temperature"), top_k=6, temperature=1.3),
    SamplingParams(
        ban_sequences=(BannedSequence(codes=(1, 2)), BannedSequence(codes=(5,), strength=2.0)),
        epsilon_cutoff=0.01,
        eta_cutoff=0.02,
    ),
    SamplingParams(entropix=True),
    SamplingParams(entropix=True, **ALWAYS_HELV, temperature=0.8, repetition_penalty=1.2),
    SamplingParams(entropix=True, **ALWAYS_HELV, entropix_action="resample", xtc_probability=0.5),
    SamplingParams(
        entropix=True,
        **ALWAYS_HELV,
        entropix_action="pause",
        entropix_pause_interval=3,
        entropix_pause_silence=2,
        sampler_order="llama",
    ),
    SamplingParams(
        entropix=True,
        entropix_adaptive_candidates=2,
        top_k=9,
        top_p=0.9,
        min_p=0.02,
        temperature_last=True,
    ),
]


def make(params: Sequence[SamplingParams], **options: Any) -> ArSampler:
    defaults: dict[str, Any] = {
        "stop_token": STOP, "vocab_size": VOCAB, "max_frames": 40, "silent": SILENT,
    }  # fmt: skip
    seeds = options.pop("seeds", list(range(len(params))))
    return make_sampler(params, seeds, **(defaults | options))


def logits_of(step: int, row: int, vocab: int = VOCAB) -> Tensor:
    """What a model would say to ``row`` at ``step``: the same whatever the batch."""
    generator = torch.Generator().manual_seed(1000 * row + step)
    logits = torch.randn(vocab, generator=generator) * 3
    logits[vocab - 1] -= 3
    return logits


def attention_of(step: int, row: int) -> list[float]:
    """How the model attended: the same whatever the batch."""
    generator = torch.Generator().manual_seed(1000 * row + step + 1)
    return (torch.rand(4, generator=generator) * torch.tensor([6.0, 4.0, 0.2, 3.0])).tolist()


def plain_attention(rows: int) -> AttentionStatistics:
    """The same of every row."""
    return attention([[3.0, 2.0, 0.05, 1.0]] * rows)


def speak(
    sampler: ArSampler, rows: Sequence[int], steps: int, vocab: int = VOCAB
) -> list[list[int]]:
    """What each row gives at each of ``steps`` steps."""
    taken = [
        sampler.step(
            torch.stack([logits_of(t, row, vocab) for row in rows]),
            attention=attention([attention_of(t, row) for row in rows]),
        )
        for t in range(steps)
    ]
    return torch.stack(taken, 1).tolist()


@pytest.mark.parametrize("vocab", [17, 1025])
def test_a_row_gives_the_same_codes_alone_in_any_slot_and_beside_any_neighbour(vocab: int) -> None:
    options = {"vocab_size": vocab, "stop_token": vocab - 1}
    order = list(range(len(MIXED)))
    together = speak(make(MIXED, **options), order, 30, vocab)
    backwards = speak(make(MIXED[::-1], seeds=order[::-1], **options), order[::-1], 30, vocab)[::-1]
    assert backwards == together
    twice = speak(make(MIXED * 2, seeds=order * 2, **options), order * 2, 30, vocab)
    assert twice == together * 2
    for row in order:
        alone = speak(make([MIXED[row]], seeds=[row], **options), [row], 30, vocab)
        assert alone == [together[row]]


def test_the_seed_the_utterance_and_the_candidate_choose_the_codes() -> None:
    params = [SamplingParams()] * 5
    sampler = make(
        params, seeds=[1, 1, 2, 1, 1], utterances=[0, 0, 0, 1, 0], candidates=[0, 0, 0, 0, 1]
    )
    first, same, *others = speak(sampler, [0] * 5, 12)
    assert first == same
    assert all(other != first for other in others)


def test_greedy_ignores_the_seed() -> None:
    sampler = make([SamplingParams(temperature=t) for t in (0.0, 0.0, -1.0)])
    first, *others = speak(sampler, [0] * 3, 12)
    assert others == [first, first]


def test_the_logits_of_the_model_are_not_changed() -> None:
    sampler = make(MIXED)
    for _ in range(3):
        logits = torch.randn(len(MIXED), VOCAB)
        before = logits.clone()
        sampler.step(logits, attention=plain_attention(len(MIXED)))
        assert torch.equal(logits, before)


def test_half_precision_logits_are_accepted() -> None:
    logits = torch.randn(len(MIXED), VOCAB).to(torch.bfloat16)
    heads = plain_attention(len(MIXED))
    half = make(MIXED).step(logits, attention=heads)
    assert torch.equal(half, make(MIXED).step(logits.float(), attention=heads))


def test_a_row_that_stopped_gives_the_stop_and_grows_no_more_while_others_go_on() -> None:
    sampler = make([SamplingParams(), SamplingParams()])
    stop = torch.zeros(VOCAB)
    stop[STOP] = 1e9
    go = torch.zeros(VOCAB)
    go[STOP] = -1e9
    sampler.step(torch.stack([go, go]))
    assert sampler.step(torch.stack([stop, go]))[0] == STOP
    codes = sampler.step(torch.stack([go, go]))
    assert codes[0] == STOP
    assert codes[1] != STOP
    assert sampler.table.lengths.tolist() == [1, 3]


def test_a_row_never_grows_past_the_longest_history() -> None:
    sampler = make([SamplingParams()], max_frames=3)
    logits = torch.zeros(1, VOCAB)
    logits[0, STOP] = -1e9
    taken = [sampler.step(logits).item() for _ in range(5)]
    assert STOP not in taken[:3]
    assert taken[3:] == [STOP, STOP]
    assert sampler.table.lengths.tolist() == [3]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_row_from_which_nothing_may_be_drawn_stops(temperature: float) -> None:
    sampler = make([SamplingParams(temperature=temperature), SamplingParams()])
    logits = torch.zeros(2, VOCAB)
    logits[:, STOP] = -1e9
    logits[0] = -torch.inf
    codes = sampler.step(logits)
    assert codes[0] == STOP
    assert codes[1] != STOP


def test_a_rewound_row_is_drawn_with_fresh_noise_and_others_do_not_notice() -> None:
    flat = torch.zeros(2, VOCAB)
    flat[:, STOP] = -1e9
    rewound, straight = make([SamplingParams()] * 2), make([SamplingParams()] * 2)
    first = torch.stack([rewound.step(flat) for _ in range(20)], 1)
    for _ in range(20):
        straight.step(flat)
    rewound.rewind(0, 5)
    assert rewound.table.lengths.tolist() == [5, 20]
    again = torch.stack([rewound.step(flat) for _ in range(15)], 1)
    after = torch.stack([straight.step(flat) for _ in range(15)], 1)
    assert again[0].tolist() != first[0, 5:].tolist()
    assert again[1].tolist() == after[1].tolist()
    assert rewound.table.codes[0, :5].tolist() == first[0, :5].tolist()
    assert rewound.table.lengths.tolist() == [20, 35]


def test_a_rewind_takes_back_what_penalties_saw_and_revives_a_stopped_row() -> None:
    params = SamplingParams(temperature=0.0, repetition_penalty=5.0)
    logits = torch.tensor([[4.0, 3.0, 2.0, *[0.0] * (VOCAB - 3)]])
    logits[0, STOP] = -1e9
    sampler = make([params], max_frames=2)
    assert [sampler.step(logits).item() for _ in range(3)] == [0, 1, STOP]
    sampler.rewind(0, 1)
    assert sampler.step(logits).item() == 1
    sampler.rewind(0, 0)
    assert sampler.step(logits).item() == 0


def test_a_rewound_row_sees_the_history_that_it_was_rewound_to() -> None:
    params = SamplingParams(
        temperature=0.0, dry_multiplier=2.0, no_repeat_ngram_size=3, repetition_penalty=1.1,
        frequency_penalty=0.1, ban_sequences=(BannedSequence(codes=(2, 3)),),
    )  # fmt: skip
    logits = [torch.randn(1, VOCAB) for _ in range(30)]
    for row in logits:
        row[:, STOP] = -1e9
    sampler = make([params])
    first = [sampler.step(row).item() for row in logits]
    for length in (12, 0, 29):
        sampler.rewind(0, length)
        assert [sampler.step(row).item() for row in logits[length:]] == first[length:]


def test_a_row_without_entropix_is_not_changed_by_one_with_it_in_scores_or_code() -> None:
    """Not by a bit: the same scores, and not only the same code."""
    plain = [p for p in MIXED if not p.entropix]
    seeds = range(len(plain))
    alone, beside = make(plain, seeds=list(seeds)), make(
        [*plain, SamplingParams(entropix=True)], seeds=[*seeds, 99]
    )  # fmt: skip
    for step in range(20):
        rows = torch.stack([logits_of(step, row) for row in (*seeds, 99)])
        few, more = Trace(), Trace()
        codes = alone.step(rows[:-1], few)
        heads = attention([attention_of(step, row) for row in (*seeds, 99)])
        assert torch.equal(beside.step(rows, more, attention=heads)[:-1], codes)
        for name in ("score", "kept", "temperature", "entropy_bits"):
            one, other = getattr(few.records[0], name), getattr(more.records[0], name)
            assert torch.equal(one, other[:-1]), name


def test_entropix_needs_the_attention_statistics_and_nothing_else_does() -> None:
    with pytest.raises(ValueError, match="attention statistics"):
        make([SamplingParams(entropix=True)]).step(torch.zeros(1, VOCAB))


def test_a_stop_outside_the_vocabulary_is_refused() -> None:
    with pytest.raises(ValueError, match="stop_token"):
        make(MIXED, stop_token=VOCAB)


@pytest.mark.usefixtures("sorted_as_on_a_gpu")
def test_a_step_never_makes_the_host_wait_for_the_device() -> None:
    sampler, heads = make(MIXED), plain_attention(len(MIXED))
    sampler.step(torch.zeros(len(MIXED), VOCAB), attention=heads)  # reads the params of the rows
    with Watch("raise").on():
        for _ in range(3):
            sampler.step(torch.zeros(len(MIXED), VOCAB), attention=heads)


# 7 is what the first logits would draw, so that every penalty has something to change.
PROMPT = torch.tensor([3, 7, 9, 3])
GREEDY = {"temperature": 0.0, "ban_tokens": (STOP,)}
PENALTIES: dict[str, dict[str, float]] = {
    "repetition": {"repetition_penalty": 4.0, "repetition_penalty_window": 6},
    "whole history": {"repetition_penalty": 4.0, "repetition_penalty_window": 0},
    "frequency": {"frequency_penalty": 2.0},
    "presence": {"presence_penalty": 2.0},
    "dry": {"dry_multiplier": 3.0, "dry_allowed_length": 1},
    "ngram": {"no_repeat_ngram_size": 2},
}


def counting(**knobs: object) -> SamplingParams:
    return SamplingParams.model_validate(GREEDY | {"penalty_includes_prompt": True} | knobs)


def forced(code: int) -> Tensor:
    """Logits that draw one code whatever the penalties say."""
    return torch.full((1, VOCAB), -1e6).index_fill(1, torch.tensor([code]), 1e6)


def draw(sampler: ArSampler, frames: int = 12) -> list[int]:
    """Draw from logits that change at every frame, so that greedy does not loop."""
    return [int(sampler.step(logits_of(t, 0)[None])) for t in range(frames)]


@pytest.mark.parametrize("knobs", PENALTIES.values(), ids=PENALTIES)
def test_a_prompt_that_counts_acts_as_the_same_codes_drawn(knobs: dict[str, float]) -> None:
    drawn, given = make([counting(**knobs)]), make([counting(**knobs)], prompts=[PROMPT])
    for code in PROMPT.tolist():
        assert int(drawn.step(forced(code))) == code
    codes = draw(given)
    assert codes == draw(drawn)
    assert codes != draw(make([counting(**knobs)]))


def test_a_row_that_does_not_count_its_prompt_does_not_notice_it_or_its_neighbours() -> None:
    knobs = PENALTIES["repetition"] | PENALTIES["dry"]
    plain = counting(**knobs, penalty_includes_prompt=False)
    alone = speak(make([plain]), [0], 12)
    assert speak(make([plain], prompts=[PROMPT]), [0], 12) == alone
    mixed = make([counting(**knobs), plain], seeds=[1, 0], prompts=[PROMPT, None])
    assert speak(mixed, [1, 0], 12)[1:] == alone


def test_a_rewound_row_still_counts_its_prompt() -> None:
    sampler = make([counting(**PENALTIES["dry"])], prompts=[PROMPT])
    before = draw(sampler)
    sampler.rewind(0, 0)
    assert draw(sampler) == before


def test_a_prompt_is_no_speech_to_what_looks_at_speech_alone() -> None:
    sampler = make([counting(**PENALTIES["dry"])], prompts=[PROMPT])
    draw(sampler, 3)
    assert sampler.table.lengths.tolist() == [3]
