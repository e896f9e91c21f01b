"""What each kernel of a model is tried with where it is to run, against its reference there."""

from collections.abc import Iterator
from typing import Final

import torch

from gpu.kernels import Arguments, RandomInputs, Trial
from models.config import ModelConfig
from models.cuda.kernels.operators import KERNELS
from models.cuda.kernels.reference import floats, halves, in_8_bits
from models.cuda.kernels.sharing import PAGE, PROGRAMS

# Products of few rows are computed otherwise than those of many
_ROWS: Final = 3
_MANY: Final = 6
_SHARES: Final = (1, 2, 4, 8, 16)  # programs that share positions out, by batch and length


def trials(config: ModelConfig, device: torch.device, dtype: torch.dtype) -> list[Trial]:
    """Return each kernel with arguments of a model's sizes, in the order of `KERNELS`."""
    random = RandomInputs(device, dtype)
    heads = config.heads
    kv_heads = config.kv_heads
    head_dim = config.head_dim

    def norm() -> Iterator[Arguments]:
        x = random.normal(_ROWS, config.width)
        x[0] = 0.0
        x[1, 0] = torch.nan
        yield x, random.normal(config.width), config.norm_eps

    def project() -> Iterator[Arguments]:
        for rows, kind in ((1, ""), (_ROWS, config.activation), (_MANY, config.activation)):
            x = random.normal(rows, config.width)
            outputs = config.ffn if kind else 3 * config.width
            x[1:2] = 0.0
            weight = random.normal(halves(kind) * outputs, config.width) * config.width**-0.5
            bias = [random.normal(len(weight))] * config.block.bias
            yield x, weight, random.normal(config.width), config.norm_eps, kind, *bias

    def add_product() -> Iterator[Arguments]:
        for rows in (1, _ROWS, _MANY):
            weight = random.normal(config.width, config.ffn) * config.ffn**-0.5
            bias = [random.normal(config.width)] * config.block.bias
            yield random.normal(rows, config.width), random.normal(rows, config.ffn), weight, *bias

    def store() -> Iterator[Arguments]:
        angles = random.normal(_ROWS, 1, head_dim // 2, dtype=torch.float32)
        qkv = random.normal(_ROWS, heads + 2 * kv_heads, head_dim)
        places = random.each_once(PAGE)[:_ROWS]
        qkv[0, -1, 0] = torch.inf
        qkv[1, heads, 1] = torch.nan
        rotations = torch.polar(torch.ones_like(angles), angles)
        pool = random.normal(2, PAGE, kv_heads, head_dim)
        for held in (pool, in_8_bits(pool)):
            yield qkv, rotations, *held, places

    def attend() -> Iterator[Arguments]:
        group = heads // kv_heads
        steps = [(max(1, PROGRAMS // kv_heads // most), 1, 2 * most) for most in _SHARES]
        # A step whose rows hold one position each, and chunks of as many rows as a program takes.
        for sequences, count, held in [*steps, (_ROWS, 1, 1), (_ROWS, -(-PAGE // group), 5)]:
            seen = 1 + random.whole(held * PAGE if held > 1 else 1, sequences, count)
            edges = torch.tensor([held * PAGE, PAGE, PAGE + 1, 1])[: seen.numel() * (held > 1)]
            seen.view(-1)[: len(edges)] = edges.to(device)
            pool = random.normal(2, sequences * held * PAGE, kv_heads, head_dim)
            queries = random.normal(sequences * count, heads, head_dim)
            queries[-1, 0, 0] = torch.nan
            for rows in (pool, in_8_bits(pool)):
                yield queries, *rows, seen, random.each_once(sequences, held)

    inputs = (norm, project, add_product, store, attend)
    return [Trial(kernel, make, floats) for kernel, make in zip(KERNELS, inputs, strict=True)]
