"""Backtracking: how far a scripted loop is rewound, what is penalised, when the utterance ends."""

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from app.engine.job import Backtrack
from app.engine.level_0.backtracking import runs_at_end
from app.engine.level_0.hypothesis_group import HypothesisGroup
from app.engine.utterance import UtteranceInput
from models.prefix import Prefix
from models.stack.cache import KVCache
from models.valle import Valle
from samplers.knobs.params import SamplingParams
from samplers.ops.repeats import runs_of
from tests.app.engine.level_0.requests import EAGER, alone, logits_after
from tests.toy.make_toy import MODEL

PREFIX = 4
BLOCK = MODEL.block_frames
A, B, SILENT, HUSHED = 10, 60, 61, 62  # a loop has the codes from A on; two are silence
STUBBORN = {"temperature": 0.0, "backtrack": True}

Script = Callable[[list[int]], dict[int, float]]


class Scripted:
    """Says what a script makes of the codes that the cache holds; checks every position."""

    def __init__(self, script: Script) -> None:
        self.config = MODEL
        self.separator = torch.zeros(1)
        self.transformer = SimpleNamespace(step=self._step)
        self._script, self._fed = script, dict[int, list[int]]()

    def new_cache(self, slots: int, max_length: int) -> KVCache:
        return KVCache(self.config, slots, max_length)

    def prefix(self, ids: Sequence[int], level: int, **_: Any) -> Prefix:
        numbers = np.tile(np.arange(PREFIX), (3, 1))
        return Prefix(level, numbers, lambda: torch.zeros(PREFIX, 1), torch.device("cpu"))

    def null_prefix(self, level: int, **_: Any) -> Prefix:
        return self.prefix([], level)

    def embed_response(self, codes: Tensor, level: int) -> Tensor:
        return codes.float()

    def read(self, prefix: Prefix, cache: KVCache, slot: int) -> tuple[Tensor, Tensor]:
        cache.advance(slot, PREFIX)
        self._fed[slot] = []
        return torch.tensor([[0.0]]), torch.zeros(1)

    def _step(
        self, embeddings: Tensor, positions: Tensor, cache: KVCache, slots: Sequence[int]
    ) -> Tensor:
        for slot in slots:
            place = int(positions[slot])
            assert cache.lengths[slot] == PREFIX + place
            assert len(self._fed[slot]) >= place
            self._fed[slot] = [*self._fed[slot][:place], int(embeddings[slot])]
            cache.advance(slot, 1)
        return positions[:, None].float() + 1

    def logits(self, hidden: Tensor, level: int) -> Tensor:
        rows = torch.zeros(len(hidden), MODEL.codes + 1)
        for slot, frames in enumerate(hidden[:, 0].long().tolist()):
            for code, logit in self._script(self._fed[slot][:frames]).items():
                rows[slot, code] = logit
        return rows


def decode(script: Script, max_frames: int = 400, **knobs: Any) -> HypothesisGroup:
    silent = torch.isin(torch.arange(MODEL.codes), torch.tensor([SILENT, HUSHED]))
    params = SamplingParams(**STUBBORN | knobs)
    inputs = UtteranceInput([1, 2], params, 1, 0, max_frames, trace=True, silent=silent)
    return alone(cast("Valle", Scripted(script)), inputs)


def speech(codes: list[int]) -> int:
    """A code that goes with a frame, so that no frame repeats another."""
    return 100 + len(codes)


def loop_from(start: int, period: int) -> Script:
    """Speech that falls into a loop, and out of it for good once another code is drawn there."""

    def script(codes: list[int]) -> dict[int, float]:
        at = len(codes)
        escaped = any(code == B for code in codes)
        if at < start or escaped:
            return {speech(codes): 20.0, MODEL.stop_token: 30.0 if at >= start + 200 else 0.0}
        return {A + (at - start) % period: 20.0, B: 19.0}

    return script


