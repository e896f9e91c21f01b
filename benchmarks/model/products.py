"""Our int8 matrix product compared with torch's, over all matrices of the stack.

    python -m benchmarks.model.products --rounds 60 --out products.json

Both multiply the same rows by the same matrices in turn, on one thread. All other matrices are used
between two uses of one, as in a step. Nothing is timed unless the products are equal.
"""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np
import torch
from torch import nn

from app.settings import BUILTIN_MODEL
from benchmarks.harness.report import conclude, machine
from models.checkpoints import load_lm
from models.int8.arrays import Int8s, Int32s
from models.int8.processors import processors
from models.int8.product import COLUMNS, multiply, pack

ROWS = (1, 2, 4, 8, 16, 32, 128)


def shapes(model: Path) -> list[tuple[int, int]]:
    """Return the input and output sizes of the linear layers of a model's stack."""
    return [
        (layer.in_features, layer.out_features)
        for layer in load_lm(model).transformer.modules()
        if isinstance(layer, nn.Linear)
    ]


def measure(of: list[tuple[int, int]], count: int, rounds: int) -> dict[str, Any]:
    """Time a pass of ``count`` rows through all matrices; return a table row.

    Raises:
        SystemExit: The products differ.
    """
    generator = np.random.default_rng(0)

    def integers(*shape: int) -> Int8s:
        return generator.integers(-127, 128, shape, np.int8)

    rows = {inputs: integers(count, inputs) for inputs, _ in of}
    matrices = [integers(*shape) for shape in of]
    tiles = [pack(matrix) for matrix in matrices]
    weights = [torch.from_numpy(matrix.T.copy()) for matrix in matrices]  # as a layer has them
    outs = [np.empty((count, len(packed) * COLUMNS), np.int32) for packed in tiles]

    def ours() -> list[Int32s]:
        for (inputs, _), packed, out in zip(of, tiles, outs, strict=True):
            multiply(rows[inputs], packed, out)
        return outs

    def theirs() -> list[Int32s]:
        return [
            torch._int_mm(torch.from_numpy(rows[inputs]), weight.t()).numpy()
            for (inputs, _), weight in zip(of, weights, strict=True)
        ]

    for (_, outputs), own, other in zip(of, ours(), theirs(), strict=True):
        if not np.array_equal(own[:, :outputs], other):
            raise SystemExit("the products differ: nothing is timed")
    pairs = [(_us(ours), _us(theirs)) for _ in range(rounds)]
    own_us, other_us = (median(pair[place] for pair in pairs) for place in (0, 1))
    ratio = median(other / own for own, other in pairs)
    return {"rows": count, "ours, us": own_us, "torch, us": other_us, "torch over ours": ratio}


def _us(run: Callable[[], object]) -> float:
    began_s = perf_counter()
    run()
    return 1e6 * (perf_counter() - began_s)


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--model", type=Path, default=BUILTIN_MODEL)
    parser.add_argument("--out", type=Path, default=None)
    args, started = parser.parse_args(), machine()
    torch.set_num_threads(1)
    of = shapes(args.model)
    table = [measure(of, count, args.rounds) for count in ROWS]
    best = processors()[0]
    print(f"{type(best).__name__}, {best.lanes} lanes")
    return conclude(table, [], args.out, started)


if __name__ == "__main__":
    sys.exit(main())
