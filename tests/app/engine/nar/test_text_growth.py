"""Sound of a text that grows: chunks know what their last frame knew, however the frames come."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from app.engine.core import AudioChunk
from app.engine.memory import make_pool
from app.engine.nar.graph_runner import ChunkSizes, NarGraphRunner
from app.engine.nar.stage import NarStage
from app.engine.results import Alignment
from app.engine.utterance import TextGrowth, UtteranceSpec
from models.checkpoints.sources import SpeechModel
from models.config import AlignmentHead
from tests.app.engine.nar.sessions import (
    captured_when_replayed,
    codes_in,
    codes_of,
    masked,
    samples_in,
    utterance,
)

pytestmark = pytest.mark.usefixtures("sorted_as_on_a_gpu")
FRAMES, ROOM = 100, 40
WORD = [11, 12, 13]
KNOBS: Sequence[dict[str, Any]] = (
    {}, {"nar_temperature": 0.8}, {"nar_cfg_strength": 2.0}, {"nar_levels": 0}
)  # fmt: skip


def text(words: int) -> tuple[list[int], list[int]]:
    return [1, *WORD * words, 2], [1 + len(WORD) * at for at in range(words)]


def growth(frame: int, words: int) -> TextGrowth:
    return TextGrowth(frame, *text(words))


def begun(number: int, knobs: dict[str, Any], words: int = 2) -> UtteranceSpec:
    ids, begins = text(words)
    plain = replace(utterance(number, knobs), kept=None)
    return replace(plain, phoneme_ids=ids, begins=begins, whole=False, spare=ROOM)


def decoded(
    decoder: NarStage, inputs: UtteranceSpec, growths: Sequence[TextGrowth], pieces: Sequence[int]
) -> list[AudioChunk]:
    """Feed an utterance in pieces, each with what its frames knew of the text."""
    stream, codes, at, made = decoder.begin(inputs), codes_of(1, FRAMES), 0, []
    for piece in (*pieces, FRAMES):
        own = [one for one in growths if at <= one.frame < piece]
        stream.feed(codes[at:piece], piece == FRAMES, own)
        made += list(stream)
        at = piece
    return made


GROWTHS = [growth(4, 3), growth(20, 4), growth(20, 5), growth(52, 6), growth(99, 7)]


@pytest.mark.parametrize("knobs", KNOBS)
@pytest.mark.parametrize("mask", ["block_causal", "causal"])
def test_codes_and_sound_do_not_depend_on_how_frames_and_text_come(speech, knobs, mask) -> None:
    decoder = NarStage(speech if mask == "block_causal" else masked(speech, mask))
    inputs = begun(1, knobs)
    whole = decoded(decoder, inputs, GROWTHS, [])
    for pieces in ([3, 15, 16, 21, 60, 99], [50]):
        found = decoded(decoder, inputs, GROWTHS, pieces)
        assert torch.equal(codes_in(found), codes_in(whole))
        np.testing.assert_array_equal(samples_in(found), samples_in(whole))


def levels(speech: SpeechModel, inputs: UtteranceSpec, growths: Sequence[TextGrowth]) -> Tensor:
    return codes_in(decoded(NarStage(speech), inputs, growths, []))


@pytest.mark.parametrize("knobs", KNOBS[:3])
def test_text_that_grows_by_nothing_moves_no_key_and_changes_no_code(speech, knobs) -> None:
    same = [growth(frame, 2) for frame in (7, 31, 32, 80)]
    inputs = begun(1, knobs)
    assert torch.equal(levels(speech, inputs, same), levels(speech, inputs, []))


def test_a_chunk_knows_the_text_of_its_last_frame_and_of_none_after_it(speech) -> None:
    inputs = begun(1, {"nar_temperature": 0.8})
    known = levels(speech, inputs, [])
    later = levels(speech, inputs, [growth(30, 5)])
    assert torch.equal(later[:30], known[:30])
    assert not torch.equal(later[30:], known[30:])
    assert torch.equal(levels(speech, inputs, [growth(14, 5)]), levels(speech, begun(
        1, {"nar_temperature": 0.8}, 5), []))  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("knobs", KNOBS)
def test_captured_chunks_of_a_growing_text_are_those_by_themselves(speech, knobs) -> None:
    def captured(speech: SpeechModel, pool: Any) -> NarGraphRunner:
        sizes = ChunkSizes(rows=(2,), columns=256, streams=3)
        return NarGraphRunner(speech, pool, captured_when_replayed, sizes)

    paged = NarStage(speech, lambda: make_pool(speech.model, 4 << 20), captured)
    found = decoded(paged, begun(1, knobs), GROWTHS, [16, 70])
    assert torch.equal(codes_in(found), levels(speech, begun(1, knobs), GROWTHS))


def aligned(speech: SpeechModel, growths: Sequence[TextGrowth]) -> Alignment:
    inputs = replace(begun(1, {"nar_levels": 0}), aligned=True)
    made = decoded(NarStage(speech), inputs, growths, [40])
    parts = [one.alignment for one in made if one.alignment is not None]
    return Alignment(*(np.concatenate(each) for each in zip(*parts, strict=True)))


def test_an_alignment_goes_on_in_text_that_grows(speech) -> None:
    model = speech.model
    head = AlignmentHead(layer=1, head=1)
    before, model.config = model.config, model.config.model_copy(update={"alignment": head})
    try:
        plain, same = aligned(speech, []), aligned(speech, [growth(7, 2), growth(50, 2)])
        grown = aligned(speech, GROWTHS)
    finally:
        model.config = before
    last = len(text(2)[0]) - 2  # what was the end of the text is its last symbol's once it grows
    np.testing.assert_array_equal(np.minimum(plain.path, last), np.minimum(same.path, last))
    np.testing.assert_array_equal(plain.logprobs, same.logprobs)
    # Chunks of 15, 15, 30 and 45 frames, each in the text of its last one.
    assert grown.growths.tolist() == [1] * 15 + [3] * 15 + [4] * 30 + [5] * 40
    assert (grown.path < [len(text(2 + int(count))[0]) for count in grown.growths]).all()
