"""What a GPU makes of it: level 0 at the published size, and the first sound of the built-in voice.

    benchmarks/gpu.sh                                  # on a machine with a card
    python -m benchmarks.model.gpu --device cpu --tiny       # whether the suite itself works

Level 0: 12 layers of 1024, 16 heads, random weights in bfloat16; a prefix of 100 vectors and 750
codes drawn at temperature 1 with the stop banned, one stream and 32, prefix included in the time.
Ours as it is, played from graphs, and played from graphs of fused kernels, against eager `generate`
of `transformers` with the same weights. Before any of it, 200 greedy codes in float32 must be those
that a CPU draws. Rounds are interleaved; figures are medians, ratios are taken round by round.

The first sound: one client after the other asks a real server for a sentence and waits for the byte
that holds the first sample over -50 dBFS.
"""

import argparse
import asyncio
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

import torch
from torch import Tensor
from tqdm import tqdm

from benchmarks.harness.listener import hear, listening
from benchmarks.harness.llama import as_llama, transformers_generate
from benchmarks.harness.report import Gate, Row, conclude, machine
from benchmarks.harness.served import served
from benchmarks.harness.texts import texts
from benchmarks.model.decoding import Decoding, Way
from benchmarks.model.published import published_config, random_model
from models.placement import prepare_for
from models.valle import Valle

PREFIX = 100
THEIRS = "transformers, eager"
WAYS: Mapping[str, Way] = {
    "ours, eager": Way(graphs=False),
    "ours, graphs": Way(graphs=True),
    "ours, fused graphs": Way(graphs=True, compiler="inductor"),
}
Run = Callable[[Tensor, int], Tensor]


@dataclass(frozen=True)
class Scale:
    """How much is done.

    Attributes:
        layers: Of the model.
        width: Of the model.
        batches: Streams at once.
        frames: Codes a stream.
        gate: Greedy codes that must be those of a CPU.
        rounds: Of everything timed.
        requests: To the server; one more warms it up.
        text: What each asks for; None: a sentence, another each time.
    """

    layers: int = 12
    width: int = 1024
    batches: tuple[int, ...] = (1, 32)
    frames: int = 750
    gate: int = 200
    rounds: int = 3
    requests: int = 20
    text: str | None = None


TINY = Scale(2, 64, (1, 3), frames=20, gate=20, rounds=1, requests=1, text="Hi.")


