"""The AR loop in float32 and int8, compared with no cache and with `transformers`.

    python -m lab.benchmarks.model.ar --rounds 5 --threads 1 --out ar.json

All variants do the same work with the same weights and threads: prefixes of 100 vectors, then 750
codes sampled at temperature 1 with the stop token banned, at batch 1 and 8. Nothing is timed unless
the float32 variants agree on 200 greedy codes of every stream and int8 gives a stream the same
codes alone and in a batch of eight. Rounds are interleaved; figures are medians over rounds, ratios
are taken round by round. Figures need an idle machine.
"""

import copy
import json
import platform
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from time import perf_counter

import torch
from torch import Tensor
from tqdm import tqdm

from app.settings import BUILTIN_MODEL
from lab.benchmarks.harness.llama import as_llama, transformers_generate
from lab.benchmarks.harness.mark_timer import MARKS, Marks, MarkTimer
from lab.benchmarks.harness.report import argument_parser, print_table
from models.checkpoints.builtin import load_lm
from models.int8.quantized import quantize_linears
from models.valle import Valle
from samplers.ar.sampler import ArSampler
from samplers.ar.state import RowInput, SlotTable
from samplers.knobs.params import SamplingParams

PREFIX = 100
GATE = 200
BATCHES = (1, 8)
STEPS_AT = ((250, 512), (250, 2048), (1000, 2048))  # cached positions, capacity

Variant = Callable[..., tuple[Tensor, Marks]]


def sampler_for(model: Valle, streams: int, frames: int, *, greedy: bool) -> ArSampler:
    """Return a sampler with the stop token banned."""
    stop = model.config.stop_token
    params = SamplingParams(temperature=0.0 if greedy else 1.0, ban_tokens=(stop,))
    sampler = ArSampler(SlotTable(streams, frames=frames, vocab_size=stop + 1), stop_token=stop)
    for seed in range(streams):
        sampler.join([seed], RowInput(params, seed, frames))
    return sampler


@torch.inference_mode()
def ours(
    model: Valle, prefixes: Tensor, frames: int, *, greedy: bool, capacity: int = 2048
) -> tuple[Tensor, Marks]:
    """Decode prefixes ``[B, S, D]`` with a KV cache: codes ``[B, frames]`` and their timing."""
    slots = range(len(prefixes))
    cache = model.new_cache(len(slots), capacity)
    sampler, timer = sampler_for(model, len(slots), frames, greedy=greedy), MarkTimer()
    codes = torch.empty(len(slots), frames, dtype=torch.int64)
    positions = torch.arange(PREFIX + frames)
    causal = positions[:PREFIX]
    hidden = torch.cat([
        model.transformer.extend(prefixes[slot], causal, cache, slot, causal)[0][-1:]
        for slot in slots
    ])
    for frame in range(frames):
        tokens = sampler.step(model.logits(hidden, 0))
        codes[:, frame] = tokens
        timer.tick(frame + 1)
        embeddings = model.embed_response(tokens[:, None], 0)
        at = positions[PREFIX + frame].expand(len(slots))
        hidden = model.transformer.step(embeddings, at, cache, slots)[0]
    return codes, timer.marks


@torch.inference_mode()
def uncached(model: Valle, prefixes: Tensor, frames: int, *, greedy: bool) -> tuple[Tensor, Marks]:
    """Decode with a whole pass for each code, as the published reference."""
    sampler, timer = sampler_for(model, len(prefixes), frames, greedy=greedy), MarkTimer()
    codes, x = [], prefixes
    for frame in range(frames):
        hidden = model.transformer(x, torch.arange(x.shape[1]).expand(len(x), -1))[:, -1]
        codes.append(sampler.step(model.logits(hidden, 0)))
        timer.tick(frame + 1)
        x = torch.cat([x, model.embed_response(codes[-1][:, None], 0)[:, None]], 1)
    return torch.stack(codes, 1), timer.marks


@torch.inference_mode()
def step_us(model: Valle, *, length: int, capacity: int, steps: int = 50, passes: int = 9) -> float:
    """Return microseconds a step of stack and head from ``length`` cached positions on.

    The median of several passes over the same steps, robust against other processes.
    """
    cache = model.new_cache(1, capacity)
    x = torch.randn(length, model.config.width) * 0.3
    positions = torch.arange(length + steps)
    model.transformer.extend(x, positions[:length], cache, 0, positions[:length])
    took = []
    for _ in range(passes):
        cache.rewind(0, length)
        began = perf_counter()
        for step in range(steps):
            hidden = model.transformer.step(x[:1], positions[length + step, None], cache, [0])[0]
            model.logits(hidden, 0)
        took.append((perf_counter() - began) / steps * 1e6)
    return statistics.median(took)


