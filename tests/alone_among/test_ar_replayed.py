"""Level 0 over pages, called or replayed, some frames behind: as alone over slots, at once.

What is replayed comes from a tape, which spoils the temporaries, so that nothing of the host can
be baked in unseen.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pytest
import torch

from app.engine.ar.graph_runner import GraphRunner
from app.engine.ar.stage import ArBatch
from gpu.graphs import Capture, eager
from gpu.kernels import FUSED, TORCH, Kernels
from models.valle import Valle
from tests.alone_among.harness import AT_ONCE, Schedule, alone_equals_among
from tests.app.engine.ar.bursts import BURSTS, WHOLE, knobs
from tests.app.engine.ar.growing_texts import NUMBERS, versions
from tests.app.engine.ar.requests import (
    KINDS,
    ArRequest,
    ArRequests,
    Outcome,
    runner,
)
from tests.app.engine.ar.requests import (
    request as numbered_request,
)
from tests.capture.tape import Tape

pytestmark = pytest.mark.usefixtures("sorted_as_on_a_gpu")
SLOTS, FLOAT = 8, torch.float32
READ = ("code", "attempt", "frame")  # of a trace; its logits differ by rounding


@pytest.fixture(scope="module")
def model(float_model: Valle) -> Valle:
    return float_model


def any_outcome(found: Sequence[Outcome]) -> bool:
    return bool(found)


@dataclass(frozen=True)
class Case:
    """Requests, what plays their steps, when they come and go, and what they must have met."""

    requests: Callable[[Valle], Sequence[ArRequest]]
    schedule: Schedule = field(default_factory=lambda: Schedule(1))
    met: Callable[[Sequence[Outcome]], bool] = any_outcome
    capture: Capture | None = None  # from a tape without
    kernels: Kernels = FUSED
    dtype: torch.dtype = FLOAT
    stride: int = GraphRunner.stride
    pages: int = 60


_MADE: dict[tuple[object, ...], ArRequest] = {}


def numbered(*numbers: int) -> Callable[[Valle], Sequence[ArRequest]]:
    """Requests of these numbers, each made once."""

    def requests(model: Valle) -> Sequence[ArRequest]:
        for number in numbers:
            _MADE.setdefault((model, number), numbered_request(model, number))
        return [_MADE[model, number] for number in numbers]

    return requests


def burst(name: str) -> Callable[[Valle], Sequence[ArRequest]]:
    """Requests that meet something within a burst, each made once."""

    def requests(model: Valle) -> Sequence[ArRequest]:
        for number, one in enumerate(BURSTS[name](model)):
            _MADE.setdefault((model, name, number), one)
        return [one for key, one in _MADE.items() if key[:2] == (model, name)]

    return requests


def growing(model: Valle) -> Sequence[ArRequest]:
    for number in NUMBERS:
        _MADE.setdefault((model, "growing", number), versions(model, number))
    return [_MADE[model, "growing", number] for number in NUMBERS]


def every_kind(found: Sequence[Outcome]) -> bool:
    reasons = {reason for _, reason, *_ in found}
    rewinds = sum(len(backtracks) for _, _, backtracks, *_ in found)
    return rewinds > 2 and reasons >= {"stop", "length"}


def ending(*reasons: str) -> Callable[[Sequence[Outcome]], bool]:
    return lambda found: {reason for _, reason, *_ in found} >= {*reasons}


def rewinding(found: Sequence[Outcome]) -> bool:
    return sum(len(backtracks) for _, _, backtracks, *_ in found) > 2


def repeating(found: Sequence[Outcome]) -> bool:
    causes = [one.cause for _, _, backtracks, *_ in found for one in backtracks]
    return causes.count("repeat") > 20 and ending("length")(found)


MET = {
    "stops": ending("stop", "empty"),
    "limits": ending("length"),
    "borders": ending("length"),
    "rewinds": rewinding,
    "alignments": ending("aligned"),
    "repeats": repeating,
    "takes": any_outcome,
}
# Plain, guided, penalised, mirostat, entropix and traced; a search, and one that branches.
FEW = numbered(0, 3, 4, 12, 16, 9, 17, 23, 25)
EACH = numbered(*range(KINDS))
SLOW = {
    "every kind, called": Case(EACH, met=every_kind, capture=eager),
    "every kind, called, operators": Case(EACH, met=every_kind, capture=eager, kernels=TORCH),
    "every kind, operators": Case(EACH, met=every_kind, kernels=TORCH),
    "every kind twice": Case(numbered(*range(2 * KINDS)), met=every_kind),
    "some kinds": Case(FEW),
    "8 bits, called": Case(numbered(*range(8)), capture=eager, dtype=torch.int8),
    "8 bits": Case(numbered(*range(8)), dtype=torch.int8),
    "texts that grow": Case(growing, AT_ONCE, pages=250),
    "texts that grow, called": Case(growing, AT_ONCE, capture=eager, pages=250),
}
FAST = {
    **{
        f"some that leave bursts of {stride}": Case(
            burst("plain"), Schedule(stride, leaves=1.0), ending("length"), stride=stride
        )
        for stride in (1, 3, 5)
    },
    **{
        f"{name} in bursts of {stride}": Case(burst(name), Schedule(stride), met, stride=stride)
        for name, met in MET.items()
        for stride in (1, 3, 5)
    },
}
CASES = [
    *(pytest.param(case, id=name, marks=pytest.mark.slow) for name, case in SLOW.items()),
    *(pytest.param(case, id=name) for name, case in FAST.items()),
]


@dataclass
class Paged(ArRequests):
    """Level 0 over pages, which is over slots for whoever is alone; each of those is made once."""

    known: dict[tuple[int, torch.dtype], Outcome] = field(default_factory=dict)
    dtype: torch.dtype = FLOAT

    def alone(self, request: ArRequest) -> Outcome:
        key = id(request), self.dtype
        if key not in self.known:
            self.known[key] = super().alone(request)
        return self.known[key]


@pytest.fixture(scope="module")
def known() -> dict[tuple[int, torch.dtype], Outcome]:
    return {}


@pytest.mark.parametrize("case", CASES)
def test_an_utterance_over_pages_has_among_others_the_codes_that_it_has_alone_over_slots(
    model: Valle,
    known: dict[tuple[int, torch.dtype], Outcome],
    case: Case,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(model.transformer, "kernels", case.kernels)
    monkeypatch.setattr(GraphRunner, "stride", case.stride)
    if "repeats" in request.node.name:  # the toy attends to no symbol clearly
        monkeypatch.setattr("app.engine.ar.text_progress._CLEAR", 0.0)

    def batch(capture: Capture | None) -> ArBatch:
        return runner(model, capture, SLOTS, case.pages, case.dtype)

    slots = eager if case.dtype == torch.int8 else None
    stage = Paged(
        batch(case.capture or Tape().capture), lambda: batch(slots), READ, known=known,
        dtype=case.dtype,
    )  # fmt: skip
    found = alone_equals_among(stage, case.requests(model), case.schedule)
    assert case.met(found)
    assert stage.batch.free_rows == SLOTS


@pytest.mark.parametrize("stride", [1, 3, 5])
def test_an_utterance_that_finds_no_page_fails_alone(
    model: Valle, stride: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(GraphRunner, "stride", stride)
    params = knobs(min_frames=100)
    first, second = (
        numbered_request(model, n, params=params, max_frames=100, **WHOLE) for n in (1, 2)
    )
    stage = ArRequests(runner(model, Tape().capture, 6, pages=3))
    alone_equals_among(stage, [first], failing=[second])
    (failed,) = (group for group in stage.final if group.error)
    assert "keys and values" in str(failed.error)
    assert 40 < len(failed) < 64
    assert stage.batch.free_rows == 6
    runs = stage.batch._runner
    assert isinstance(runs, GraphRunner)
    assert runs.cache.pool.free == 3
