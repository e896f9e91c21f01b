"""The hash noise and the samples: exact, and independent of all but the place."""

from pathlib import Path

import torch
from hypothesis import given
from hypothesis import strategies as st

from samplers.ops.sample import (
    Stage,
    categorical,
    forked_keys,
    greedy,
    stream_key,
    uniform,
    without_replacement,
)
from tests.samplers.reference.harness import load, stack
from tests.samplers.statistics import ALPHA, chi_square

WORD = (1 << 64) - 1


def _splitmix64(state: int) -> int:
    word = state & WORD
    word = ((word ^ (word >> 30)) * 0xBF58476D1CE4E5B9) & WORD
    word = ((word ^ (word >> 27)) * 0x94D049BB133111EB) & WORD
    return word ^ (word >> 31)


@given(st.integers(-(2**63), 2**63 - 1))
def test_noise_is_splitmix64_of_the_place_in_plain_integers(key: int) -> None:
    noise = uniform(torch.tensor([[key]]), 5)[0].tolist()
    for entry, number in enumerate(noise, start=1):
        word = _splitmix64(_splitmix64(key) + entry * 0x9E3779B97F4A7C15)
        assert abs(number - ((word >> 24) + 0.5) / 2**40) < 2**-23


WORDS = st.integers(-(2**63), 2**63 - 1)
COUNTS = st.integers(0, 2**40)


@given(WORDS, st.tuples(COUNTS, COUNTS, COUNTS, COUNTS))
def test_a_place_is_the_same_in_numbers_and_in_tensors(
    key: int, place: tuple[int, int, int, int]
) -> None:
    keys = torch.tensor([[key]])
    step, position, attempt, sample = place
    tensors = [torch.tensor([[count]]) for count in place[:3]]
    noise = uniform(keys, 9, step=step, position=position, attempt=attempt, sample=sample)
    again = uniform(
        keys, 9, step=tensors[0], position=tensors[1], attempt=tensors[2], sample=sample
    )  # fmt: skip
    assert torch.equal(noise, again)
    draws = torch.tensor([3, sample, 0])[:, None, None]
    several = uniform(keys, 9, step=step, position=position, attempt=attempt, sample=draws)
    assert torch.equal(several[1], noise)


def test_golden_splitmix64_matches_its_published_first_outputs() -> None:
    # splitmix64.c with state 0: the finaliser of multiples of the golden ratio.
    outputs = [_splitmix64(i * 0x9E3779B97F4A7C15) for i in (1, 2, 3)]
    assert outputs == [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]


def test_noise_stays_strictly_between_zero_and_one() -> None:
    keys = torch.arange(2000)[:, None]
    noise = uniform(keys, 1025)
    assert noise.min() > 0
    assert noise.max() < 1


def test_every_part_of_a_place_changes_the_noise() -> None:
    key = torch.tensor([[stream_key(1, 0, Stage.AR)]])
    places = [
        uniform(key, 8),
        uniform(key, 8, step=1),
        uniform(key, 8, position=1),
        uniform(key, 8, attempt=1),
        uniform(key, 8, sample=1),
        *(
            uniform(torch.tensor([[other]]), 8)
            for other in (
                stream_key(2, 0, Stage.AR),
                stream_key(1, 1, Stage.AR),
                stream_key(1, 0, Stage.NAR),
                stream_key(1, 0, Stage.AR, level=1),
                stream_key(1, 0, Stage.AR, candidate=1),
            )
        ),
    ]
    assert len({tuple(place[0].tolist()) for place in places}) == len(places)


def test_a_place_gives_a_row_the_same_noise_alone_and_among_others() -> None:
    keys = torch.tensor([[stream_key(seed, 0, Stage.AR)] for seed in range(9)])
    steps = torch.arange(9)[:, None]
    together = uniform(keys, 1025, step=steps)
    for row in range(9):
        assert torch.equal(uniform(keys[row : row + 1], 1025, step=row), together[row : row + 1])


def test_a_wider_vocabulary_has_the_noise_of_a_narrower_one() -> None:
    key = torch.tensor([[stream_key(5, 0, Stage.AR)]])
    assert torch.equal(uniform(key, 1025)[:, :64], uniform(key, 64))


def test_the_argmax_under_gumbel_noise_is_that_of_the_golden_data(golden: Path) -> None:
    for case in load(golden, "gumbel_argmax"):
        logits = stack([case["logits"]]) / case["params"]["temperature"]
        token = categorical(logits, 1 - stack([case["u_per_token"]]))
        assert token.item() == case["expected"]["gumbel_token"], case["id"]


def test_golden_greedy_takes_the_lowest_id_on_a_tie(golden: Path) -> None:
    (case,) = (
        case for case in load(golden, "edge_policy") if "all_equal_greedy_lowest_id" in case["tags"]
    )
    assert greedy(stack([case["logits"]])).tolist() == [case["expected"]["token"]]
    assert greedy(torch.tensor([[1.0, 3.0, 3.0], [-torch.inf] * 3])).tolist() == [1, 0]


def test_a_code_that_is_gone_is_never_drawn() -> None:
    logits = torch.tensor([[0.0, -torch.inf, 0.0, -torch.inf]]).expand(100_000, 4)
    keys = torch.arange(100_000)[:, None]
    assert set(categorical(logits, uniform(keys, 4)).tolist()) == {0, 2}


def test_several_without_replacement_have_the_distribution_of_one_after_the_other() -> None:
    logits = torch.tensor([[0.5, -1.0, 1.5, -torch.inf, 0.0]])
    keys = torch.arange(200_000)[:, None]
    sampled = without_replacement(logits.expand(200_000, 5), uniform(keys, 5), 2)
    assert torch.equal(sampled[:, 0], categorical(logits.expand(200_000, 5), uniform(keys, 5)))
    p = logits.softmax(-1)[0].double()
    table = p[:, None] * p / (1 - p)[:, None] * (1 - torch.eye(5))
    counts = torch.bincount(sampled[:, 0] * 5 + sampled[:, 1], minlength=25)
    assert chi_square(counts, table.flatten()) > ALPHA


def test_where_there_are_no_more_codes_there_is_none() -> None:
    logits = torch.tensor([[0.0, -torch.inf, 3.0], [-torch.inf] * 3, [0.0, 0.0, 0.0]])
    noise = uniform(torch.arange(3)[:, None], 3)
    sampled = without_replacement(logits[:1], noise[:1], 5)[0].tolist()
    assert (set(sampled[:2]), sampled[2:]) == ({0, 2}, [-1, -1, -1])
    assert sorted(without_replacement(logits[2:], noise[2:], 3)[0].tolist()) == [0, 1, 2]


def test_a_forked_stream_is_another_for_every_number_and_every_stream() -> None:
    keys = torch.tensor([
        [stream_key(seed, 0, Stage.AR, candidate=c)] for seed in (1, 2) for c in (0, 1)
    ])
    streams = [
        keys,
        forked_keys(keys, 1),
        forked_keys(keys, 2),
        forked_keys(forked_keys(keys, 1), 1),
    ]
    noise = torch.cat([uniform(stream, 16) for stream in streams])
    assert len({tuple(row) for row in noise.tolist()}) == len(noise)
    assert torch.equal(forked_keys(keys[2:3], 7), forked_keys(keys, 7)[2:3])
