"""Several sequences of one utterance, sampled side by side."""

from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor

from app.engine.ar.model_runner import ArModelRunner, InFlightStep, SampledTokens
from app.engine.ar.sequence import ArSequence
from app.engine.ar.utterance import ArUtterance
from app.engine.results import STOPPED, RankedTake
from app.engine.utterance import UtteranceSpec
from models.alignment.path import followed
from samplers.ar.trace import log_prob_of
from samplers.knobs.features import is_on
from samplers.ops.beam import final_score
from samplers.ops.rows import sanitise
from samplers.ranking import oddity, rank


class ArSequenceGroup(ArUtterance, ABC):
    """Several sequences of one utterance; a job reads it as it does the `ArSequence` of others.

    Attributes:
        all: All sequences; they hold their slots until they are released.
        sequences: Those still considered; the first is the utterance's result so far.
    """

    read_at_once = False

    def __init__(self, inputs: UtteranceSpec, sequences: Sequence[ArSequence]) -> None:
        self.inputs = inputs
        self.sequences = list(sequences)
        self.all = tuple(sequences)

    def __len__(self) -> int:
        """Count the frames of the first; see `ArSequence`."""
        return len(self.sequences[0])

    @property
    def final(self) -> int:
        """How many of the first frames cannot change: none before the end."""
        return 0 if self.finish_reason is None else len(self)

    def ar_codes(self, start: int = 0, end: int | None = None) -> Tensor:
        """Return the frames of the first; see `ArSequence`."""
        return self.sequences[0].ar_codes(start, end)

    def read(
        self,
        batch: ArModelRunner,
        step: InFlightStep,
        arrived: SampledTokens,
        places: Sequence[int],
    ) -> None:
        """Append what a step drew for its sequences, which are at some places of the step."""
        for place in places:
            batch.append(step, arrived, place)
        self.update(batch, step)

    @abstractmethod
    def update(self, batch: ArModelRunner, step: InFlightStep) -> None:
        """After a step, set `finish_reason`, and fork or drop sequences of the batch."""


class BestOf(ArSequenceGroup):
    """An utterance of `best_of` sequences; no frame is final before all have ended.

    Each has its own noise; that of the first is the noise of an utterance with one sequence.
    """

    def __init__(self, inputs: UtteranceSpec, sequences: Sequence[ArSequence]) -> None:
        super().__init__(inputs, sequences)
        # How well those that have ended follow the text; 0 if nothing tells
        self._followed: dict[ArSequence, float] = {}

    def update(self, batch: ArModelRunner, step: InFlightStep) -> None:  # noqa: ARG002
        """Free the rows of sequences that have ended; choose one when all have."""
        ended = [one for one in self.sequences if one.finish_reason is not None]
        weighed = self.inputs.params.rank_alignment_weight > 0
        for one in ended:
            if one not in self._followed:
                batch.remove([one])
                attention = batch.read_text(one) if weighed else None
                self._followed[one] = 0.0 if attention is None else followed(attention.numpy())
                batch.release([one])
        if len(ended) == len(self.sequences):
            self._choose()

    def _choose(self) -> None:
        """Keep the best by rank, before those that went on behind their text or did not end."""
        params = self.inputs.params
        silent = self.inputs.silent
        lengths = oddity([len(one.codes) for one in self.sequences])
        ranks = [
            rank(one.logprobs, one.codes, silent, params, followed=self._followed[one])
            - params.rank_length_penalty * odd
            for one, odd in zip(self.sequences, lengths, strict=True)
        ]

        def order_of(number: int) -> tuple[bool, bool, float]:
            one = self.sequences[number]
            ended = one.finish_reason in {"stop", "aligned"}
            return not ended or one.goes_on, not one.codes, -ranks[number]

        order = sorted(range(len(ranks)), key=order_of)
        self.ranked = _report(self.sequences, ranks, order[0])
        best = self.sequences[order[0]]
        self.sequences = [best]
        self.finish_reason = best.finish_reason


