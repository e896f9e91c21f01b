"""One sequence of an utterance's level 0: its codes, and its place in the batch.

Most utterances have one, which is their level 0. Several that are sampled side by side are a
`app.engine.ar.sequence_group.ArSequenceGroup`.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from app.engine.ar.text_progress import TextProgress
from app.engine.ar.utterance import ArUtterance
from app.engine.utterance import UtteranceSpec, ar_codes_of
from samplers.ar.backtracking import Backtracker
from samplers.ar.state import PREDICTED
from samplers.ar.trace import TraceStep
from samplers.knobs.features import is_guided, is_on


@dataclass(frozen=True, slots=True)
class GuidanceBranch:
    """A prefix that a sequence is conditioned on: with the text, or, for guidance, without."""

    slot: int
    length: int  # positions of the prefix in the slot
    start: int  # position id of the first frame
    logprobs: Sequence[float] = ()  # nats, of each frame that an earlier take has sampled


class ArSequence(ArUtterance):
    """One sequence of level-0 codes for an utterance, as far as it is sampled.

    Attributes:
        conditions: The prefix with the text; also the one without, if guidance takes another row.
            Empty once its slots are free.
        progress: How far the text has been spoken; None if nobody asks.
        logprobs: Under the model's own logits, nats, of each code that was kept and of the stop;
            only if `keeps_logprobs`.
        records: The trace record of each token, and the row in it.
        generation: Changes when what was queued for its row is of no more use.
        later: What is known of its text with more words, which comes as the text is spoken.
        growths: The first frame of each version of its text but the first.
    """

    read_at_once = False
    """Whether the host decides after each step which sequences go on."""

    def __init__(
        self,
        inputs: UtteranceSpec,
        conditions: Sequence[GuidanceBranch],
        backtracker: Backtracker | None,
        progress: TextProgress | None,
        *,
        stop_token: int,
        later: "deque[UtteranceSpec] | None" = None,
    ) -> None:
        self.inputs = inputs
        self.later: deque[UtteranceSpec] = deque() if later is None else later
        self.conditions = tuple(conditions)
        self.wants_attention = is_on("entropix", inputs.params)
        self.keeps_logprobs = inputs.params.best_of > 1 or is_on("branch", inputs.params)
        self.backtracker = backtracker
        self.progress = progress
        self.codes: list[int] = ar_codes_of(inputs.kept).tolist() if inputs.kept else []
        self.logprobs = list(self.conditions[0].logprobs)
        self.score = 0.0  # log-probability of a beam, nats; -inf if the row holds no beam
        self.records: list[tuple[TraceStep, int]] = []
        self.generation = 0
        self.growths = list(inputs.kept.growths) if inputs.kept else []
        self._stop_token = stop_token

    def __len__(self) -> int:
        """Count the frames so far, those included that may still be rewound or replaced."""
        return len(self.codes)

    @property
    def sequences(self) -> "Sequence[ArSequence]":
        """Those of its utterance, if it is the only one; see `ArSequenceGroup`."""
        return (self,)

    all = sequences

    @property
    def final(self) -> int:
        """How many of the first frames cannot change any more."""
        if self.backtracker is None or self.finish_reason is not None:
            return len(self.codes)
        return self.backtracker.final

    def ar_codes(self, start: int = 0, end: int | None = None) -> Tensor:
        """Return the frames so far; see `ArUtterance`."""
        return torch.tensor(self.codes[start:end], dtype=torch.int64)

    @property
    def idle(self) -> bool:
        """Whether its row samples nothing: a beam that has ended, or a row that holds none."""
        return self.finish_reason is not None or self.score == -torch.inf

    @property
    def is_due(self) -> bool:
        """Whether its next frame is drawn with more of its text."""
        return self.progress is not None and self.progress.is_due

    @property
    def waits(self) -> bool:
        """Whether its next frame is drawn with words that are not known yet."""
        return self.finish_reason is None and not self.later and self.is_due

    def grow(self) -> None:
        """Go on with the next version of the text, of which more is known."""
        self.growths = [*self.growths, len(self.codes)]
        self.inputs = self.later.popleft()
        assert self.progress is not None
        self.progress.grow(self.inputs)

    @property
    def goes_on(self) -> bool:
        """Whether it sounds long behind the end of its text."""
        return self.progress is not None and self.progress.goes_on

    @property
    def is_guided(self) -> bool:
        """Whether it is, by another row or by what the model predicts of that."""
        return is_guided(self.inputs.params)

    @property
    def slot(self) -> int:
        """Its row of the sampler, and the slot of the cache of its first condition."""
        return self.conditions[0].slot

    @property
    def partner(self) -> int:
        """The slot of the condition without the text, or `PREDICTED`; `slot` without guidance."""
        predicted = self.is_guided and len(self.conditions) == 1
        return PREDICTED if predicted else self.conditions[-1].slot

    def append(self, code: int) -> int | None:
        """Append a frame, or end at the stop or the end of the text; backtrack if it is stuck.

        Returns how many frames are kept, if it backtracks; else None.
        """
        if code == self._stop_token:
            self.finish_reason = "stop" if self.codes else "empty"
            return None
        self.codes.append(code)
        end = self.progress.end if self.progress else None
        returned = self.progress.returned if self.progress and end is None else None
        verdict = self.backtracker.check(self.codes, returned) if self.backtracker else None
        if verdict is not None:
            self._keep(verdict.keep)
            if verdict.stuck:
                self.finish_reason = "stuck"
        elif end is not None:
            self._keep(max(end, self.final, self.inputs.params.min_frames))
            self.finish_reason = "aligned"
        elif len(self.codes) >= self.inputs.max_frames and not self.is_due:
            self.finish_reason = "length"
        return None if verdict is None else verdict.keep

    def _keep(self, frames: int) -> None:
        """Forget all frames but the first."""
        del self.codes[frames:], self.logprobs[frames:]
        # What is known of the text stays known.
        self.growths = [min(one, frames) for one in self.growths]
        if self.progress is not None:
            self.progress.rewind(frames)

    def copy_from(self, other: "ArSequence") -> None:
        """Take over codes, log-probabilities, trace and end of another; slots stay its own."""
        self.codes = other.codes.copy()
        self.logprobs = other.logprobs.copy()
        self.records = other.records.copy()
        self.finish_reason = other.finish_reason
        self.progress = other.progress and other.progress.copy()
