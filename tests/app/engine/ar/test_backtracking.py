"""Backtracking: how far a scripted loop is rewound, what is penalised, when the utterance ends."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

from app.engine.ar import model_runner
from app.engine.results import FinishReason
from app.engine.utterance import UtteranceSpec
from samplers.ar.backtrack import Backtrack, BacktrackCause
from samplers.ar.sampler import ArSampler, StepResult
from samplers.ar.trace import Trace
from samplers.knobs.params import SamplingParams
from tests.app.engine.ar.requests import alone, request
from tests.samplers.ar.rows import EAGER
from tests.samplers.reference.harness import codes_of
from tests.toy.make_toy import MODEL

BLOCK = MODEL.block_frames
A, B, SILENT, HUSHED = 10, 60, 61, 62  # a loop has the codes from A on; two are silence
WATCHED = SamplingParams(backtrack=True)
UNWATCHED = SamplingParams(**EAGER | {"backtrack": False})
STUBBORN = {"temperature": 0.0, "backtrack": True}

Script = Callable[[list[int]], dict[int, float]]


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> Callable[[Script], None]:
    """Have the sampler hear what a script makes of a row's codes, in place of the model.

    That the model is fed those that are kept is said by `test_runner`.
    """
    right = ArSampler.advance

    def use(script: Script) -> None:
        def advance(
            sampler: ArSampler, own: Tensor, trace: Trace | None, null: Tensor | None, *rest: Any
        ) -> StepResult:
            told = torch.zeros_like(own)
            for code, logit in script(codes_of(sampler, 0)).items():
                told[0, code] = logit
            return right(sampler, told, trace, None if null is None else told, *rest)

        monkeypatch.setattr(ArSampler, "advance", advance)
        # A plain row is sampled by one function, past the sampler that hears the script.
        monkeypatch.setattr(model_runner, "is_plain", lambda _: False)

    return use


def said(start: int, end: int) -> list[int]:
    """Speech: a code that goes with its frame, so that no frame repeats another."""
    return [*range(100 + start, 100 + end)]


def stuck_from(start: int, *cycle: dict[int, float], length: int) -> Script:
    """Speech that repeats itself, and goes on for good once another code is sampled there."""

    def script(codes: list[int]) -> dict[int, float]:
        at = len(codes)
        if at >= start and B not in codes:
            return cycle[(at - start) % len(cycle)]
        return {100 + at: 20.0, MODEL.stop_token: 30.0 if at >= length else 0.0}

    return script


def loop(start: int, period: int) -> Script:
    cycle = ({A + step: 20.0, B: 19.0} for step in range(period))
    return stuck_from(start, *cycle, length=start + 200)


def sequence(codes: list[int]) -> dict[int, float]:
    at = len(codes)
    return {100 + at: 20.0, 400 + at: 19.0, MODEL.stop_token: 30.0 if at > 30 else 0.0}


class Case(NamedTuple):
    """A script, the knobs, where it is rewound, why it ends, and the codes in the end."""

    script: Script
    knobs: dict[str, Any]
    taken: Sequence[tuple[BacktrackCause, int, int, int]]
    reason: FinishReason
    codes: list[int]


SILENCE = stuck_from(20, {SILENT: 20.0, B: 19.0}, length=251)
HUSHES = stuck_from(20, {SILENT: 20.0, HUSHED: 19.5, B: 19.0}, length=41)
BANNED: dict[str, Any] = {"ban_sequences": [{"codes": (100, 101, 102), "strength": 1.0}]}
ALWAYS: Script = lambda _: {A: 20.0, B: 10.0}  # noqa: E731
CASES = {
    **{
        f"a loop of {period} is rewound to its second copy": Case(
            loop(start, period), {}, [("loop", start + found, start + period, A)], "stop",
            [*said(0, start), *range(A, A + period), B, *said(start + period + 1, start + 200)],
        )
        for start, period, found in ((40, 1, 30), (40, 3, 30), (20, 25, 100), (100, 8, 32))
    },
    **{
        f"one at {start} that is deeper than the share is cut behind what is final": Case(
            loop(start, 1), {"backtrack_share": share}, [("loop", start + 30, kept, A)], "stop",
            [*said(0, start), *[A] * (kept - start), B, *said(kept + 1, start + 200)],
        )
        for start, share, kept in (
            (3, 1.0, BLOCK), (3, 0.35, 22), (40, 0.35, 46), (64, 0.35, 65), (200, 0.35, 201)
        )
    },
    "one deeper than the window ends the utterance": Case(
        loop(20, 30), {}, [], "stuck", [*said(0, 20), *range(A, A + 30), *range(A, A + 15)]
    ),
    "with a longer window it does not": Case(
        loop(20, 30), {"backtrack_window": 90}, [("loop", 140, 50, A)], "stop",
        [*said(0, 20), *range(A, A + 30), B, *said(51, 220)],
    ),
    "what fails twice in its place is forbidden there, and the budget ends it": Case(
        ALWAYS, {"backtrack_budget": 5},
        [("loop", frames, kept, A) for frames, kept in (
            (30, 15), (30, 15), (46, 17), (46, 17), (48, 19)
        )], "stuck", [*[A] * 15, B, A, B, A],
    ),
    "no budget ends the first loop": Case(
        loop(40, 3), {"backtrack_budget": 0}, [], "stuck", [*said(0, 40), A, A + 1, A + 2]
    ),
    "full strength forbids at once": Case(
        ALWAYS, {"backtrack_strength": 100.0, "backtrack_budget": 1}, [("loop", 30, 15, A)],
        "stuck", [*[A] * 15, B, A],
    ),
    **{
        f"a silence of {longest} is cut to a pause that is not final": Case(
            SILENCE, {"backtrack_max_silence": longest},
            [("silence", 21 + longest, 20 + kept, SILENT)], "stop",
            [*said(0, 20), *[SILENT] * kept, B, *said(21 + kept, 251)],
        )
        for longest, kept in ((40, 20), (10, 10), (150, 76))
    },
    "any silence is allowed": Case(
        SILENCE, {"backtrack_max_silence": 0}, [], "length", [*said(0, 20), *[SILENT] * 380]
    ),
    "where another code of silence led to more silence all of them are penalised": Case(
        HUSHES, {"backtrack_max_silence": 40},
        [("silence", 61, 40, SILENT), ("silence", 61, 40, HUSHED)], "stop",
        [*said(0, 20), *[SILENT] * 20, B],
    ),
    "a sequence completed in spite of its penalty is rewound to its first code": Case(
        sequence, BANNED, [("sequence", 3, 0, 100)], "stop", [400, *said(1, 31)]
    ),
    "it may stand where the budget is spent": Case(
        sequence, BANNED | {"backtrack_budget": 0}, [], "stop", said(0, 31)
    ),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("guided", [{}, {"cfg_strength": 1.5}], ids=["plain", "guided"])
@pytest.mark.parametrize("name", CASES)
def test_what_is_stuck_is_rewound_and_what_led_there_is_penalised(
    float_model, scripted, name, guided
) -> None:
    case = CASES[name]
    scripted(case.script)
    silent = (SILENT, HUSHED)
    params = SamplingParams.model_validate(STUBBORN | case.knobs | guided)
    most = 400 if case.reason == "length" else 600
    found = alone(float_model, UtteranceSpec([1, 2], params, 1, 0, most, silent=silent))
    assert found.ar_codes().tolist() == case.codes
    assert found.backtracks == tuple(Backtrack(*one) for one in case.taken)
    assert found.finish_reason == case.reason


def test_where_nothing_is_stuck_it_changes_no_code_and_off_looks_at_nothing(
    float_model, monkeypatch
) -> None:
    watched, off = (request(float_model, 0, params=params) for params in (WATCHED, UNWATCHED))
    one = alone(float_model, watched)
    assert one.backtracks == ()
    monkeypatch.setattr("app.engine.ar.model_runner.Backtracker", None)
    assert torch.equal(alone(float_model, off).ar_codes(), one.ar_codes())
