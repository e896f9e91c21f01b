"""Level 0 in one batch, operator by operator: of utterances, of texts that grow, and of jobs."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch

from app.engine.ar.job import ArJob
from app.engine.ar.sequence_group import SequenceOrGroup
from app.engine.ar.stage import ArBatch, ArStage
from app.engine.backend.synthesizer import Synthesizer
from app.engine.core import Plan, SpeechJob
from app.engine.errors import GenerationFailed
from app.engine.messages import ArMessage
from app.engine.results import STOPPED
from app.engine.utterance import UtteranceSpec
from app.settings import BUILTIN_MODEL
from models.valle import Valle
from samplers.knobs.params import SamplingParams
from tests.alone_among.harness import Schedule, alone_equals_among
from tests.app.engine.ar.growing_texts import NUMBERS, versions
from tests.app.engine.ar.requests import (
    KINDS,
    ArRequest,
    ArRequests,
    Outcome,
    request,
    runner,
)
from tests.app.tools.serving import settings_of

SLOTS = 12


@dataclass(frozen=True)
class Case:
    """Requests of a model, when they come and go, and what they must have met."""

    requests: Callable[[Valle], Sequence[ArRequest]]
    schedule: Schedule
    met: Callable[[Sequence[Outcome]], bool]


def every(seed: int, **changes: bool) -> Case:
    """A request of every kind of knob; some are traced unless all or none are to be."""

    def requests(model: Valle) -> Sequence[ArRequest]:
        numbers = range(seed * KINDS, (seed + 1) * KINDS)
        return [request(model, number, **changes) for number in numbers]

    def met(found: Sequence[Outcome]) -> bool:
        reasons = {reason for _, reason, *_ in found}
        goes_back = any(backtracks for _, _, backtracks, *_ in found)
        return "length" in reasons and bool(reasons & STOPPED) and (goes_back or seed > 0)

    return Case(requests, Schedule(seed), met)


def growing(model: Valle) -> Sequence[ArRequest]:
    """Texts that grow, amid some that do not."""
    plain = [request(model, number, trace=False) for number in (0, 4)]
    return [*plain, *(versions(model, number) for number in NUMBERS)]


def grows(found: Sequence[Outcome]) -> bool:
    return sum(len(growths) for *_, growths in found) >= 2 * len(NUMBERS)


slow = pytest.mark.slow
CASES = {
    "every kind, traced": every(0, trace=True),
    "every kind, untraced": every(0, trace=False),
    "other numbers": pytest.param(every(1), marks=slow),
    "more numbers": pytest.param(every(2), marks=slow),
    "texts that grow": Case(growing, Schedule(1, pauses=0.2), grows),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_an_utterance_has_among_others_the_codes_that_it_has_alone(
    model: Valle, case: Case
) -> None:
    stage = ArRequests(runner(model, slots=SLOTS))
    found = alone_equals_among(stage, case.requests(model), case.schedule)
    assert case.met(found)
    assert stage.batch.free_rows == SLOTS


ROWS = 8
TEXTS = ("One. Two, three.", "Four.", "Five, six.", "Seven.")


@dataclass
class RunningJob:
    """A job and what it has sent."""

    job: ArJob
    messages: list[ArMessage]


@dataclass
class Jobs:
    """Level 0 of jobs of several utterances; a stage."""

    synthesizer: Synthesizer
    batch: ArStage
    begun: list[ArJob] = field(default_factory=list)

    def has_room(self, request: Plan) -> bool:
        held = sum(job.plan.rows for job in self.begun if not job.over)
        return held + request.rows <= ROWS

    def begin(self, request: Plan) -> RunningJob:
        messages: list[ArMessage] = []
        self.begun.append(self.batch.begin(request, messages.append))
        return RunningJob(self.begun[-1], messages)

    def step(self, running: Sequence[RunningJob]) -> None:
        self.batch.step([one.job for one in running])

    def is_over(self, running: RunningJob) -> bool:
        return running.job.over

    def leave(self, running: RunningJob) -> None:
        free = self.batch._shared.free_rows
        held = 0 if running.job.utterance is None else running.job.plan.rows
        self.batch.end(running.job)
        assert self.batch._shared.free_rows == free + held

    def error(self, running: RunningJob) -> Exception | None:
        return running.job.error

    def outcome(self, running: RunningJob) -> list[int]:
        told = [one.codes for one in running.messages if one.kind in {"frames", "done"}]
        return [code for codes in told for code in codes.tolist()]

    def alone(self, request: Plan) -> list[int]:
        with closing(self.synthesizer.ar.batch(request.rows)) as batch:
            own = Jobs(self.synthesizer, batch)
            job = own.begin(request)
            while not own.is_over(job):
                own.step([job])
            return own.outcome(job)

    def assert_same(self, found: list[int], expected: list[int]) -> None:
        assert found == expected


@pytest.fixture
def jobs(toy: Path) -> Iterator[Jobs]:
    synthesizer = Synthesizer.load(settings_of(toy, weights="int8", max_text_chars=200))
    with closing(synthesizer.ar.batch(ROWS)) as batch:
        yield Jobs(synthesizer, batch)


def plan(of: Synthesizer, number: int) -> Plan:
    guidance = {"cfg_strength": 2.0} if number % 4 == 1 else {}
    params = SamplingParams.model_validate({"seed": number, "ban_tokens": (512,), **guidance})
    job = SpeechJob(f"job-{number}", TEXTS[number % 4], params, max_duration_s=0.6)
    return of.planner.plan(job)


@pytest.mark.parametrize("failing", [(), (8, 9)], ids=["", "some without room"])
def test_a_job_has_among_others_the_codes_that_it_has_alone(
    jobs: Jobs, failing: Sequence[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    admit = ArBatch.admit

    def admitted(batch: ArBatch, inputs: UtteranceSpec, *more: Any) -> SequenceOrGroup:
        if inputs.seed in failing:
            raise torch.OutOfMemoryError("no room on purpose")
        return admit(batch, inputs, *more)

    monkeypatch.setattr(ArBatch, "admit", admitted)
    wanted, without_room = (
        [plan(jobs.synthesizer, number) for number in numbers] for numbers in (range(8), failing)
    )
    alone_equals_among(jobs, wanted, Schedule(1), without_room)
    errors = [job.error for job in jobs.begun if job.error]
    assert [type(error) for error in errors] == [GenerationFailed] * len(failing)


@pytest.mark.slow
@pytest.mark.weights
@pytest.mark.parametrize("weights", ["float32", "int8"])
def test_the_built_in_model_says_itself_that_codes_are_those_of_each_alone(weights: str) -> None:
    options = settings_of(BUILTIN_MODEL, weights=weights, max_text_chars=99)
    assert Synthesizer.load(options).checks.check_deterministic()