@pytest.mark.parametrize(("start", "period"), [(40, 1), (40, 3), (20, 25), (100, 8)])
@pytest.mark.parametrize("guided", [{}, {"cfg_strength": 1.5}])
def test_a_loop_is_rewound_to_its_second_copy(start, period, guided) -> None:
    decoded = decode(loop_from(start, period), **guided)
    found_at = start + max(30, 4 * period)
    wanted = Backtrack("loop", found_at, start + period, A)
    assert decoded.backtracks == (wanted,)
    codes = decoded.codes().tolist()
    assert codes[start + period] == B
    assert codes[:start] == list(range(100, 100 + start))
    assert codes[start + period + 1 :] == list(range(101 + start + period, 100 + start + 200))
    assert decoded.finish_reason == "stop"


def test_a_loop_in_the_first_block_is_broken_behind_it() -> None:
    decoded = decode(loop_from(3, 1))
    assert decoded.backtracks == (Backtrack("loop", 33, BLOCK, A),)
    assert decoded.finish_reason == "stop"


def test_a_loop_deeper_than_the_window_ends_the_utterance_behind_what_is_final() -> None:
    decoded = decode(loop_from(20, 30))
    assert (decoded.finish_reason, decoded.backtracks) == ("stuck", ())
    assert len(decoded) == 140 - 75
    deeper = decode(loop_from(20, 30), backtrack_window=90)
    assert deeper.backtracks == (Backtrack("loop", 140, 50, A),)


@pytest.mark.parametrize(
    ("start", "found_at", "kept"), [(3, 33, 22), (40, 70, 46), (64, 94, 65), (200, 230, 201)]
)
def test_a_loop_deeper_than_the_share_is_cut_behind_what_is_final(start, found_at, kept) -> None:
    decoded = decode(loop_from(start, 1), 600, backtrack_share=0.35)
    assert decoded.backtracks == (Backtrack("loop", found_at, kept, A),)
    assert kept >= max(BLOCK, found_at - int(0.35 * found_at))
    assert decoded.codes().tolist()[start:kept] == [A] * (kept - start)
    assert decoded.codes()[kept] == B
    assert decoded.finish_reason == "stop"


def test_what_fails_twice_in_its_place_is_forbidden_there_and_the_budget_ends_it() -> None:
    decoded = decode(lambda _: {A: 20.0, B: 10.0}, backtrack_budget=5)
    twice = [(30, 15), (30, 15), (46, 17), (46, 17), (48, 19)]
    assert [(one.frames, one.kept) for one in decoded.backtracks] == twice
    assert {one.code for one in decoded.backtracks} == {A}
    assert decoded.codes().tolist() == [A] * 15 + [B, A, B, A][: len(decoded) - 15]
    assert decoded.finish_reason == "stuck"


def test_no_budget_ends_the_first_loop_and_full_strength_forbids_at_once() -> None:
    never = decode(loop_from(40, 3), backtrack_budget=0)
    assert (never.finish_reason, len(never), never.backtracks) == ("stuck", 43, ())
    once = decode(lambda _: {A: 20.0, B: 10.0}, backtrack_strength=100.0, backtrack_budget=1)
    assert [(one.frames, one.kept) for one in once.backtracks] == [(30, 15)]
    assert once.codes()[15] == B


@pytest.mark.parametrize(("longest", "window", "kept"), [(40, 75, 20), (10, 75, 10), (150, 75, 76)])
def test_a_silence_is_cut_to_a_pause_that_is_not_final(longest, window, kept) -> None:
    start = 20

    def script(codes: list[int]) -> dict[int, float]:
        at = len(codes)
        if at < start or B in codes:
            return {speech(codes): 20.0, MODEL.stop_token: 30.0 if at > 250 else 0.0}
        return {SILENT: 20.0, B: 19.0}

    decoded = decode(script, backtrack_max_silence=longest, backtrack_window=window)
    wanted = Backtrack("silence", start + longest + 1, start + kept, SILENT)
    assert decoded.backtracks == (wanted,)
    assert decoded.codes()[start + kept] == B
    allowed = decode(script, backtrack_max_silence=0)
    assert (allowed.finish_reason, allowed.backtracks) == ("length", ())


