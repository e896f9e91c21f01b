"""Windows: the whole where they hold it, otherwise a function of the frames, however those come."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from app.engine.sound.levels import Window, Windows
from app.engine.utterance import UtteranceInput
from models.checkpoints import SpeechModel
from samplers.knobs.features import is_guided
from tests.app.engine.sound.sessions import masked
from tests.app.engine.sound.test_utterance import (
    DRAWN,
    FRAMES,
    GREEDY,
    GUIDED,
    inputs,
    offline,
    some_codes,
    voice,
    windowed,
)
from tests.samplers.frames import draw_frames, guide_frames


@pytest.fixture(scope="module")
def full(speech: SpeechModel) -> SpeechModel:
    return masked(speech, "full")


def whole(speech: SpeechModel, wanted: UtteranceInput, level_0: Tensor) -> Tensor:
    return offline(speech.model, speech.codec.quantizer.codebooks, wanted, level_0)


@torch.inference_mode()
def by_hand(
    speech: SpeechModel, wanted: UtteranceInput, level_0: Tensor, size: int, left: int, right: int
):
    """Draw window after window with all frames at hand."""
    model, params, total = speech.model, wanted.params, len(level_0)
    codes = torch.full((total, 8), -1)
    codes[:, 0] = level_0
    for start in range(0, total, size):
        first, end, last = max(0, start - left), start + size, min(start + size + right, total)
        trial = codes.clone()
        for level in range(1, 8):
            seen = trial[first:last, :level]
            conditions = [wanted.prefix(model, level), wanted.null_prefix(model, level)]
            own, null = (model.nar_logits(one, seen, level, first) for one in conditions)
            if is_guided(params, "nar"):
                own = guide_frames(own, null, params.nar_cfg_strength, params.nar_cfg_rescale)
            drawn = draw_frames(own, params, seed=1, utterance=0, level=level, position=first)
            trial[start:last, level] = drawn[start - first :]
        codes[start:end] = trial[start:end]
    return codes


@given(
    st.integers(0, 60),
    st.integers(1, 70),
    st.integers(0, 30),
    st.integers(0, 30),
    st.lists(st.integers(0, 60), max_size=8),
)
def test_windows_tile_the_utterance_however_its_frames_come(total, size, left, right, counts):
    windows, plan = [], Windows(size, left, right)
    for count in sorted(min(count, total) for count in counts):
        for window in plan.up_to(count, ended=False):
            assert window.end + right <= count
            windows.append(window)
    windows += plan.up_to(total, ended=True)
    starts = range(0, total, size)
    assert windows == [
        Window(
            max(0, start - left), start, min(start + size, total), min(start + size + right, total)
        )
        for start in starts
    ]


@pytest.mark.parametrize("knobs", [GREEDY, DRAWN | GUIDED, GREEDY | {"nar_levels": 3}], ids=str)
@pytest.mark.parametrize(
    "shape",
    [(0, 0, 0), (FRAMES, 0, 0), (FRAMES + 1, 9, 9), (10**9, 0, 0), (20, 1000, 1000)],
    ids=str,
)
def test_windows_that_see_the_utterance_have_the_codes_of_the_whole(full, knobs, shape) -> None:
    level_0, wanted = some_codes(FRAMES), inputs(knobs | windowed(*shape))
    codes, _ = voice(full, wanted, level_0, [30, 40, 30])
    assert torch.equal(codes, whole(full, wanted, level_0))


@pytest.mark.slow
@pytest.mark.parametrize(
    "knobs", [GREEDY, DRAWN, DRAWN | GUIDED], ids=["greedy", "drawn", "guided"]
)
@pytest.mark.parametrize("shape", [(15, 30, 10), (7, 0, 0), (40, 5, 5), (1, 3, 2)], ids=str)
def test_the_codes_are_those_of_windows_drawn_by_hand(full, knobs, shape) -> None:
    level_0, wanted = some_codes(50), inputs(knobs | windowed(*shape))
    codes, _ = voice(full, wanted, level_0)
    assert torch.equal(codes, by_hand(full, wanted, level_0, *shape))
    assert not torch.equal(codes, whole(full, wanted, level_0))


def test_a_window_is_heard_as_soon_as_its_lookahead_is_there(full) -> None:
    wanted = inputs(DRAWN | windowed(20, 10, 5))
    _, sounds = voice(full, wanted, some_codes(60), [24, 1, 19, 1, 15])
    # The codec takes its own chunks, of 15, 15 and 30 frames.
    assert [len(sound) // 320 for sound in sounds] == [0, 15, 0, 15, 0, 30]
