"""The monotonic path: against all paths, and in pieces."""

from itertools import combinations, combinations_with_replacement

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.alignment.path import SKIP_NATS, MonotonicPath, followed


def attention(frames: int, symbols: int, seed: int) -> np.ndarray:
    rows = np.random.default_rng(seed).dirichlet(np.full(symbols, 0.5), frames)
    return rows.astype(np.float32)


def score(rows: np.ndarray, path: tuple[int, ...]) -> float:
    """Score a path the plain way: from symbol 0, a step of one symbol is free."""
    scores = np.log(np.maximum(rows, 1e-4)).astype(np.float64)
    scores -= scores.max(1, keepdims=True)
    steps = np.diff([0, *path])
    skipped = sum(max(0, int(step) - 1) for step in steps)
    return sum(float(scores[n, at]) for n, at in enumerate(path)) - SKIP_NATS * skipped


@given(frames=st.integers(1, 6), symbols=st.integers(1, 5), seed=st.integers(0, 10**6))
def test_no_monotonic_path_is_better(frames: int, symbols: int, seed: int) -> None:
    rows = attention(frames, symbols, seed)
    found = MonotonicPath(symbols).push(rows)
    best = max(score(rows, path) for path in combinations_with_replacement(range(symbols), frames))
    assert score(rows, tuple(found)) == pytest.approx(best, abs=1e-6)


@given(seed=st.integers(0, 10**6), cuts=st.lists(st.integers(0, 40), max_size=4))
def test_a_path_never_goes_back_however_the_frames_come(seed: int, cuts: list[int]) -> None:
    rows, path = attention(40, 12, seed), MonotonicPath(12)
    parts = [path.push(part) for part in np.split(rows, sorted(cuts))]
    joined = np.concatenate(parts)
    assert len(joined) == 40
    assert (np.diff(joined) >= 0).all()


@given(
    seed=st.integers(0, 10**6),
    cuts=st.lists(st.integers(0, 30), max_size=4),
    padding=st.integers(0, 5),
)
def test_a_path_is_the_same_whether_frames_come_at_once_or_not_and_beside_others(
    seed: int, cuts: list[int], padding: int
) -> None:
    rows, others = attention(30, 9, seed), attention(30, 9, seed + 1)
    whole, pieces, beside, other = (MonotonicPath(9) for _ in range(4))
    whole.push(rows)
    for part in np.split(rows, sorted(cuts)):
        pieces.push(part)
    wide = np.pad(np.stack([rows, others], 1), ((0, 0), (0, 0), (0, padding)))
    for part in np.split(wide, sorted(cuts)):
        for first, second in MonotonicPath.ahead([beside, other], part):
            beside.append(first)
            other.append(second)
    for path in (pieces, beside):
        assert (path.at, path.behind) == (whole.at, whole.behind)
        assert path.walked().tolist() == whole.walked().tolist()


@given(seed=st.integers(0, 10**6), kept=st.integers(0, 20))
def test_a_path_that_was_rewound_goes_on_as_if_the_frames_had_not_been(
    seed: int, kept: int
) -> None:
    rows = attention(20, 7, seed)
    direct, rewound = MonotonicPath(7), MonotonicPath(7)
    direct.push(rows[:kept])
    rewound.push(rows)
    copy = rewound.copy()
    rewound.rewind(kept)
    again = attention(10, 7, seed + 1)
    direct.push(again)
    rewound.push(again)
    assert rewound.walked().tolist() == direct.walked().tolist()
    assert (rewound.at, rewound.behind, len(copy)) == (direct.at, direct.behind, 20)


def test_attention_to_earlier_symbols_lies_behind_a_path_that_went_on() -> None:
    walked = [0, 1, 2, 3, 4, 5, 6, 1, 2]
    path = MonotonicPath(8)
    path.push(np.eye(8, dtype=np.float32)[walked])
    assert path.at == [0, 1, 2, 3, 4, 5, 6, 6, 6]
    assert path.behind == [0, 0, 0, 0, 0, 0, 0, 1, 1]


def test_a_clear_attention_is_followed_and_a_skipped_symbol_has_no_frame() -> None:
    walked = [0, 0, 1, 2, 2, 4, 4, 5]  # 3 is skipped
    rows = np.eye(6, dtype=np.float32)[walked]
    assert MonotonicPath(6).push(rows).tolist() == walked


def whole_paths(frames: int, symbols: int) -> list[np.ndarray]:
    """All paths from the first symbol to the last, by one or none at each frame."""
    steps = [np.isin(np.arange(frames), at) for at in combinations(range(1, frames), symbols - 1)]
    return [np.cumsum(step) for step in steps]


@given(frames=st.integers(1, 7), symbols=st.integers(1, 5), seed=st.integers(0, 10**6))
def test_what_is_followed_is_the_mean_along_and_beside_the_likeliest_whole_path(
    frames: int, symbols: int, seed: int
) -> None:
    rows = attention(frames, symbols, seed)
    paths = whole_paths(frames, symbols)
    near = [np.abs(np.arange(symbols) - path[:, None]) <= 1 for path in paths]
    means = [float((rows * one).sum(1).mean()) for one in near]
    along = [rows[np.arange(frames), path] for path in paths]
    nats = [float(np.log(np.maximum(one, 1e-4)).sum()) for one in along]
    assert followed(rows) == pytest.approx(means[int(np.argmax(nats))] if paths else 0.0, abs=1e-6)


@pytest.mark.parametrize(
    ("walked", "whole"),
    [
        ([0, 0, 1, 2, 3, 4, 5, 6, 7], True),
        ([0, 1, 1, 2, 6, 6, 7, 7, 7], False),  # 3 to 5 are skipped
        ([0, 1, 2, 3, 4, 5, 1, 2, 3, 4, 5, 6, 7], False),  # 1 to 5 are repeated
        ([0, 0, 1, 1, 2, 2, 3, 3, 3], False),  # the rest is not reached
    ],
)
def test_a_text_is_followed_where_no_symbols_are_skipped_or_repeated(
    walked: list[int], whole: bool
) -> None:
    assert (followed(np.eye(8, dtype=np.float32)[walked]) == 1.0) == whole


@given(seed=st.integers(0, 10**6), at=st.integers(1, 20), back=st.integers(0, 10))
def test_a_path_in_text_that_is_no_other_goes_on_as_it_would_have(
    seed: int, at: int, back: int
) -> None:
    rows, plain, grown = attention(30, 9, seed), MonotonicPath(9), MonotonicPath(9)
    for path in (plain, grown):
        path.push(rows[:at])
        if path is grown:
            path.grow(9, np.arange(9), 9)
        path.rewind(max(0, at - back))
        path.push(rows[at:])
    assert plain.at == grown.at
    np.testing.assert_array_equal(plain.walked(), grown.walked())


def test_a_path_keeps_its_symbols_where_they_have_moved_and_reaches_what_is_new() -> None:
    path = MonotonicPath(4)
    path.push(np.eye(4, dtype=np.float32)[[0, 1, 2, 3]])
    path.grow(6, np.array([0, 1, 3, 3]), 6)  # a symbol more in the second word, the end is it, too
    assert path.at == [0, 1, 3, 3]
    assert path.walked().tolist() == [0, 1, 3, 3]
    assert path.push(np.eye(6, dtype=np.float32)[[4, 5]]).tolist() == [4, 5]
    assert path.walked().tolist() == [0, 1, 3, 3, 4, 5]