def test_where_another_code_of_silence_led_to_more_silence_all_of_them_are_penalised() -> None:
    def script(codes: list[int]) -> dict[int, float]:
        if B in codes:
            return {MODEL.stop_token: 30.0}
        if len(codes) < 20:
            return {speech(codes): 20.0}
        return {SILENT: 20.0, HUSHED: 19.5, B: 19.0}

    decoded = decode(script, backtrack_max_silence=40)
    taken = [(one.cause, one.frames, one.kept, one.code) for one in decoded.backtracks]
    assert taken == [("silence", 61, 40, SILENT), ("silence", 61, 40, HUSHED)]
    assert decoded.codes().tolist()[20:] == [SILENT] * 20 + [B]


def test_a_sequence_completed_in_spite_of_its_penalty_is_rewound_to_its_first_code() -> None:
    sequence: dict[str, Any] = {"ban_sequences": [{"codes": (100, 101, 102), "strength": 1.0}]}

    def script(codes: list[int]) -> dict[int, float]:
        stops = {MODEL.stop_token: 30.0 if len(codes) > 30 else 0.0}
        return {speech(codes): 20.0, 400 + len(codes): 19.0} | stops

    decoded = decode(script, **sequence)
    assert decoded.backtracks == (Backtrack("sequence", 3, 0, 100),)
    assert decoded.codes().tolist()[:3] == [400, 101, 102]
    stands = decode(script, **sequence, backtrack_budget=0)
    assert (stands.finish_reason, stands.backtracks) == ("stop", ())
    assert stands.codes().tolist()[:3] == [100, 101, 102]


def draw(model: Valle, **knobs: Any) -> HypothesisGroup:
    params = SamplingParams(ban_tokens=(MODEL.stop_token,), **knobs)
    return alone(model, UtteranceInput([1, 10, 20, 30, 2], params, 1, 0, 120, trace=True))


@pytest.mark.parametrize("knobs", [{"temperature": 0.0}, {"temperature": 0.3}])
@pytest.mark.parametrize("strength", [1.0, 2.0])
def test_after_a_rewind_a_code_is_drawn_from_what_the_model_says_of_those_kept(
    float_model, knobs, strength
) -> None:
    group = draw(float_model, **EAGER, **knobs, cfg_strength=strength)
    assert group.trace is not None
    codes, taken, redrawn = list[int](), list(group.backtracks), set[int]()
    names = ("frame", "code", "logprob", "guided_logprob")
    columns = (group.trace[name].tolist() for name in names)
    for frame, code, logprob, guided_logprob in zip(*columns, strict=True):
        if frame < len(codes):
            back = taken.pop(0)
            assert (len(codes), frame, codes[frame]) == (back.frames, back.kept, back.code)
            redrawn.add(frame)
        del codes[frame:]
        own, guided = (
            float(logits[-1].log_softmax(-1)[code])
            for logits in logits_after(float_model, group.inputs, codes)
        )
        assert logprob == pytest.approx(own, abs=2e-4)
        # There it includes what the row is to avoid.
        assert frame in redrawn or guided_logprob == pytest.approx(guided, abs=2e-4)
        codes.append(code)
    assert group.backtracks
    assert not taken
    assert group.codes().tolist() == codes[: len(group)]


def test_where_nothing_is_stuck_it_changes_no_code_and_off_looks_at_nothing(
    float_model, monkeypatch
) -> None:
    watched = draw(float_model, backtrack=True)
    assert watched.backtracks == ()
    monkeypatch.setattr("app.engine.level_0.input_batch.Backtracker", None)
    off = draw(float_model, **EAGER | {"backtrack": False})
    assert torch.equal(off.codes(), watched.codes())


@given(st.lists(st.integers(0, 2), min_size=1, max_size=40), st.integers(1, 45))
def test_runs_counted_at_the_end_are_those_of_the_table(codes: list[int], periods: int) -> None:
    assert runs_at_end(codes, periods)[0].tolist() == runs_of(codes)[: min(periods, len(codes) - 1)]
