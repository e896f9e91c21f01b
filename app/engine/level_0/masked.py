"""Level 0 in masked passes: the length first, then every frame at once, the least certain again.

The other way to level 0 is `app.engine.level_0.runner`, a frame a step.
"""

import torch
from torch import Tensor

from app.engine.errors import GenerationFailed
from app.engine.job import Backtrack, FinishReason, RankedTake, TraceColumns
from app.engine.utterance import UtteranceInput
from models.config import LENGTH_TOKENS
from models.prefix import Prefix
from models.valle import Valle
from samplers.masked import least_certain, sample_masked, schedule
from samplers.ops.guidance import guide

_MAX_DIGITS = 10


class MaskedUtterance:
    """Level 0 of one utterance; reads like an `app.engine.level_0.utterance.ArUtterance`.

    Source: MaskGIT, arXiv:2202.04200, as in e-c-k-e-r/vall-e.

    Attributes:
        inputs: What is spoken.
        finish_reason: `length` if the model told a longer one than is allowed; None while passes
            are left.
        error: What broke, if that was `error`.
        backtracks: None: masked passes take nothing back, they draw it again.
        ranked: None: there is one way.
    """

    error: GenerationFailed | None = None
    backtracks: tuple[Backtrack, ...] = ()
    ranked: tuple[RankedTake, ...] = ()

    @torch.inference_mode()
    def __init__(self, model: Valle, inputs: UtteranceInput) -> None:
        """Settle the length.

        Args:
            model: One with masked level 0, on the device to use.
            inputs: What to speak.
        """
        self._model, self.inputs = model, inputs
        self._prefix, self._null = inputs.prefix(model, 0), inputs.null_prefix(model, 0)
        params, device = inputs.params, model.separator.device
        wanted = params.nar_len_frames
        if not wanted:
            told = max(predict_length(model, self._prefix), params.nar_len_min_frames)
            wanted = int(told * params.nar_len_stretch)
        self._length = max(1, min(wanted, inputs.max_frames))
        self._cut = wanted > inputs.max_frames
        self._codes = torch.full((self._length,), model.config.mask_token, device=device)
        self._scores = torch.ones(self._length, device=device)
        self._counts = schedule(self._length, params.nar_len_steps, remask=params.nar_len_remask)
        self._place = 0
        self.finish_reason: FinishReason | None = None

    def __len__(self) -> int:
        """How many frames are settled."""
        if self._place == len(self._counts):
            return self._length
        return self._length - self._counts[self._place]

    @property
    def final(self) -> int:
        """How many of the first frames will not be drawn again: none before the last pass."""
        return 0 if self.finish_reason is None else self._length

    @property
    def trace(self) -> TraceColumns | None:
        """Nothing, if the piece asks for a trace: masked passes have no tokens."""
        return {} if self.inputs.trace else None

    def codes(self, start: int = 0, end: int | None = None) -> Tensor:
        """Return ``[n]`` int64 of all frames, or of some of them."""
        return self._codes[start:end]

    @torch.inference_mode()
    def step(self) -> Tensor:
        """Make the next pass and return the codes ``[T]`` that it read, the mask among them."""
        masked = least_certain(self._scores, self._counts[self._place])
        self._codes = self._codes.masked_fill(masked, self._model.config.mask_token)
        read, logits = self._codes, self._logits()
        if not bool(logits.isfinite().any(-1).all()):
            self.error = GenerationFailed("the model gave logits that are no numbers")
            self.finish_reason = "error"
            return read
        self._codes, self._scores = sample_masked(
            logits,
            self._codes,
            masked,
            self.inputs.params,
            seed=self.inputs.seed,
            utterance=self.inputs.utterance,
            place=self._place,
        )
        self._place += 1
        if self._place == len(self._counts):
            self.finish_reason = "length" if self._cut else "stop"
        return read

    def _logits(self) -> Tensor:
        """Return ``[T, V]``; the spread is that of all frames together, as in the reference."""
        model, params = self._model, self.inputs.params
        own = model.masked_logits(self._prefix, self._codes)
        if params.nar_len_cfg_strength <= 1:
            return own
        knobs = own.new_tensor([[params.nar_len_cfg_strength], [params.nar_len_cfg_rescale]])
        return guide(own[None], model.masked_logits(self._null, self._codes)[None], *knobs)[0]


@torch.inference_mode()
def predict_length(model: Valle, prefix: Prefix) -> int:
    """Return how many frames the model says the utterance has: digits, greedily, until the stop."""
    digits = torch.zeros(1, dtype=torch.int64, device=model.separator.device)
    for _ in range(_MAX_DIGITS):
        digit = model.length_logits(prefix, digits).argmax()
        if int(digit) == LENGTH_TOKENS - 1:
            break
        digits = torch.cat([digits, digit[None]])
    return int("".join(map(str, digits.tolist())))
