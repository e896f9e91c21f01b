"""Level 0 to sound: the same however the frames come, and what the passes over the whole give.

So are windows where they hold the whole; otherwise they are a function of the frames.
"""

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from app.engine.nar.stage import NarStage
from app.engine.results import Samples
from app.engine.utterance import UtteranceSpec
from models.checkpoints.sources import SpeechModel
from models.codecs.interface import CodecStream
from models.config import MaskKind
from samplers.knobs.features import is_guided
from tests.app.engine.nar.sessions import KNOBS, codes_in, codes_of, masked, samples_in, utterance
from tests.models.codecs.test_codec import make as make_codec
from tests.samplers.frames import guide_frames, sample_frames

FRAMES = 75
GREEDY = {"nar_temperature": 0.0}
SAMPLED = {"nar_temperature": 1.0, "nar_top_k": 100, "nar_top_p": 0.95, "nar_min_p": 0.001}
GUIDED = {"nar_cfg_strength": 2.5, "nar_cfg_rescale": 0.5}


def voice(
    decoder: NarStage,
    inputs: UtteranceSpec,
    ar_codes: Tensor,
    pushes: list[int] | int | None = None,
) -> tuple[Tensor, list[Samples]]:
    """Feed an utterance in pieces; return the codes and what each piece gave."""
    stream = decoder.begin(inputs)
    pieces = [ar_codes] if pushes is None else torch.split(ar_codes, pushes)
    made = []
    for number, frames in enumerate([*pieces, ar_codes[:0]]):
        stream.feed(frames, number == len(pieces))
        made.append(list(stream))
    return codes_in([one for each in made for one in each]), [samples_in(each) for each in made]


Shape = tuple[int, int, int]
"""Frames of a window, before it and after it."""


def windowed(shape: Shape | None) -> dict[str, Any]:
    names = ("nar_window_frames", "nar_left_context_frames", "nar_lookahead_frames")
    return dict(zip(names, shape, strict=True)) if shape else {}


@torch.inference_mode()
def by_hand(
    speech: SpeechModel, wanted: UtteranceSpec, ar_codes: Tensor, shape: Shape | None
) -> Tensor:
    """Sample window after window, or the whole at once, with all frames at hand and no cache."""
    model, params, total = speech.model, wanted.params, len(ar_codes)
    size, left, right = shape or (total, 0, 0)
    levels = range(1, 1 + min(params.nar_levels, 7))
    codes = torch.full((total, 1 + len(levels)), -1)
    codes[:, 0] = ar_codes
    for start in range(0, total, size):
        first, end, last = max(0, start - left), start + size, min(start + size + right, total)
        trial = codes.clone()
        for level in levels:
            seen = trial[first:last, :level]
            logits = model.nar_logits(wanted.prefix(model, level), seen, level, first)
            if is_guided(params, "nar"):
                null = model.nar_logits(wanted.null_prefix(model, level), seen, level, first)
                logits = guide_frames(logits, null, params.nar_cfg_strength, params.nar_cfg_rescale)
            sampled = sample_frames(
                logits, params, seed=wanted.seed, utterance=wanted.utterance, level=level,
                position=first, codebook=speech.codec.quantizer.codebooks[level],
            )  # fmt: skip
            trial[start:last, level] = sampled[start - first :]
        codes[start:end] = trial[start:end]
    return codes


@pytest.mark.slow
@given(
    frames=st.integers(0, FRAMES),
    cuts=st.lists(st.integers(1, 60), max_size=20),
    guided=st.booleans(),
    shape=st.none() | st.tuples(st.integers(1, 60), st.integers(0, 60), st.integers(0, 30)),
    padding=st.sampled_from(["constant", "reflect"]),
)
@settings(max_examples=24)
def test_codes_and_samples_do_not_depend_on_how_the_frames_come(
    speech, frames, cuts, guided, shape, padding
):
    codec = make_codec(padding, codes=512)
    speech = replace(speech if shape is None else masked(speech, "full"), codec=codec)
    ar_codes = codes_of(frames, frames)
    wanted = utterance(1, SAMPLED | (GUIDED if guided else {}) | windowed(shape))
    decoder = NarStage(speech)
    pushes = np.diff([0, *(cut for cut in np.cumsum(cuts) if cut < frames), frames]).tolist()
    codes, sounds = voice(decoder, wanted, ar_codes, pushes)
    assert decoder._prefixes.parts == (0 if shape else 14 if guided else 7)  # which it then keeps
    expected, whole = voice(decoder, wanted, ar_codes)
    assert torch.equal(codes, expected)
    np.testing.assert_array_equal(np.concatenate(sounds), np.concatenate(whole))
    samples = torch.from_numpy(np.concatenate(sounds))
    sound = codec.decode(codes) if frames else torch.zeros(0)
    torch.testing.assert_close(samples, sound, atol=1e-6, rtol=1e-5)


