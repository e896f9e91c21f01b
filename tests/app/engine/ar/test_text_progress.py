"""Where an utterance has spoken its text, and where it says some of it again."""

from collections.abc import Sequence

import numpy as np
import pytest

from app.engine.ar.sequence import ArSequence, GuidanceBranch
from app.engine.ar.text_progress import TextProgress, follows_text
from app.engine.utterance import UtteranceSpec
from models.alignment.path import MonotonicPath
from samplers.ar.backtrack import Backtrack
from samplers.ar.backtracking import RETURN_FRAMES, Backtracker
from samplers.knobs.params import SamplingParams

SYMBOLS, LEAD = 12, 3
END = SYMBOLS - 2  # the last mark
IDS = [1, *range(10, 10 + SYMBOLS - 2), 2]
SPOKEN = [symbol for symbol in range(1, END) for _ in range(3)]  # three frames a symbol
KNOBS = SamplingParams(alignment_stop_frames=24, backtrack_repeat_frames=5, backtrack=True)


def follow(progress: TextProgress, symbol: int, share: float = 1.0) -> None:
    """Take a frame that attends to a symbol by some share, and by the rest to all alike."""
    row = np.full((1, 1, SYMBOLS), (1 - share) / SYMBOLS, np.float32)
    row[0, 0, symbol] += share
    ((frame,),) = MonotonicPath.ahead([progress.path], row)
    progress.path.append(frame)


def progress_of(attended: Sequence[int], params: SamplingParams = KNOBS) -> TextProgress:
    """The progress after frames that attend to some symbols, fully."""
    progress = TextProgress(UtteranceSpec(IDS, params, 0, 0, 500), SYMBOLS, LEAD)
    for symbol in attended:
        follow(progress, symbol)
    return progress


AGAIN = [4, 4, 5, 5, 6, 6]


@pytest.mark.parametrize(
    ("attended", "returned", "end"),
    [
        (SPOKEN, None, None),
        ([*SPOKEN, *[END] * 23], None, None),
        ([*SPOKEN, *[END] * 24], None, len(SPOKEN) + 24),
        # The attention leaves the mark: what is said again is cut off, but for the lead.
        ([*SPOKEN, *[END] * 12, *AGAIN], len(SPOKEN) + 12, len(SPOKEN) + 12 + LEAD),
        ([*SPOKEN, *[END] * 20, *AGAIN[:4]], None, len(SPOKEN) + 20 + LEAD),
        ([*SPOKEN, *[END] * 3, *AGAIN], len(SPOKEN) + 3, None),  # it may yet be the last word
        ([*SPOKEN, *AGAIN], len(SPOKEN), None),
        ([*SPOKEN[:20], *[1, 1, 2, 2]], None, None),
        ([*SPOKEN[:20], *[1, 1, 2, 2, 3]], 20, None),
        ([*SPOKEN[:20], *[1, 1, 7, 2, 3, 3]], None, None),  # a glance is none
        ([], None, None),
    ],
)
def test_a_text_ends_where_its_end_was_rested_on_and_returns_where_speech_goes_back(
    attended: list[int], returned: int | None, end: int | None
) -> None:
    progress = progress_of(attended)
    assert (progress.returned, progress.end) == (returned, end)


def test_speech_that_goes_back_unclearly_at_first_is_noticed_once_it_is_clear() -> None:
    progress = progress_of(SPOKEN)
    for frame in range(11):  # of the newest five three are clear
        assert progress.returned is None
        follow(progress, 4, 0.4 if frame < 8 else 1.0)
    assert progress.returned == len(SPOKEN)


def test_frames_behind_the_text_are_counted_from_its_last_symbol() -> None:
    assert progress_of([*SPOKEN, *[END] * 9]).spoken == len(SPOKEN)
    assert progress_of(SPOKEN[:7]).spoken == 7
    assert not progress_of([*SPOKEN, *[END] * 36]).goes_on
    assert progress_of([*SPOKEN, *[END] * 37]).goes_on


@pytest.mark.parametrize(
    ("knobs", "follows"),
    [
        ({}, False),
        ({"alignment_stop_frames": 1}, True),
        ({"backtrack_repeat_frames": 5}, False),
        ({"backtrack_repeat_frames": 5, "backtrack": True}, True),
        ({"backtrack": True}, False),
        ({"text_lookahead_words": 1}, True),
    ],
)
def test_the_alignment_is_followed_where_a_knob_asks_for_it(
    knobs: dict[str, int], follows: bool
) -> None:
    assert follows_text(SamplingParams.model_validate(knobs)) == follows


def said(
    attended: Sequence[int], params: SamplingParams = KNOBS, *, first_block: int = 15
) -> ArSequence:
    """A sequence that drew a new code at each frame until it ended."""
    inputs = UtteranceSpec(IDS, params, 0, 0, 500)
    backtracker = Backtracker(params, (), first_block=first_block) if params.backtrack else None
    progress = TextProgress(inputs, SYMBOLS, LEAD)
    one = ArSequence(inputs, [GuidanceBranch(0, 1, 1)], backtracker, progress, stop_token=512)
    for number, symbol in enumerate(attended):
        follow(progress, symbol)
        one.append(100 + number)
        if one.finish_reason is not None:
            break
    return one


def test_an_utterance_that_rests_at_its_end_is_ended_by_the_alignment() -> None:
    one = said([*SPOKEN, *[END] * 40])
    assert (one.finish_reason, len(one.codes)) == ("aligned", len(SPOKEN) + 24)


def test_an_utterance_cannot_be_ended_before_its_least_frames() -> None:
    one = said([*SPOKEN, *[END] * 40], KNOBS.model_copy(update={"min_frames": 60}))
    assert (one.finish_reason, len(one.codes)) == ("aligned", 51)
    assert len(said([*SPOKEN, *[END] * 12, *AGAIN]).codes) == len(SPOKEN) + 12 + LEAD


def test_words_that_are_said_again_are_taken_back_further_each_time_and_then_stand() -> None:
    one = said([*SPOKEN, *AGAIN], first_block=0)
    found = len(SPOKEN) + KNOBS.backtrack_repeat_frames
    first = len(SPOKEN) - RETURN_FRAMES[0]
    removed = tuple(range(100 + first, 100 + found))
    assert one.backtracker is not None
    assert one.backtracker.taken == [Backtrack("repeat", found, first, 100 + first, removed)]
    assert len(one.codes) == first + 1  # and the last of AGAIN behind it
    for frames in (*RETURN_FRAMES[1:], None):
        verdict = one.backtracker.check(list(range(found)), len(SPOKEN))
        kept = None if verdict is None else verdict.keep
        assert kept == (None if frames is None else max(len(SPOKEN) - frames, 0))


def test_without_backtracking_nothing_that_is_final_is_cut_off() -> None:
    one = said([*SPOKEN, *[END] * 12, *AGAIN], KNOBS.model_copy(update={"backtrack": False}))
    assert one.finish_reason == "aligned"
    assert len(one.codes) == len(SPOKEN) + 12 + KNOBS.backtrack_repeat_frames