def settle(device: torch.device) -> None:
    """Wait until a device has done all that is queued."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def float_model(scale: Scale) -> Valle:
    """Return the model in float32 on the CPU; `transformers` has no bias in its head."""
    model = random_model(published_config(layers=scale.layers, width=scale.width))
    torch.nn.init.zeros_(model.heads[0].get_parameter("bias"))
    return model


def some_prefixes(scale: Scale, count: int) -> Tensor:
    """Return ``[count, PREFIX, D]``, the same every time."""
    generator = torch.Generator().manual_seed(0)
    return torch.randn(count, PREFIX, scale.width, generator=generator) * 0.3


def same_greedy_codes(scale: Scale, device: torch.device) -> int:
    """Return how many of the first greedy codes in float32 are those of a CPU that has no graph."""
    prefixes, found = some_prefixes(scale, 1), []
    for place, way in ((torch.device("cpu"), Way(graphs=False)), (device, Way(graphs=True))):
        model = prepare_for(place, float_model(scale), torch.float32)
        decoding = Decoding(model, 1, PREFIX + scale.gate, way)
        found.append(decoding.run(prefixes.to(place), scale.gate, greedy=True)[0])
    differs = (found[0] != found[1]).nonzero()
    return int(differs[0]) if len(differs) else scale.gate


def contestants(scale: Scale, device: torch.device, streams: int) -> Iterator[tuple[str, Run]]:
    """Yield every way of decoding so many streams, by name."""
    dtype = torch.bfloat16
    llama = as_llama(float_model(scale)).to(device, dtype)

    def theirs(prefixes: Tensor, frames: int) -> Tensor:
        return transformers_generate(llama, prefixes, frames, greedy=False)[0]

    yield THEIRS, theirs
    for name, way in WAYS.items():
        if way.compiler and device.type != "cuda":
            continue  # minutes of a C++ compiler
        # A model records one cache, so each has its own.
        model = prepare_for(device, float_model(scale), dtype)
        decoding = Decoding(model, streams, PREFIX + scale.frames, way)

        def ours(prefixes: Tensor, frames: int, decoding: Decoding = decoding) -> Tensor:
            return decoding.run(prefixes, frames, greedy=False)

        yield name, ours


def measure_decoding(scale: Scale, device: torch.device, streams: int) -> list[Row]:
    """Return a row a contestant."""
    prefixes = some_prefixes(scale, streams).to(device, torch.bfloat16)
    runs = dict(contestants(scale, device, streams))
    for run in runs.values():  # what is compiled, or set up at the first call, is not timed
        run(prefixes, min(scale.frames, 20))
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    with tqdm(total=scale.rounds * len(runs), desc=f"batch {streams}") as bar:
        for _ in range(scale.rounds):
            for name, run in runs.items():
                settle(device)
                started_s = perf_counter()
                run(prefixes, scale.frames)
                settle(device)
                seconds[name].append(perf_counter() - started_s)
                bar.update()
    rows: list[Row] = []
    for name, own in seconds.items():
        ratios = [other / mine for other, mine in zip(seconds[THEIRS], own, strict=True)]
        rows.append({
            "what": f"{name}, batch {streams}",
            "codes/s": streams * scale.frames / statistics.median(own),
            "least": streams * scale.frames / max(own),
            "most": streams * scale.frames / min(own),
            "us a step": statistics.median(own) / scale.frames * 1e6,
            "times transformers": statistics.median(ratios),
        })
    return rows


async def first_sounds_ms(url: str, scale: Scale) -> list[float]:
    """Return milliseconds to the first sound of one request after the other.

    Raises:
        SystemExit: One gave no speech.
    """
    said = [scale.text] * (scale.requests + 1) if scale.text else texts(scale.requests + 1)
    found = []
    async with listening(url) as client:
        for text in said:
            heard = await hear(client, text, seed=1)
            if not heard.ok or heard.first_audio_s is None:
                raise SystemExit(f"no speech came: {heard.status} {heard.broke or ''}")
            found.append(heard.first_audio_s * 1000)
    return found[1:]


def bandwidth_gb_s(device: torch.device, mib: int) -> float:
    """Return what the device reads and writes a second when it copies."""
    source = torch.zeros(mib << 18, device=device)
    target = torch.zeros_like(source)
    seconds = []
    for _ in range(10):
        settle(device)
        started_s = perf_counter()
        target.copy_(source)
        settle(device)
        seconds.append(perf_counter() - started_s)
    return 2 * source.nbytes / min(seconds) / 1e9


def gates(rows: Sequence[Row], first_ms: Sequence[float], same: int) -> list[Gate]:
    """Return what was asked of a GPU."""
    ours = [row for row in rows if str(row["what"]).startswith("ours")]
    alone, many = (
        [row for row in ours if str(row["what"]).endswith(f"batch {streams}")]
        for streams in Scale.batches
    )
    best = max(alone, key=lambda row: row["codes/s"])
    most = max(many, key=lambda row: row["codes/s"])
    first = statistics.median(first_ms)
    return [
        Gate("greedy codes as on a CPU", same, f"{Scale.gate}", same == Scale.gate),
        Gate("codes/s, batch 1", best["codes/s"], ">= 2000", best["codes/s"] >= 2000),
        Gate(
            "times transformers, batch 1",
            best["times transformers"],
            ">= 10",
            best["times transformers"] >= 10,
        ),
        Gate("codes/s, batch 32", most["codes/s"], ">= 35000", most["codes/s"] >= 35_000),
        Gate("ms to the first sound, median", first, "< 25", first < 25),
    ]


def measure(device: torch.device, scale: Scale, out: Path | None) -> int:
    """Run all of it, print one table and write JSON; return an exit status.

    Raises:
        SystemExit: The server gave no speech.
    """
    started = machine() | {"device": str(device), "torch": torch.__version__}
    if device.type == "cuda":
        started["gpu"] = torch.cuda.get_device_name(device)
    started["bandwidth_gb_s"] = bandwidth_gb_s(device, 1024 if device.type == "cuda" else 8)
    same = same_greedy_codes(scale, device)
    print(f"{same} of {scale.gate} greedy codes in float32 are those of a CPU")
    if same < scale.gate:
        return 1  # no time would mean anything
    rows = [row for size in scale.batches for row in measure_decoding(scale, device, size)]
    with served(device=device.type) as url:
        first_ms = asyncio.run(first_sounds_ms(url, scale))
    print(f"first sound: median {statistics.median(first_ms):.1f} ms of {len(first_ms)} requests")
    asked = gates(rows, first_ms, same) if scale == Scale() else []
    return conclude(rows, asked, out, started, {"same_greedy_codes": same, "first_ms": first_ms})


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--tiny", action="store_true", help="a small model, to try the suite")
    parser.add_argument("--out", type=Path, help="JSON file")
    args = parser.parse_args(arguments)
    return measure(torch.device(args.device), TINY if args.tiny else Scale(), args.out)


if __name__ == "__main__":
    raise SystemExit(main())
