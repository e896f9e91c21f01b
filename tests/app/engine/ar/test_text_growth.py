"""A text that grows while it is spoken: frames are drawn from the words that they may know."""

from collections import deque
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from app.engine.ar.sequence import ArSequence
from app.engine.ar.stage import ArBatch
from app.engine.results import UtteranceResult
from app.engine.utterance import UtteranceSpec
from gpu.graphs import Capture
from models.valle import Valle
from samplers.ar.backtrack import Backtrack
from tests.app.engine.ar.growing_texts import CASES, NUMBERS, versions
from tests.app.engine.ar.requests import ROOM, finish, runner


def begun(batch: ArBatch, texts: Sequence[UtteranceSpec]) -> ArSequence:
    group = batch.admit(texts[0], later=deque(texts[1:]))
    assert isinstance(group, ArSequence)
    return group


Outcome = tuple[list[int], object, Sequence[int], Sequence[Backtrack]]


def outcome(one: ArSequence) -> Outcome:
    return one.ar_codes().tolist(), one.finish_reason, list(one.growths), one.backtracks


def alone(model: Valle, texts: Sequence[UtteranceSpec], capture: Capture | None = None) -> Outcome:
    batch = runner(model, capture, 8)
    one = begun(batch, texts)
    finish(batch)
    return outcome(one)


@pytest.fixture(scope="module")
def each_alone(model: Valle) -> list[Outcome]:
    return [alone(model, versions(model, number)) for number in NUMBERS]


def test_texts_grow_to_their_ends_and_no_utterance_stops_before(model, each_alone) -> None:
    found = 0
    for number, (codes, reason, growths, _) in enumerate(each_alone):
        texts = versions(model, number)
        found += len(growths)
        assert growths == sorted(growths)
        assert reason != "stop" or len(growths) == len(texts) - 1
        assert len(codes) <= texts[len(growths)].max_frames
    assert found >= 2 * len(NUMBERS)
    assert any(backtracks for *_, backtracks in each_alone)


@pytest.mark.parametrize("others", [0, 1, 2])
def test_frames_do_not_depend_on_words_behind_those_that_they_may_know(model, others) -> None:
    for number in NUMBERS[others::3]:
        texts, changed = versions(model, number), versions(model, number, 2 * others + 1)
        (codes, _, growths, _), (own, _, grown, _) = alone(model, texts), alone(model, changed)
        same = next(n for n, (a, b) in enumerate(zip(texts, changed, strict=True))
                    if a.phoneme_ids != b.phoneme_ids)  # fmt: skip
        if len(growths) < same:
            assert (own, grown) == (codes, growths)  # it never came to these words
            continue
        until = growths[same - 1] if same else 0
        assert grown[:same] == growths[:same]
        assert own[:until] == codes[:until]


@pytest.mark.slow
def test_a_take_is_gone_on_from_any_frame_as_it_went_on(model) -> None:
    for number in NUMBERS:
        if "mirostat_mode" in CASES[number % len(CASES)]:
            continue  # whose memory is not told here
        texts = versions(model, number)
        codes, reason, growths, backtracks = alone(model, texts)
        take = UtteranceResult(
            np.array(codes, np.int16)[:, None], "stop", growths=tuple(growths),
            backtracks=tuple(backtracks),
        )  # fmt: skip
        for frames in {1, 2, *growths, *(one + 1 for one in growths), len(codes) - 1}:
            if not 0 < frames < len(codes):
                continue
            kept = take.kept(frames)
            again = [replace(one, kept=kept) for one in texts]
            found = alone(model, [again[0], *again[1:]])
            assert found[:3] == (codes, reason, growths), (number, frames)


def test_a_text_that_grows_needs_no_more_room_than_was_asked_for_at_its_beginning(model) -> None:
    texts = versions(model, 0)
    length = texts[0].ar_positions(model)
    assert {one.ar_positions(model) for one in texts} == {length}
    assert length < ROOM
    batch = runner(model, None, 1)
    batch = ArBatch.single(model, batch._prefixes, texts[0])
    one = begun(batch, texts)
    finish(batch)
    assert outcome(one) == alone(model, texts)
