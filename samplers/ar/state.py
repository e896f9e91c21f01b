"""All that a batch remembers from step to step, a row at a time: rows join, leave and come back.

The steps of the chain remember nothing. What a row's state was at each length is kept, so that a
rewind has nothing to put back.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from samplers.ar.history import History
from samplers.knobs.params import SamplingParams
from samplers.ops.draw import Stage, forked_keys, stream_key
from samplers.processors.batch_params import on, within
from samplers.processors.draw import Drawn
from samplers.processors.entropix import branches, pauses
from samplers.processors.scores import Scores

NEVER = -(2**31)
"""The frame of an act that there was not: longer ago than any interval."""


@dataclass(frozen=True, eq=False)
class Row:
    """What never changes about a row; the beams of one search share one.

    Attributes:
        params: Resolved.
        max_frames: How many codes it may hold.
        silent: ``(<= V,)`` bool, the codes of silence, or None.
        prompted: How many codes of a prompt its penalties count.
    """

    params: SamplingParams
    max_frames: int
    silent: Tensor | None
    prompted: int

    @property
    def wants_attention(self) -> bool:
        """Whether entropix reads how the model attended."""
        return on("entropix", self.params)

    @property
    def pauses(self) -> bool:
        """Whether entropix may put in a pause."""
        return self.silent is not None and pauses(self.params)

    @property
    def acts(self) -> bool:
        """Whether entropix may pause or branch."""
        return self.pauses or branches(self.params)

    @property
    def tracks_runs(self) -> bool:
        """Whether a step, or who looks at the history, reads its runs."""
        params = self.params
        return (
            params.dry_multiplier > 0 or params.no_repeat_ngram_size > 0 or bool(params.backtrack)
        )


@dataclass(eq=False)
class SamplerState:
    """What some rows remember.

    Attributes:
        rows: What never changes about them.
        history: What each has drawn.
        heard: The same behind the prompt that its penalties count; None where no row has one.
        stopped: ``(B,)`` bool, which have ended.
        limits: ``(B, 1)`` int64, how many codes each may hold.
        keys: ``(B, 1)`` int64, each row's stream of noise.
        attempts: ``(B, 1)`` int64, how often each was rewound.
        mu: ``(B, max_frames + 2)`` float32 bits, mirostat's state at each length.
        last_act: ``(B, max_frames + 2)`` int64, the frame where entropix last paused or branched,
            at each length.
        beam_scores: ``(B,)`` float32 nats, the log-probability of a beam's codes; -inf in a row
            of a search that holds none.
    """

    rows: Sequence[Row]
    history: History
    heard: History | None
    stopped: Tensor
    limits: Tensor
    keys: Tensor
    attempts: Tensor
    mu: Tensor
    last_act: Tensor
    beam_scores: Tensor

    @classmethod
    def begin(
        cls,
        params: SamplingParams,
        seed: int,
        *,
        max_frames: int,
        device: torch.device,
        utterance: int = 0,
        candidate: int = 0,
        prompt: Tensor | None = None,
        silent: Tensor | None = None,
    ) -> "SamplerState":
        """Return that of what has drawn nothing, one row or all beams; see `ArSampler.join`."""
        counted = prompt if params.penalty_includes_prompt else None
        prompted = 0 if counted is None else len(counted)
        row = Row(params, max_frames, silent, prompted)
        history = History(1, max_frames, device, track_runs=row.tracks_runs)
        heard = None
        if counted is not None and prompted:
            heard = History(1, max_frames + prompted, device, track_runs=row.tracks_runs)
            heard.preload(0, counted.to(device))
        key = stream_key(seed, utterance, Stage.AR, candidate=candidate)
        # The stop, too, moves what is kept, past the last length.
        room = (1, max_frames + 2)
        begun = cls(
            [row],
            history,
            heard,
            torch.zeros(1, dtype=torch.bool, device=device),
            torch.tensor([[max_frames]], device=device),
            torch.tensor([[key]], device=device),
            torch.zeros(1, 1, dtype=torch.int64, device=device),
            torch.full(room, float(within(params.mirostat_tau)), device=device).mul_(2),
            torch.full(room, NEVER, device=device),
            torch.zeros(1, device=device),
        )
        if params.beam_width > 1:
            begun = begun.take([0] * params.beam_width)
            begun.beam_scores[1:], begun.stopped[1:] = -torch.inf, True
        return begun

    @classmethod
    def join(cls, parts: Sequence["SamplerState"]) -> "SamplerState":
        """Put the rows of several memories into one, in order.

        Args:
            parts: At least one, all on one device.
        """
        prompted = any(part.heard is not None for part in parts)
        return cls(
            [row for part in parts for row in part.rows],
            History.join([part.history for part in parts]),
            History.join([part.heard or part.history for part in parts]) if prompted else None,
            torch.cat([part.stopped for part in parts]),
            limits=torch.cat([part.limits for part in parts]),
            keys=torch.cat([part.keys for part in parts]),
            attempts=torch.cat([part.attempts for part in parts]),
            mu=_stack([part.mu for part in parts]),
            last_act=_stack([part.last_act for part in parts]),
            beam_scores=torch.cat([part.beam_scores for part in parts]),
        )

    def take(self, places: Sequence[int]) -> "SamplerState":
        """Copy what some rows remember.

        Args:
            places: Which rows, in the order of the copy; at least one.
        """
        rows = [self.rows[place] for place in places]
        track_runs, heard = any(row.tracks_runs for row in rows), None
        longest = max(row.max_frames for row in rows)
        if self.heard is not None and any(row.prompted for row in rows):
            most = max(row.max_frames + row.prompted for row in rows)
            heard = self.heard.take(places, most, track_runs=track_runs)
        index = torch.tensor(places, dtype=torch.int64, device=self.keys.device)
        columns = (self.stopped, self.limits, self.keys, self.attempts)
        trails = (self.mu[:, : longest + 2], self.last_act[:, : longest + 2], self.beam_scores)
        return SamplerState(
            rows,
            self.history.take(places, longest, track_runs=track_runs),
            heard,
            *(table.index_select(0, index) for table in (*columns, *trails)),
        )

    @property
    def histories(self) -> Sequence[History]:
        """What was drawn, and, where a row has it, what was heard."""
        return (self.history,) if self.heard is None else (self.history, self.heard)

    @property
    def longest_heard(self) -> int:
        """How many codes a row may have heard when it is full, those of its prompt included."""
        return max(row.max_frames + row.prompted for row in self.rows)

    @property
    def tracks_runs(self) -> bool:
        """Whether a row needs its runs."""
        return any(row.tracks_runs for row in self.rows)

    def scores(self, logits: Tensor, lookback: int) -> Scores:
        """Return ``(B, V)`` float32 logits with what the steps read of the rows.

        Args:
            logits: Without NaN.
            lookback: How far the steps look back.
        """
        recent = counted = self.history.newest_first(lookback)
        if self.heard is not None:
            counted = self.heard.newest_first(lookback)
        runs = (self.heard or self.history).runs if self.tracks_runs else counted
        lengths = self.history.lengths[:, None]
        return Scores(
            logits, lengths, recent, counted, runs, self.keys, self.attempts, limits=self.limits
        )

    def append(self, codes: Tensor, stopped: Tensor, scores: Scores, drawn: Drawn) -> None:
        """Remember a step.

        Args:
            codes: ``(B,)`` int64, what it gave.
            stopped: ``(B,)`` bool, rows that have ended: what it gave them is no speech.
            scores: After it.
            drawn: What came of the draw.
        """
        following = scores.lengths + 1
        if drawn.mu is not None:
            self.mu.scatter_(1, following, drawn.mu)
        if scores.last_act is not None and scores.decision is not None:
            acted = scores.decision.paused | scores.decision.branched
            last_act = torch.where(acted, scores.lengths, scores.last_act)
            self.last_act.scatter_(1, following, last_act)
        self.stopped.copy_(stopped)
        for history in self.histories:
            history.append(codes, ~stopped)

    def rewind(self, place: int, length: int) -> None:
        """Take back all but the first ``length`` codes of a row, which then goes on.

        Args:
            place: Which row.
            length: How many to keep; no more than it holds.
        """
        self.history.rewind(place, length)
        if self.heard is not None:
            self.heard.rewind(place, self.rows[place].prompted + length)
        self.attempts[place] += 1
        self.stopped[place] = False

    def overwrite(self, places: Sequence[int], sources: Sequence[int]) -> None:
        """Make some rows what others of their beam search are.

        Args:
            places: Which, all different.
            sources: What each becomes, as it was before.
        """
        device = self.keys.device
        index, source = (torch.tensor(given, device=device) for given in (places, sources))
        for table in (self.stopped, self.attempts, self.mu, self.last_act, self.beam_scores):
            table.index_copy_(0, index, table.index_select(0, source))
        for history in self.histories:
            history.overwrite(places, sources)

    def fork(self, place: int, length: int, code: int, number: int) -> "SamplerState":
        """Copy a row as it would be, had it drawn another code last.

        Args:
            place: Which row.
            length: How many codes it holds.
            code: The other one.
            number: Of the copy, from 1 on: its noise from then on depends on it.
        """
        forked = self.take([place])
        forked.keys = forked_keys(forked.keys, number)
        newest = torch.tensor([code], device=self.keys.device)
        for history, before in (
            (forked.history, 0),
            (forked.heard, forked.rows[0].prompted),
        ):
            if history is not None:
                history.rewind(0, before + length - 1)
                history.append(newest, torch.ones_like(newest, dtype=torch.bool))
        return forked


def _stack(tables: Sequence[Tensor]) -> Tensor:
    """Put ``(n, W)`` tables of any widths below each other; what no row reads is left 0."""
    stacked = tables[0].new_zeros(
        sum(len(table) for table in tables), max(table.shape[1] for table in tables)
    )
    start = 0
    for table in tables:
        stacked[start : start + len(table), : table.shape[1]] = table
        start += len(table)
    return stacked
