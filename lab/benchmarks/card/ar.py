"""Exactness and speed of level 0 at the published size on a device.

12 layers of 1024, 16 heads, random weights in bfloat16; a prefix of 100 vectors and 750 codes
sampled at temperature 1 and never the stop, prefill included in the time. Ours eager and replayed
from CUDA graphs, with kernels of our own and without, against `generate` of `transformers` with the
same weights, eager and with its StaticCache. Rounds are interleaved; figures are medians, ratios
are taken round by round. Needs neither HTTP nor phonemes.
"""

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from time import perf_counter

import torch
from torch import Tensor

from app.engine.backend.loading import usable_kernels
from gpu.kernels import TORCH
from lab.benchmarks.card.decoder import Decoder, decoder
from lab.benchmarks.card.environment import synchronize
from lab.benchmarks.harness.report import TableRow, Target, target
from lab.benchmarks.model.published import published_config, random_model
from models.placement import prepare_for
from models.valle import Valle

PREFIX = 100
BASELINE = "transformers, eager"
STATIC = "transformers, static cache"
OURS: Mapping[str, bool | None] = {
    "ours, graphs": True, "ours, graphs of torch's kernels": False, "ours, eager": None,
}  # fmt: skip
"""Each variant's name, and whether the steps that it replays from CUDA graphs have kernels of our
own; None: it replays none. The first is timed at all batch sizes before any other."""

GOALS: Mapping[int, float] = {1: 3_000, 32: 35_000}
"""Targets in codes a second on an H100, by batch size."""
COMPARED = (1, 32)
"""Streams of which `transformers` is timed, too, after ours: it compiles anew for each number."""

Run = Callable[[Tensor, int], Tensor]


@dataclass(frozen=True)
class Scale:
    """Sizes of the benchmark.

    Attributes:
        layers: Of the model.
        width: Of the model.
        batches: Streams at once.
        frames: Codes a stream.
        exact: Greedy codes that must be those of a CPU.
        rounds: Of everything timed.
    """

    layers: int = 12
    width: int = 1024
    batches: tuple[int, ...] = (1, 8, 32, 128)
    frames: int = 750
    exact: int = 200
    rounds: int = 3


TINY = Scale(2, 64, (1, 3), frames=20, exact=20, rounds=1)


def float_model(scale: Scale) -> Valle:
    """Return a random float32 model on the CPU, which never ends.

    Its head has no bias, as in `transformers`, but of the stop, which is banned there.
    """
    model = random_model(published_config(layers=scale.layers, width=scale.width))
    bias = torch.nn.init.zeros_(model.heads[0].get_parameter("bias"))
    bias[model.config.stop_token] = -1e4
    return model


def random_prefixes(scale: Scale, count: int) -> Tensor:
    """Return ``[count, PREFIX, D]`` float32 from a fixed seed."""
    generator = torch.Generator().manual_seed(0)
    return torch.randn(count, PREFIX, scale.width, generator=generator) * 0.3


def same_greedy_codes(scale: Scale, device: torch.device) -> int:
    """Return how many leading greedy codes in float32 equal those of a CPU without graphs."""
    prefixes, found = random_prefixes(scale, 1), []
    for place, graphs in ((torch.device("cpu"), False), (device, True)):
        model = prepare_for(place, float_model(scale), torch.float32)
        own = decoder(model, 1, PREFIX + scale.exact, graphs=graphs)
        found.append(own.run(prefixes.to(place), scale.exact, greedy=True)[0])
    differs = (found[0] != found[1]).nonzero()
    return int(differs[0]) if len(differs) else scale.exact


def scale_of(*, tiny: bool) -> Scale:
    """Return the published size, or a small one to try the benchmark."""
    return TINY if tiny else Scale()


def exactness(device: torch.device, *, tiny: bool) -> tuple[list[TableRow], list[Target]]:
    """Return the number of greedy codes that equal those of a CPU, and its target."""
    scale = scale_of(tiny=tiny)
    same = same_greedy_codes(scale, device)
    row = {"what": "greedy codes in float32 as on a CPU", "same": same, "of": scale.exact}
    asked = Target("greedy codes as on a CPU", same, f"{scale.exact}", same == scale.exact)
    return [row], [asked]


def variants(
    scale: Scale, device: torch.device, streams: int, *, first: bool
) -> Iterator[tuple[str, Run]]:
    """Yield the name and the run function of our first variant, or of all others."""
    dtype = torch.bfloat16
    for name, fused in [*OURS.items()][:1] if first else [*OURS.items()][1:]:
        model = prepare_for(device, float_model(scale), dtype)
        model.transformer.kernels = usable_kernels(model.config, device) if fused else TORCH
        own = decoder(model, streams, PREFIX + scale.frames, graphs=fused is not None)

        def ours(prefixes: Tensor, frames: int, own: Decoder = own) -> Tensor:
            return own.run(prefixes, frames, greedy=False)

        yield name, ours
    if first or streams not in COMPARED or find_spec("transformers") is None:
        return
    from lab.benchmarks.harness.llama import as_llama, transformers_generate

    llama = as_llama(float_model(scale)).to(device, dtype)
    for name, static in ((BASELINE, False), (STATIC, True)):

        def theirs(prefixes: Tensor, frames: int, static: bool = static) -> Tensor:
            return transformers_generate(llama, prefixes, frames, greedy=False, static=static)[0]

        yield name, theirs


def measure_decoding(
    scale: Scale, device: torch.device, streams: int, *, first: bool
) -> list[TableRow]:
    """Time variants at a batch size; return one table row each, printed when it is known."""
    prefixes = random_prefixes(scale, streams).to(device, torch.bfloat16)
    rows: list[TableRow] = []
    for name, run in variants(scale, device, streams, first=first):
        frames = scale.frames if name in OURS else min(scale.frames, 250)
        # What is compiled, or set up at the first call, is not timed.
        run(prefixes, min(frames, 20))
        own: list[float] = []
        for _ in range(scale.rounds):
            synchronize(device)
            started_s = perf_counter()
            run(prefixes, frames)
            synchronize(device)
            own.append(perf_counter() - started_s)
        rows.append({
            "what": f"{name}, batch {streams}",
            "codes/s": streams * frames / statistics.median(own),
            "least": streams * frames / max(own),
            "most": streams * frames / min(own),
            "us a step": statistics.median(own) / frames * 1e6,
        })
        print(rows[-1], flush=True)
    return rows


def codes_a_second(device: torch.device, *, tiny: bool) -> tuple[list[TableRow], list[Target]]:
    """Return a row for each variant and batch size, and the targets."""
    scale = scale_of(tiny=tiny)
    rows = [
        row
        for first in (True, False)
        for size in scale.batches
        for row in measure_decoding(scale, device, size, first=first)
    ]
    return rows, targets(rows)


def targets(rows: Sequence[TableRow]) -> list[Target]:
    """Return the targets on an H100, met by our best variant at each batch size."""
    found = []
    for streams, goal in GOALS.items():
        ours = [
            row
            for row in rows
            if str(row["what"]).startswith("ours") and str(row["what"]).endswith(f"batch {streams}")
        ]
        if ours:
            best = max(float(row["codes/s"]) for row in ours)
            found.append(target(f"codes/s, batch {streams}", best, ">=", goal))
    return found
