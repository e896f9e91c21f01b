"""The history of a batch: reading it backwards, growing it, taking it back."""

import torch

from samplers.ar.history import History


def _history(rows: list[list[int]], max_frames: int = 8) -> History:
    history = History(len(rows), max_frames, torch.device("cpu"))
    for place in range(max(len(row) for row in rows)):
        codes = torch.tensor([row[place] if place < len(row) else 0 for row in rows])
        history.append(codes, torch.tensor([place < len(row) for row in rows]))
    return history


def test_rows_of_unequal_length_are_read_newest_first() -> None:
    history = _history([[1, 2, 3], [4]])
    assert history.newest_first(2).tolist() == [[3, 2], [4, -1]]
    assert history.newest_first(99).tolist() == [[3, 2, 1], [4, -1, -1]]
    assert history.lengths.tolist() == [3, 1]


def test_a_rewound_row_forgets_and_grows_anew() -> None:
    history = _history([[1, 2, 3], [4, 5, 6]])
    history.rewind(0, 1)
    history.append(torch.tensor([9, 7]), torch.tensor([True, True]))
    assert history.newest_first(9).tolist() == [[9, 1, -1, -1], [7, 6, 5, 4]]


def test_a_full_row_that_does_not_grow_keeps_its_codes() -> None:
    history = _history([[1, 2], [3]], max_frames=2)
    history.append(torch.tensor([8, 9]), torch.tensor([False, True]))
    assert history.newest_first(9).tolist() == [[2, 1], [9, 3]]


def test_an_empty_history_has_no_width() -> None:
    assert History(2, 4, torch.device("cpu")).newest_first(75).shape == (2, 0)


def test_a_preloaded_row_is_one_that_drew_those_codes() -> None:
    drawn = History(2, 8, torch.device("cpu"), track_runs=True)
    for code in (1, 2, 1, 2):
        drawn.append(torch.tensor([code, 0]), torch.tensor([True, False]))
    given = History(2, 8, torch.device("cpu"), track_runs=True)
    given.preload(0, torch.tensor([1, 2, 1, 2]))
    for history in (drawn, given):
        history.append(torch.tensor([1, 7]), torch.tensor([True, True]))
    assert given.newest_first(8).tolist() == drawn.newest_first(8).tolist()
    assert given.runs.tolist() == drawn.runs.tolist()
    assert given.lengths.tolist() == [5, 1]


def test_a_row_made_another_goes_on_as_that_one_and_leaves_it_alone() -> None:
    histories = [History(4, 9, torch.device("cpu"), track_runs=True) for _ in range(2)]
    rows = [[1, 2, 1, 2], [5], [6, 6, 6], []]
    for history, drawn in zip(histories, (rows, [rows[2], rows[1], rows[2], rows[1]]), strict=True):
        for place in range(4):
            codes = torch.tensor([row[place] if place < len(row) else 0 for row in drawn])
            history.append(codes, torch.tensor([place < len(row) for row in drawn]))
    histories[0].overwrite([0, 3], [2, 1])
    for history in histories:
        history.append(torch.tensor([6, 7, 8, 5]), torch.tensor([True, False, True, True]))
    found, wanted = histories
    assert torch.equal(found.newest_first(9), wanted.newest_first(9))
    assert torch.equal(found.lengths, wanted.lengths)
    assert torch.equal(found.runs, wanted.runs)
    taken = found.take([3], 9, track_runs=True)
    assert taken.newest_first(2).tolist() == [[5, 5]]
