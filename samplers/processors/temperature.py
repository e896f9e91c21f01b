"""The step of the chain that divides by a temperature: one that is fixed, moves, or is nothing."""

import torch

from samplers.ops import temperature as temperatures
from samplers.processors.batch_params import BatchParams
from samplers.processors.scores import Scores, Step


def temperature_step(rows: BatchParams) -> Step | None:
    """Build the step for its rows; None if all have the temperature 1."""
    if not any(rows.any(feature) for feature in ("temperature", "dynatemp", "entropix")):
        return None
    if not rows.any("entropix") and all(rows.on("greedy", p) for p in rows.params):
        return _only_best(rows)
    greedy = rows.flags([p.temperature <= 0 for p in rows.params])
    fixed = rows.column([p.temperature if p.temperature > 0 else 1.0 for p in rows.params])
    moves = [p.dynatemp_mode if rows.on("dynatemp", p) else "fixed" for p in rows.params]
    by_best = rows.flags([mode == "sigmoid" for mode in moves])
    by_entropy = rows.flags([mode == "entropy" for mode in moves])
    low = rows.column([p.min_temperature for p in rows.params])
    slope = rows.column([p.dynatemp_slope for p in rows.params])
    center = rows.column([p.dynatemp_center for p in rows.params])
    exponent = rows.column([p.dynatemp_exponent for p in rows.params])

    def step(scores: Scores) -> None:
        logits, divisor = scores.logits, scores.moved("temperature", fixed)
        cold = greedy if scores.knobs is None else divisor <= 0
        if by_best is not None:
            moved = temperatures.dynamic_sigmoid(logits, low, fixed, slope, center)
            divisor = torch.where(by_best, moved, divisor)
        if by_entropy is not None:
            moved = temperatures.dynamic_entropy(logits, low, fixed, exponent)
            divisor = torch.where(by_entropy, moved, divisor)
        scaled = temperatures.scale(logits, divisor)
        if cold is not None:
            scaled = torch.where(cold, temperatures.only_best(logits), scaled)
        scores.replace(scaled)
        scores.divisor = divisor if cold is None else divisor.masked_fill(cold, 0.0)

    return step


def _only_best(rows: BatchParams) -> Step:
    cold = rows.column([0.0] * len(rows.params))

    def step(scores: Scores) -> None:
        scores.replace(temperatures.only_best(scores.logits))
        scores.divisor = cold

    return step
