"""A text that grows while it is spoken: frames are drawn from the words that they may know."""

import random
from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from app.engine.ar.sequence import ArSequence
from app.engine.ar.stage import ArBatch
from app.engine.results import UtteranceResult
from app.engine.utterance import UtteranceSpec
from gpu.graphs import Capture, eager
from models.valle import Valle
from samplers.ar.backtrack import Backtrack
from tests.app.engine.ar.requests import ROOM, finish, request, runner
from tests.capture.tape import Tape
from tests.samplers.ar.rows import GUIDED, STUCK

WORDS, MOST = 7, 40
NUMBERS = range(14)
CASES: Sequence[dict[str, Any]] = (
    {},
    GUIDED,
    {"temperature": 0.25, **STUCK},
    {"repetition_penalty": 1.3, "backtrack_repeat_frames": 2, **STUCK, **GUIDED},
    {"mirostat_mode": 2, "mirostat_tau": 1.5},
    {"dry_multiplier": 1.0, **STUCK},
    {"prompt_as_prefix": True, "penalty_includes_prompt": True, "repetition_penalty": 1.2},
)


def versions(model: Valle, number: int, others: int = 0, lookahead: int = 0) -> list[UtteranceSpec]:
    """What is known of a text of words with more and more of them.

    Each word reads otherwise while it is the last one. ``others`` has it end in other words.
    """
    sample = random.Random(number)
    words = [[sample.randint(10, 20) for _ in range(sample.randint(1, 3))] for _ in range(WORDS)]
    for at in range(WORDS - others, WORDS):
        words[at] = [21] * (1 + others)
    knobs = {"text_lookahead_words": lookahead or 1 + number % 3, "temperature": 1.0}
    knobs |= CASES[number % len(CASES)] | {"seed": number}
    base = request(model, 5 * number + 1, context=(), kept=None, trace=False)
    params = base.params.__class__.model_validate(knobs)
    found = []
    for count in range(params.text_lookahead_words + 1, WORDS + 1):
        whole = count == WORDS
        known = [*words[: count - 1], words[count - 1] if whole else [22, 22]]
        begins = np.cumsum([1, *map(len, known)])[:-1].tolist()
        ids = [1, *(symbol for word in known for symbol in word), 2]
        frames = 30 + len(ids) // 2
        found.append(
            replace(
                base, phoneme_ids=ids, params=params, begins=begins, whole=whole,
                max_frames=frames, spare=MOST + 60 - len(ids) - frames,
            )
        )  # fmt: skip
    return found


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


def test_beside_others_with_pauses_a_growing_text_is_drawn_as_alone(model, each_alone) -> None:
    batch, chance = runner(model), random.Random(1)
    plain = [batch.admit(request(model, number, trace=False)) for number in (0, 4)]
    growing = [begun(batch, versions(model, number)) for number in NUMBERS]
    running = [*plain, *growing]
    while any(one.finish_reason is None for one in running):
        batch.step([one for one in running if chance.random() < 0.7])
    assert [outcome(one) for one in growing] == each_alone
    assert batch.free_rows == 30


@pytest.mark.usefixtures("sorted_as_on_a_gpu")
@pytest.mark.parametrize("captured", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_over_pages_a_look_behind_a_growing_text_is_drawn_as_over_slots(
    float_model, captured
) -> None:
    batch = runner(float_model, Tape().capture if captured else eager, 30, pages=250)
    growing = [begun(batch, versions(float_model, number)) for number in NUMBERS]
    finish(batch)
    expected = [alone(float_model, versions(float_model, number)) for number in NUMBERS]
    assert [outcome(one) for one in growing] == expected


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
