"""The best of many settings of knobs, by successive halving over sentences and seeds."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from math import ceil, inf

from app.commands.errors import CommandError
from app.commands.study.grid import Setting, StudyTake
from app.commands.study.page import StudyTable, difference, interval

_FEWEST = 4

SpeakTakes = Callable[[Sequence[StudyTake]], Awaitable[StudyTable]]
TakesOf = Callable[[Sequence[Setting]], Sequence[StudyTake]]


@dataclass(frozen=True)
class Goal:
    """What is sought."""

    measure: str  # its mean over sentences shall be small
    limits: dict[str, float]  # measure -> the most that its mean may be

    @classmethod
    def read(cls, measure: str, words: Sequence[str]) -> "Goal":
        """Return the goal of words such as `faults=0`; raises CommandError if one is another."""
        try:
            pairs = [word.split("=") for word in words]
            return cls(measure, {name: float(most) for name, most in pairs})
        except ValueError as error:
            raise CommandError("limit: say MEASURE=NUMBER, as in faults=0") from error

    def rank(self, rows: StudyTable) -> tuple[float, float]:
        """Return by how much takes miss the limits, and their measure: the smaller, the better."""
        for name in (self.measure, *self.limits):
            if not any(name in row for row in rows):
                raise CommandError(f"find: no take has a measure {name!r}; is a --judge missing?")
        over = [interval(rows, name).value - most for name, most in self.limits.items()]
        missed = sum(max(0.0, one) for one in over)
        is_measured = any(row[self.measure] is not None for row in rows)
        return missed, interval(rows, self.measure).value if is_measured else inf


@dataclass(frozen=True)
class RaceResult:
    """How a race ended."""

    setting: Setting | None  # the best; None if nothing beats what there is
    lines: Sequence[str]  # what happened, in words


class Race:
    """A race of settings against the one that there is, which takes part in every round.

    In each round the better half stays and the takes of each are doubled; who is left at the
    end is compared with what there is on sentences that no round has heard. ``speak`` returns a
    row for each take.
    """

    def __init__(self, speak: SpeakTakes, goal: Goal) -> None:
        self._speak = speak
        self._goal = goal

    async def run(self, settings: Sequence[Setting], seen: TakesOf, unseen: TakesOf) -> RaceResult:
        """Return the best of settings without the empty one, which is what there is.

        ``seen`` returns the takes of settings that the rounds may use, any beginning of
        which is balanced, ``unseen`` those of the comparison at the end.
        """
        left: Sequence[Setting] = settings
        lines = []
        rounds = max(1, (len(settings) - 1).bit_length())
        for number in range(rounds):
            entrants = [{}, *left]
            takes = seen(entrants)
            most = len(takes) // len(entrants)
            each = min(most, max(_FEWEST, ceil(most / 2 ** (rounds - 1 - number))))
            ranks = await self._ranks(takes[: each * len(entrants)], len(entrants))
            order = sorted(range(len(left)), key=lambda place: ranks[1 + place])
            best = left[order[0]]
            rank = ranks[1 + order[0]]
            lines.append(
                f"round {number + 1}: {len(left)} settings, {each} takes each; what there is:"
                f" {self._in_words(ranks[0])}; best: {_words(best)}: {self._in_words(rank)}"
            )
            left = [left[place] for place in order[: max(1, len(left) // 2)]]
        if rank >= ranks[0]:
            return RaceResult(None, [*lines, "nothing beats what there is"])
        return await self._compared(best, unseen, lines)

    async def _compared(self, best: Setting, unseen: TakesOf, lines: list[str]) -> RaceResult:
        """Return the best if it beats what there is on sentences that were not used to find it."""
        rows = await self._speak(unseen([{}, best]))
        theirs = rows[::2]
        ours = rows[1::2]
        less = difference(ours, theirs, self._goal.measure)
        before = self._goal.rank(theirs)
        after = self._goal.rank(ours)
        lines.append(
            f"on {len({row['text'] for row in rows})} other sentences, {len(ours)} takes each: what"
            f" there is: {self._in_words(before)}; {_words(best)}: {self._in_words(after)};"
            f" difference {less.value:.4f} [{less.low:.4f}, {less.high:.4f}]"
        )
        if after[0] <= before[0] and less.high < 0:
            return RaceResult(best, [*lines, f"{_words(best)} beats what there is"])
        return RaceResult(None, [*lines, "nothing beats what there is for sure"])

    async def _ranks(self, takes: Sequence[StudyTake], entrants: int) -> list[tuple[float, float]]:
        rows = await self._speak(takes)
        return [self._goal.rank(rows[place::entrants]) for place in range(entrants)]

    def _in_words(self, rank: tuple[float, float]) -> str:
        missed = f", limits missed by {rank[0]:.3g}" if rank[0] else ""
        return f"{self._goal.measure} {rank[1]:.4f}{missed}"


def _words(setting: Setting) -> str:
    return " ".join(f"{name}={value}" for name, value in setting.items())
