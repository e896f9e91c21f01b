"""Where the symbols of a text are when more of it is known."""

import pytest

from app.engine.utterance import TextPlaces, UtteranceSpec
from samplers.knobs.params import SamplingParams


@pytest.mark.parametrize(
    ("begins", "symbols", "later", "after", "indices"),
    [
        # Two words of two symbols and the marks; a third comes: what was the end is the second's.
        ([1, 3], 6, [1, 3, 5], 8, [0, 1, 2, 3, 4, 4]),
        # The second is read with one symbol less, or one more.
        ([1, 3], 6, [1, 3, 4], 7, [0, 1, 2, 3, 3, 3]),
        ([1, 3], 6, [1, 3, 6], 9, [0, 1, 2, 3, 4, 5]),
        # The same words, whole: the end is the last mark.
        ([1, 3], 6, [1, 3], 7, [0, 1, 2, 3, 4, 5]),
        # A word without a symbol of its own.
        ([1, 3, 3], 6, [1, 3, 3, 5], 8, [0, 1, 2, 3, 4, 4]),
        # A model whose texts have no marks.
        ([0, 2], 4, [0, 2, 4], 6, [0, 1, 2, 3]),
    ],
)
def test_each_symbol_stays_in_its_word(
    begins: list[int], symbols: int, later: list[int], after: int, indices: list[int]
) -> None:
    assert TextPlaces(symbols, begins).indices_in(TextPlaces(after, later)).tolist() == indices


@pytest.mark.parametrize(
    ("code_points", "lengths", "places"),
    [
        ([0, 2, 5], [0, 1, 1, 1, 1, 1, 1, 0], (8, [1, 3, 6])),
        ([0, 2, 5], [0, 3, 2, 1, 0], (5, [1, 2, 3])),  # a symbol may stand for two words' ends
        ([0, 2, 5], [2, 3, 1], (3, [0, 1, 2])),
        ([0, 3], [0, 1, 1, 0], (4, [1, 3])),  # a last word that has no sound
    ],
)
def test_words_begin_at_the_first_symbol_that_is_theirs(
    code_points: list[int], lengths: list[int], places: tuple[int, list[int]]
) -> None:
    assert TextPlaces.of(code_points, lengths) == places


def test_a_text_that_is_not_whole_cannot_end_and_is_due_at_a_word_before_its_last() -> None:
    params = SamplingParams(text_lookahead_words=2, min_frames=3)
    known = UtteranceSpec([1, 5, 6, 7, 8, 2], params, 0, 0, 50, begins=[1, 2, 4], whole=False)
    assert known.due == 2
    assert known.row_params.min_frames > 10**6
    whole = UtteranceSpec([1, 5, 6, 7, 8, 2], params, 0, 0, 50, begins=[1, 2, 4])
    assert whole.due is None
    assert whole.row_params is params
