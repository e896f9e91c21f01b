"""Level 0 in masked passes: first the length, then all frames at once, the least certain again.

Autoregressive level 0, a frame a step, is `app.engine.ar.stage`.
"""

import torch
from torch import Tensor

from app.engine.ar.utterance import ArUtterance
from app.engine.errors import GenerationFailed
from app.engine.utterance import UtteranceSpec
from models.config import LENGTH_TOKENS
from models.prefix import Prefix
from models.valle import Valle
from samplers.knobs.features import is_guided
from samplers.masked import least_certain, sample_masked, schedule
from samplers.ops.guidance import guide

_MAX_DIGITS = 10


class MaskedUtterance(ArUtterance):
    """Level 0 of one utterance in masked passes; a job reads it as it does a `ArSequence`.

    There is one sequence, nothing to backtrack, and no state beside the codes. Its finish reason
    is `length` if the predicted length exceeds the limit.

    Source: MaskGIT, arXiv:2202.04200, as in e-c-k-e-r/vall-e.
    """

    @torch.inference_mode()
    def __init__(self, model: Valle, inputs: UtteranceSpec) -> None:
        self._model = model
        self.inputs = inputs
        self._prefix = inputs.prefix(model, 0)
        self._null = inputs.null_prefix(model, 0)
        params = inputs.params
        device = model.separator.device
        wanted = params.nar_len_frames
        if not wanted:
            predicted = max(predict_length(model, self._prefix), params.nar_len_min_frames)
            wanted = int(predicted * params.nar_len_stretch)
        self._length = max(1, min(wanted, inputs.max_frames))
        self._cut = wanted > inputs.max_frames
        self._codes = torch.full((self._length,), model.config.mask_token, device=device)
        self._scores = torch.ones(self._length, device=device)
        self._counts = schedule(self._length, params.nar_len_steps, remask=params.nar_len_remask)
        self._pass = 0
        self.trace = {} if inputs.trace else None  # masked passes record nothing

    def __len__(self) -> int:
        """Count the frames that the next pass leaves unmasked."""
        if self._pass == len(self._counts):
            return self._length
        return self._length - self._counts[self._pass]

    @property
    def final(self) -> int:
        """How many of the first frames cannot change any more: none before the last pass."""
        return 0 if self.finish_reason is None else self._length

    def ar_codes(self, start: int = 0, end: int | None = None) -> Tensor:
        """Return all frames; see `ArUtterance`."""
        return self._codes[start:end].cpu()

    @torch.inference_mode()
    def step(self) -> Tensor:
        """Make the next pass; return the codes ``[T]`` that it read, with the mask token."""
        masked = least_certain(self._scores, self._counts[self._pass])
        self._codes = self._codes.masked_fill(masked, self._model.config.mask_token)
        read = self._codes
        logits = self._logits()
        if not bool(logits.isfinite().any(-1).all()):
            self.fail(GenerationFailed("the model gave logits that are no numbers"))
            return read
        self._codes, self._scores = sample_masked(
            logits,
            self._codes,
            masked,
            self.inputs.params,
            seed=self.inputs.seed,
            utterance=self.inputs.utterance,
            place=self._pass,
        )
        self._pass += 1
        if self._pass == len(self._counts):
            self.finish_reason = "length" if self._cut else "stop"
        return read

    def _logits(self) -> Tensor:
        """Return ``[T, V]`` logits; guidance rescales over all frames, as the reference does."""
        model = self._model
        params = self.inputs.params
        own = model.masked_logits(self._prefix, self._codes)
        if not is_guided(params, "masked"):
            return own
        knobs = own.new_tensor([[params.nar_len_cfg_strength], [params.nar_len_cfg_rescale]])
        return guide(own[None], model.masked_logits(self._null, self._codes)[None], *knobs)[0]


@torch.inference_mode()
def predict_length(model: Valle, prefix: Prefix) -> int:
    """Return the length in frames that the model predicts: digits, greedily, until the stop."""
    digits = torch.zeros(1, dtype=torch.int64, device=model.separator.device)
    for _ in range(_MAX_DIGITS):
        digit = model.length_logits(prefix, digits).argmax()
        if int(digit) == LENGTH_TOKENS - 1:
            break
        digits = torch.cat([digits, digit[None]])
    return int("".join(map(str, digits.tolist())))