class BeamSearch(ArSequenceGroup):
    """An utterance of `beam_width` beams; no frame is final before the search has ended.

    A beam keeps its slots and rows to the end: a finished beam may be displaced by an active one.
    """

    read_at_once = True

    def __init__(self, inputs: UtteranceSpec, sequences: Sequence[ArSequence]) -> None:
        super().__init__(inputs, sequences)
        for sequence in self.sequences[1:]:
            sequence.score = -torch.inf

    def read(
        self,
        batch: ArModelRunner,
        step: InFlightStep,
        arrived: SampledTokens,
        places: Sequence[int],
    ) -> None:
        """Copy the beams that were continued into the rows that continue them, and append."""
        assert step.result is not None
        assert step.result.scores is not None
        scores = step.result.scores.tolist()
        for place in places:
            if (source := step.result.sources[place]) != place:
                batch.copy(step.sequences[source], step.sequences[place])
            step.sequences[place].score = scores[place]
        super().read(batch, step, arrived, places)

    def update(self, batch: ArModelRunner, step: InFlightStep) -> None:  # noqa: ARG002
        """End the search once no active beam can score higher than the best finished one."""
        beams = [one for one in self.sequences if one.score > -torch.inf]
        ended = [one for one in beams if one.finish_reason is not None]
        active = [one for one in beams if one.finish_reason is None]
        if not ended:
            return
        # Its frames, and the stop if it drew one.
        tokens = [len(one.codes) + (one.finish_reason in STOPPED) for one in ended]
        scores = self._scores([one.score for one in ended], tokens)
        # A beam's log-probability only falls, so its best score is today's at the greatest length.
        longest = [self.inputs.max_frames] * len(active)
        bounds = self._scores([one.score for one in active], longest)
        if active and bounds.max() > scores.max():
            return
        best = int(scores.argmax())
        batch.remove(self.sequences)
        self.ranked = _report(ended, scores.tolist(), best)
        self.sequences = [ended[best]]
        self.finish_reason = ended[best].finish_reason

    def _scores(self, scores: Sequence[float], tokens: Sequence[int]) -> Tensor:
        """Return ``[n]`` log-probabilities normalised by length; see `final_score`."""
        power = torch.tensor(self.inputs.params.beam_length_power, dtype=torch.float64)
        return final_score(torch.tensor(scores, dtype=torch.float64), torch.tensor(tokens), power)


class Branching(ArSequenceGroup):
    """An utterance that may fork for `entropix_branch_frames` frames, final once one is kept."""

    read_at_once = True

    def __init__(self, inputs: UtteranceSpec, sequences: Sequence[ArSequence]) -> None:
        super().__init__(inputs, sequences)
        self.sequences = [self.all[0]]
        self._spare = list(self.all[1:])
        self._fork = 0  # the first frame in which the branches differ

    @property
    def final(self) -> int:
        """How many of the first frames cannot change: those that all branches have in common."""
        forked = len(self.sequences) > 1 and self.finish_reason is None
        return self._fork if forked else len(self)

    def update(self, batch: ArModelRunner, step: InFlightStep) -> None:
        """Fork if there are alternatives; choose once all branches are long enough or ended."""
        self._branch(batch, step)
        batch.remove([one for one in self.sequences if one.finish_reason is not None])
        if len(self.sequences) > 1:
            enough = self._fork + self.inputs.params.entropix_branch_frames
            if any(one.finish_reason is None and len(one.codes) < enough for one in self.sequences):
                return
            self._choose(batch)
        self.finish_reason = self.sequences[0].finish_reason

    def _branch(self, batch: ArModelRunner, step: InFlightStep) -> None:
        """Continue with the code that was sampled and, in spare sequences, with alternatives."""
        assert step.result is not None
        assert step.own is not None
        first = self.sequences[0]
        found = step.result.alternatives
        if found is None or first not in step.sequences:
            return
        place = step.sequences.index(first)
        most = self.inputs.params.entropix_branch_rollouts
        codes = {
            number: code for number, code in enumerate(found[place, 1:most].tolist()) if code >= 0
        }
        if codes:
            self._fork = len(first.codes) - 1
        for count, (number, code) in enumerate(codes.items(), 1):
            if not self._spare:
                break
            branch = self._spare.pop()
            batch.fork(first, branch, code, count)
            own = sanitise(step.own[place, None])
            branch.logprobs[-1] = log_prob_of(own, found[place, number + 1, None]).item()
            if self.inputs.trace:
                branch.records[-1] = step.result.alternative_records[number], place
            self.sequences.append(branch)

    def _choose(self, batch: ArModelRunner) -> None:
        """Keep the branch that ranks highest since the fork, the first of equals."""
        params = self.inputs.params
        silent = self.inputs.silent
        ranks = [
            rank(one.logprobs[self._fork :], one.codes, silent, params, start=self._fork)
            for one in self.sequences
        ]
        best = self.sequences[ranks.index(max(ranks))]
        losers = [one for one in self.sequences if one is not best]
        batch.remove(losers)
        self._spare += losers
        self.sequences = [best]


SequenceOrGroup = ArSequence | ArSequenceGroup
"""Level 0 of one utterance while `app.engine.ar.stage.ArBatch` samples it."""


def sequence_or_group_of(inputs: UtteranceSpec, sequences: Sequence[ArSequence]) -> SequenceOrGroup:
    """Return the sequence of an utterance, or several as the kind of group that it asks for."""
    if inputs.params.best_of > 1:
        return BestOf(inputs, sequences)
    if inputs.params.beam_width:
        return BeamSearch(inputs, sequences)
    return Branching(inputs, sequences) if is_on("branch", inputs.params) else sequences[0]


def _report(
    sequences: Sequence[ArSequence], scores: Sequence[float], kept: int
) -> tuple[RankedTake, ...]:
    """Report the outcome of sequences that have ended, with their scores, nats a code."""
    return tuple(
        RankedTake(score, len(one.codes), one.finish_reason, number == kept)
        for number, (one, score) in enumerate(zip(sequences, scores, strict=True))
        if one.finish_reason is not None
    )