class Case(NamedTuple):
    """A model, knobs, the windows that are asked for, and those that are sampled by hand."""

    knobs: dict[str, Any]
    mask: MaskKind = "block_causal"
    unified: bool = False
    prompted: bool = True
    shape: Shape | None = None
    sampled: Shape | None = None


SEEING_ALL = [(0, 0, 0), (FRAMES, 0, 0), (FRAMES + 1, 9, 9), (10**9, 0, 0), (20, 1000, 1000)]
WINDOWS = [(15, 30, 10), (7, 0, 0), (40, 5, 5), (1, 3, 2)]
CASES = [
    *(Case(knobs) for knobs in KNOBS),
    *(Case(GREEDY | GUIDED, mask, unified, prompted)
      for mask in ("causal", "full") for unified in (False, True) for prompted in (False, True)),
    *(Case(knobs, "full", shape=shape)
      for knobs in (GREEDY, SAMPLED | GUIDED, GREEDY | {"nar_levels": 3}) for shape in SEEING_ALL),
    *(pytest.param(Case(knobs, "full", shape=shape, sampled=shape), marks=pytest.mark.slow)
      for knobs in (GREEDY, SAMPLED, SAMPLED | GUIDED) for shape in WINDOWS),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_codes_are_those_that_are_drawn_by_hand(speech, case: Case) -> None:
    given = utterance(1, case.knobs | windowed(case.shape))
    wanted = given if case.prompted else replace(given, prompt=None, voice=None)
    other = masked(speech, case.mask, unified_positions=case.unified)
    decoder = NarStage(other)  # whose prefixes are kept for the second
    frames = 50 if case.sampled else FRAMES  # a pass over a window takes long
    for seed, pushes in ((0, None), (1, 33)):
        ar_codes = codes_of(seed, frames - 2 * seed)
        codes, sounds = voice(decoder, wanted, ar_codes, pushes)
        assert torch.equal(codes, by_hand(other, wanted, ar_codes, case.sampled))
        if case.sampled is not None:
            assert not torch.equal(codes, by_hand(other, wanted, ar_codes, None))
        assert len(np.concatenate(sounds)) == 320 * len(ar_codes)


@pytest.mark.parametrize(
    ("mask", "window", "pushes", "frames"),
    [
        ("block_causal", {}, [14, 1, 14, 1, 10], [0, 15, 0, 15, 0, 10]),
        ("full", {}, [20, 20], [0, 0, 40]),  # every frame sees all others
        # As soon as its lookahead is there; the codec takes its own chunks, of 15, 15 and 30.
        ("full", windowed((20, 10, 5)), [24, 1, 19, 1, 15], [0, 15, 0, 15, 0, 30]),
    ],
)
def test_a_chunk_is_heard_as_soon_as_all_that_it_sees_is_there(
    speech, mask, window, pushes, frames
) -> None:
    decoder, wanted = NarStage(masked(speech, mask)), utterance(1, SAMPLED | window)
    _, sounds = voice(decoder, wanted, codes_of(0, sum(pushes)), pushes)
    assert [len(sound) // 320 for sound in sounds] == frames


def test_a_warm_up_meets_chunks_of_every_length_that_is_ever_decoded_and_leaves_nothing(
    speech: SpeechModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    met, right = set[int](), CodecStream.push

    def push(stream: CodecStream, codes: Tensor) -> Tensor:
        met.add(len(codes))
        return right(stream, codes)

    monkeypatch.setattr(CodecStream, "push", push)
    decoder = NarStage(speech)
    decoder.warm_up()
    assert decoder._prefixes.parts == 0
    warmed = {*met}
    for frames in (16, 29, 44, 61, 121):
        voice(decoder, utterance(1, {}), codes_of(0, frames))
    assert warmed == met == {15, 30, 45, 60}
