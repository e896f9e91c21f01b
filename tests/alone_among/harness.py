"""What becomes of a request alone becomes of it among others, whichever begin, pause and leave."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

Request = TypeVar("Request")
Asked = TypeVar("Asked", contravariant=True)
Running = TypeVar("Running")
Outcome = TypeVar("Outcome")


class Stage(Protocol[Asked, Running, Outcome]):
    """What computes requests side by side."""

    def has_room(self, request: Asked) -> bool:
        """Return whether a request may begin now."""

    def begin(self, request: Asked) -> Running:
        """Begin a request."""

    def step(self, running: Sequence[Running]) -> None:
        """Go on with these, in this order; all others that have begun pause."""

    def is_over(self, running: Running) -> bool:
        """Return whether a request has come to its end."""

    def leave(self, running: Running) -> None:
        """End a request before its end; no-op if that has come."""

    def outcome(self, running: Running) -> Outcome:
        """Return what became of a request."""

    def error(self, running: Running) -> Exception | None:
        """Return why a request failed; None if it did not."""

    def alone(self, request: Asked) -> Outcome:
        """Return what becomes of a request where there is no other."""

    def assert_same(self, found: Outcome, expected: Outcome) -> None:
        """Assert that two outcomes of one request do not differ."""


@dataclass(frozen=True)
class Schedule:
    """When requests come and go: the chances of each before a step."""

    seed: int = 0
    begins: float = 0.7  # if there is room
    pauses: float = 0.1  # or goes on again
    leaves: float = 0.2  # a further one, which begins with one and leaves before its end


AT_ONCE = Schedule(begins=1.0, pauses=0.0, leaves=0.0)
"""All begin as soon as there is room, and go on to their ends."""


def alone_equals_among(
    stage: Stage[Request, Running, Outcome],
    requests: Sequence[Request],
    schedule: Schedule = AT_ONCE,
    failing: Sequence[Request] = (),
) -> list[Outcome]:
    """Assert that each request comes to what it comes to alone; return what that is.

    A case that is to meet something, as a row that goes back, looks for it in what is returned.

    Args:
        failing: Further requests, which begin among these and must fail.
    """
    found = among(stage, requests, schedule, failing)
    assert_as_alone(stage, requests, found)
    return found


def assert_as_alone(
    stage: Stage[Request, Running, Outcome],
    requests: Sequence[Request],
    found: Sequence[Outcome],
) -> None:
    """Assert that what became of requests is what becomes of each alone."""
    for request, outcome in zip(requests, found, strict=True):
        stage.assert_same(outcome, stage.alone(request))


def among(
    stage: Stage[Request, Running, Outcome],
    requests: Sequence[Request],
    schedule: Schedule,
    failing: Sequence[Request] = (),
) -> list[Outcome]:
    """Compute requests as a schedule has them come and go; return what became of each."""
    chance = random.Random(schedule.seed)
    waiting = [(request, False) for request in requests]
    for request in failing:
        waiting.insert(chance.randint(1, len(waiting)), (request, True))
    running = list[Running]()
    leaving = list[Running]()
    failed = set[int]()
    paused = set[int]()
    while waiting or not all(map(stage.is_over, running)):
        while waiting and stage.has_room(waiting[0][0]) and chance.random() < schedule.begins:
            request, fails = waiting.pop(0)
            if fails:
                failed.add(len(running))
            running.append(stage.begin(request))
            other = chance.choice(requests)
            if chance.random() < schedule.leaves and stage.has_room(other):
                leaving.append(stage.begin(other))
        for number, one in enumerate(running):
            if not stage.is_over(one) and chance.random() < schedule.pauses:
                paused ^= {number}
        going_on = [one for number, one in enumerate(running) if number not in paused]
        stage.step([one for one in (*going_on, *leaving) if not stage.is_over(one)])
        if leaving and chance.random() < 0.3:
            stage.leave(leaving.pop(0))
    for one in leaving:
        stage.leave(one)
    for number, one in enumerate(running):
        error = stage.error(one)
        if error is not None and number not in failed:
            raise error
        assert error is not None or number not in failed
    return [stage.outcome(one) for number, one in enumerate(running) if number not in failed]


@dataclass(eq=False)
class Row(Generic[Request, Outcome]):
    """A request that waits for the call that computes it, and what came of it."""

    request: Request
    outcomes: list[Outcome] = field(default_factory=list)


@dataclass
class Rows(Generic[Request, Outcome]):
    """A function of some rows that computes each in one call; a `Stage`.

    Args:
        compute: From rows to an outcome each.
        same: Asserts that two outcomes of a row do not differ.
        most: So many rows are computed in one call.
    """

    compute: Callable[[Sequence[Request]], Sequence[Outcome]]
    same: Callable[[Outcome, Outcome], None]
    most: int
    waiting: int = 0

    def has_room(self, request: Request) -> bool:
        return self.waiting < self.most

    def begin(self, request: Request) -> Row[Request, Outcome]:
        self.waiting += 1
        return Row(request)

    def step(self, running: Sequence[Row[Request, Outcome]]) -> None:
        if running:
            found = self.compute([one.request for one in running])
            for one, outcome in zip(running, found, strict=True):
                one.outcomes.append(outcome)
            self.waiting -= len(running)

    def is_over(self, running: Row[Request, Outcome]) -> bool:
        return bool(running.outcomes)

    def leave(self, running: Row[Request, Outcome]) -> None:
        self.waiting -= not running.outcomes

    def outcome(self, running: Row[Request, Outcome]) -> Outcome:
        return running.outcomes[0]

    def error(self, running: Row[Request, Outcome]) -> None:
        return None

    def alone(self, request: Request) -> Outcome:
        return self.compute([request])[0]

    def assert_same(self, found: Outcome, expected: Outcome) -> None:
        self.same(found, expected)
