"""A sampler that plays its step from a recording, as a CUDA graph does, while its rows stay.

A step of the chain is some fifty short kernels, which take a GPU less time than the host needs to
queue them. Most chains can be recorded: their shapes stay, and they ask the device nothing. Not
those with entropix, whose statistics come from outside, with a search, which looks at its beams on
the host, or with what reads an ever longer history: dry, n-grams, backtracking, penalties without
a window. They are drawn as ever, and so is any step with a trace.

A recording is of certain rows. When rows come or go it is dropped, and the next one is made once
they have stayed for a while, since making one costs as much as some steps.
"""

from collections.abc import Callable
from contextlib import ExitStack

import torch
from torch import Tensor

from samplers.ar.assembly import Assembly
from samplers.ar.sampler import ArSampler
from samplers.ar.step import Stepped
from samplers.ar.trace import Trace
from samplers.ops.entropix import AttentionStatistics

Play = Callable[[], None]
SETTLED = 8
"""Steps that the same rows must have taken before theirs is recorded."""


class GraphSampler(ArSampler):
    """Draws what `ArSampler` draws."""

    def __init__(
        self,
        record: Callable[[Play], Play],
        *,
        stop_token: int,
        vocab_size: int,
        device: torch.device,
    ) -> None:
        """Begin with no rows.

        Args:
            record: Returns what plays a function that works on tensors that stay where they are.
            stop_token: The id that ends an utterance.
            vocab_size: V, the stop included.
            device: Where the logits will be.
        """
        super().__init__([], [], stop_token=stop_token, vocab_size=vocab_size, device=device)
        self._record = record
        self._of: Assembly | None = None
        self._calls = 0
        self._play: Play | None = None
        self._logits = self._codes = torch.empty(0, device=device)

    @torch.inference_mode()
    def advance(
        self,
        logits: Tensor,
        trace: Trace | None = None,
        own: Tensor | None = None,
        attention: AttentionStatistics | None = None,
    ) -> Stepped:
        """Draw the next code of every row; see `ArSampler.advance`.

        Raises:
            ValueError: A row has entropix on, and there are no attention statistics.
        """
        chain, memory = self._built, self._held
        if chain is not self._of:
            self._of, self._calls, self._play = chain, 0, None
        if trace is not None or not chain.steady(memory):
            return super().advance(logits, trace, own, attention)
        self._calls += 1
        if self._calls <= SETTLED:
            return super().advance(logits, trace, own, attention)
        if self._play is None:
            self._play = self._recorded(logits)
        self._logits.copy_(logits)
        self._play()
        for history in memory.histories:
            history.count()
        return Stepped(self._codes.clone(), range(len(self)), memory.beam_scores.clone())

    def _recorded(self, logits: Tensor) -> Play:
        """Record the step of the rows that there are, for logits like these."""
        self._logits = torch.empty_like(logits)
        self._codes = torch.empty(len(self), dtype=torch.int64, device=logits.device)
        given, codes, draw, memory = self._logits, self._codes, super().advance, self._held

        def step() -> None:
            # Recording calls this once and runs nothing; playing runs it and calls nothing.
            with ExitStack() as uncounted:
                for history in memory.histories:
                    uncounted.enter_context(history.uncounted())
                codes.copy_(draw(given).codes)

        return self._record(step)