def spread(values: Sequence[float]) -> dict[str, float]:
    """Return median, minimum and maximum."""
    return {"median": statistics.median(values), "min": min(values), "max": max(values)}


def variants(model: Valle, quantized: Valle) -> dict[str, Variant]:
    """Return every variant by name; all but int8 have the same weights."""
    llama = as_llama(model)
    return {
        "float32": lambda x, frames, **k: ours(model, x, frames, **k),
        "int8": lambda x, frames, **k: ours(quantized, x, frames, **k),
        "dynamic": lambda x, frames, **k: transformers_generate(llama, x, frames, **k),
        "static": lambda x, frames, **k: transformers_generate(llama, x, frames, static=True, **k),
        "uncached": lambda x, frames, **k: uncached(model, x, frames, **k),
    }


def check(runs: dict[str, Variant], prefixes: Tensor) -> None:
    """Compare the greedy codes of all variants; raises SystemExit if they differ."""
    greedy = {name: run(prefixes, GATE, greedy=True)[0] for name, run in runs.items()}
    for name, codes in greedy.items():
        if name != "int8" and not torch.equal(codes, greedy["float32"]):
            raise SystemExit(f"{name} and float32 differ in the greedy codes: nothing is timed")
    alone = runs["int8"](prefixes[:1], GATE, greedy=True)[0]
    if not torch.equal(alone, greedy["int8"][:1]):
        raise SystemExit("int8 differs alone and among others: nothing is timed")


def measure(model: Valle, rounds: int, *, with_uncached: bool) -> dict[str, object]:
    """Check the codes, run the rounds and return all figures."""
    torch.manual_seed(0)
    torch.nn.init.zeros_(model.heads[0].get_parameter("bias"))  # Llama's head has none
    quantized = copy.deepcopy(model)
    quantize_linears(quantized)
    prefixes = torch.randn(max(BATCHES), PREFIX, model.config.width) * 0.3
    runs = variants(model, quantized)
    check(runs, prefixes)
    if not with_uncached:
        del runs["uncached"]
    seconds: dict[tuple[str, int], list[Marks]] = {
        (name, batch): [] for batch in BATCHES for name in runs if name != "uncached" or batch == 1
    }
    stacks = {"float32": model, "int8": quantized}
    steps: dict[str, list[float]] = {}
    with tqdm(total=rounds * len(seconds)) as bar:
        for _ in range(rounds):
            for (name, batch), marks in seconds.items():
                marks.append(runs[name](prefixes[:batch], max(MARKS), greedy=False)[1])
                bar.update()
            for name, stack in stacks.items():
                for length, capacity in STEPS_AT:
                    us = step_us(stack, length=length, capacity=capacity)
                    steps.setdefault(f"{name}, T = {length} of {capacity}", []).append(us)
    figures: dict[str, object] = {"machine": platform.processor() or platform.machine()}
    figures |= {"torch": torch.__version__, "threads": torch.get_num_threads(), "rounds": rounds}
    for (name, batch), marks in seconds.items():
        figures[f"{name}, batch {batch}: codes/s"] = {
            mark: spread([(mark - 1) * batch / of[mark] for of in marks]) for mark in MARKS
        }
    for (other, batch), slower in seconds.items():
        for name in stacks:
            if other != name and (name, other) != ("float32", "int8"):
                faster = seconds[name, batch]
                figures[f"{name} is x times {other}, batch {batch}"] = {
                    mark: spread([b[mark] / a[mark] for a, b in zip(faster, slower, strict=True)])
                    for mark in MARKS
                }
    figures["us_per_step"] = {name: spread(values) for name, values in steps.items()}
    return figures


def main() -> None:
    """Run the command line."""
    parser = argument_parser(__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--model", type=Path, default=BUILTIN_MODEL)
    parser.add_argument("--uncached", action="store_true", help="time the slow truth as well")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    figures = measure(load_lm(args.model), args.rounds, with_uncached=args.uncached)
    print(f"\nmedian (min to max) of {args.rounds} rounds, {args.threads} thread(s)\n")
    print_table([
        {"figure": name}
        | {
            f"{mark} codes": f"{v['median']:.1f} ({v['min']:.1f} to {v['max']:.1f})"
            for mark, v in by_mark.items()
        }
        for name, by_mark in figures.items()
        if isinstance(by_mark, dict) and set(by_mark) == set(MARKS)
    ])
    print(f"\nus a step: {json.dumps(figures['us_per_step'], indent=1)}")
    if args.out:
        args.out.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
