"""A sampler whose step is replayed from a recording, as a CUDA graph is, while its rows stay.

A step is some fifty short kernels, which take a GPU less time than the host needs to launch them.
Most steps can be recorded: their tensor shapes stay, and they read nothing back from the device.
Exceptions are entropix, whose statistics come from outside, beam search, which looks at its beams
on the host, and what reads an ever longer history: dry, n-grams, backtracking, penalties without a
window. These are launched as usual, and so is any step with a trace.

A recording holds for certain rows. When rows come or go it is dropped, and the next one is made
once they have stayed for a while, since making one costs as much as several steps.
"""

from collections.abc import Callable
from contextlib import ExitStack

import torch
from torch import Tensor

from samplers.ar.pipeline import Pipeline
from samplers.ar.sampler import ArSampler
from samplers.ar.step import StepResult
from samplers.ar.trace import Trace
from samplers.ops.entropix import AttentionStatistics

StepFunction = Callable[[], None]
SETTLED = 8
"""Steps that the same rows must have taken before theirs is recorded."""


class GraphSampler(ArSampler):
    """An `ArSampler` that draws the same codes with fewer kernel launches."""

    def __init__(
        self,
        record: Callable[[StepFunction], StepFunction],
        *,
        stop_token: int,
        vocab_size: int,
        device: torch.device,
    ) -> None:
        """Create a sampler without rows.

        Args:
            record: Records a function that reads and writes tensors at fixed addresses, and returns
                a function that replays it.
            stop_token: The id that ends an utterance.
            vocab_size: V, the stop included.
            device: Where the logits will be.
        """
        super().__init__(stop_token=stop_token, vocab_size=vocab_size, device=device)
        self._record = record
        self._recorded_for: Pipeline | None = None
        self._steps = 0
        self._replay: StepFunction | None = None
        self._logits = self._codes = torch.empty(0, device=device)

    @torch.inference_mode()
    def advance(
        self,
        logits: Tensor,
        trace: Trace | None = None,
        own: Tensor | None = None,
        attention: AttentionStatistics | None = None,
    ) -> StepResult:
        """Draw the next code of every row; see `ArSampler.advance`.

        Raises:
            ValueError: A row has entropix on, and there are no attention statistics.
        """
        pipeline, state = self._pipeline, self._state
        if pipeline is not self._recorded_for:
            self._recorded_for, self._steps, self._replay = pipeline, 0, None
        if trace is not None or not pipeline.steady(state):
            return super().advance(logits, trace, own, attention)
        self._steps += 1
        if self._steps <= SETTLED:
            return super().advance(logits, trace, own, attention)
        if self._replay is None:
            self._replay = self._recorded(logits)
        self._logits.copy_(logits)
        self._replay()
        for history in state.histories:
            history.count()
        return StepResult(self._codes.clone(), range(len(self)), state.beam_scores.clone())

    def _recorded(self, logits: Tensor) -> StepFunction:
        """Record the step of the present rows, for logits of this shape and dtype."""
        self._logits = torch.empty_like(logits)
        self._codes = torch.empty(len(self), dtype=torch.int64, device=logits.device)
        given, codes, draw, state = self._logits, self._codes, super().advance, self._state

        def step() -> None:
            # Recording calls this once and runs nothing; replaying runs it and calls nothing.
            with ExitStack() as uncounted:
                for history in state.histories:
                    uncounted.enter_context(history.uncounted())
                codes.copy_(draw(given).codes)

        return self._record(step)
