"""The processor that divides by the temperature: fixed, dynamic, or greedy."""

import torch

from samplers.knobs.features import is_on
from samplers.ops import temperature as temperatures
from samplers.processors.processor import BatchParams, LogitsProcessor, Scores


class Temperature(LogitsProcessor):
    """Divides the scores by each row's temperature, and leaves a greedy row its best code alone."""

    features = ("temperature", "min_temperature", "unified_conf", "unified_quad", "entropix")

    def __init__(self, batch: BatchParams) -> None:
        params = batch.params
        greedy = [p.temperature <= 0 for p in params]
        self._all_greedy = all(greedy) and not batch.any("entropix")
        self._zero = batch.column([0.0] * len(params))
        self._greedy = batch.flags(greedy)
        self._fixed = batch.column([p.temperature if p.temperature > 0 else 1.0 for p in params])
        modes = [p.dynatemp_mode if is_on("min_temperature", p) else "fixed" for p in params]
        self._by_best = batch.flags([mode == "sigmoid" for mode in modes])
        self._by_entropy = batch.flags([mode == "entropy" for mode in modes])
        self._low = batch.column([p.min_temperature for p in params])
        self._slope = batch.column([p.dynatemp_slope for p in params])
        self._center = batch.column([p.dynatemp_center for p in params])
        self._exponent = batch.column([p.dynatemp_exponent for p in params])
        unified = ("unified_conf", "unified_quad")
        self._unified = [batch.knob(n, 0.0) for n in unified] if batch.any(*unified) else None

    def __call__(self, scores: Scores) -> None:
        """Divide the scores, and note the divisor."""
        logits = scores.logits
        if self._all_greedy:
            scores.replace(temperatures.only_best(logits))
            scores.divisor = self._zero
            return
        divisor = scores.knob("temperature", self._fixed)
        greedy = self._greedy if scores.adjusted is None else divisor <= 0
        if self._by_best is not None:
            moved = temperatures.dynamic_sigmoid(
                logits, self._low, self._fixed, self._slope, self._center
            )
            divisor = torch.where(self._by_best, moved, divisor)
        if self._by_entropy is not None:
            moved = temperatures.dynamic_entropy(logits, self._low, self._fixed, self._exponent)
            divisor = torch.where(self._by_entropy, moved, divisor)
        if self._unified is not None:
            logits = temperatures.unified(logits, *self._unified)
        scaled = temperatures.scale(logits, divisor)
        if greedy is not None:
            scaled = torch.where(greedy, temperatures.only_best(logits), scaled)
        scores.replace(scaled)
        scores.divisor = divisor if greedy is None else divisor.masked_fill(greedy, 0.0)
