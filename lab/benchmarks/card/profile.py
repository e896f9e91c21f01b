"""Profiles of one step and one chunk of audio: kernels, copies and synchronisations.

The step is that of level 0 at the published size, from CUDA graphs, with its sampler. The chunks
are of a model of the built-in voice's shape, its NAR levels and codec: operator by operator, and of
many streams in one graph, as in the service.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from lab.benchmarks.card.ar import PREFIX, float_model, random_prefixes, scale_of
from lab.benchmarks.card.decoder import Decoder, decoder
from lab.benchmarks.card.environment import synchronize
from lab.benchmarks.harness.report import TableRow, Target
from lab.benchmarks.model.published import random_model
from models.checkpoints.sources import SpeechModel
from models.placement import prepare_for

WEIGHTS = Path(__file__).parents[3] / "weights"

FRAMES = 40
STREAMS, CHUNK = 16, 15
POOL_BYTES = 1 << 30
LONGEST = 12
WAITS = ("cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaEventSynchronize")
LAUNCHES = ("cudaLaunchKernel", "cudaLaunchKernelExC", "cuLaunchKernel", "cuLaunchKernelEx")


def profiled(device: torch.device, run: Callable[[], object], count: int) -> list[TableRow]:
    """Profile a call of ``count`` equal parts; return rows of one part, longest kernels last."""
    activities = [ProfilerActivity.CPU]
    if device.type == "cuda":
        activities.append(ProfilerActivity.CUDA)
    run()
    synchronize(device)
    with profile(activities=activities) as found:
        run()
        synchronize(device)
    events = found.key_averages()
    rows: list[TableRow] = [
        _row("kernels launched one by one", _calls(events, LAUNCHES) / count),
        _row("graphs replayed", _calls(events, ("cudaGraphLaunch",)) / count),
        _row("waits of the host", _calls(events, WAITS) / count),
        _row("copies", _calls(events, ("cudaMemcpyAsync",)) / count),
        _row("operators dispatched", _dispatched(events) / count),
    ]
    on_device = device.type == "cuda"
    spent = sorted(events, key=lambda event: -_self_us(event, on_device=on_device))
    for event in spent[:LONGEST]:
        micros = _self_us(event, on_device=on_device) / count
        rows.append(_row(f"us: {event.key[:70]}", micros))
    return rows


def step(device: torch.device, *, tiny: bool) -> tuple[list[TableRow], list[Target]]:
    """Profile a step of one stream and of many."""
    scale = scale_of(tiny=tiny)
    rows: list[TableRow] = []
    for streams in (scale.batches[0], scale.batches[-1]):
        model = prepare_for(device, float_model(scale), torch.bfloat16)
        own = decoder(model, streams, PREFIX + FRAMES, graphs=True)
        prefixes = random_prefixes(scale, streams).to(device, torch.bfloat16)

        def run(own: Decoder = own, prefixes: torch.Tensor = prefixes) -> None:
            own.run(prefixes, FRAMES, greedy=False)

        rows += [
            {"part": f"step, batch {streams}"} | dict(row) for row in profiled(device, run, FRAMES)
        ]
    return rows, []


def chunk(device: torch.device, *, tiny: bool) -> tuple[list[TableRow], list[Target]]:
    """Profile chunks of a model of the built-in voice's shape, with random weights.

    Operator by operator that includes the prefill of its prefixes; of captured ones the work is
    that of a chunk of each of several streams, and all there is beside the prefill.
    """
    from app.engine.memory import make_pool
    from app.engine.nar.graph_runner import ChunkSizes, NarGraphRunner
    from app.engine.nar.stage import NarStage
    from app.engine.utterance import UtteranceSpec
    from gpu.graphs import GraphCapturer
    from models.config import BOS_ID, EOS_ID
    from models.stack.paged_cache import PagePool
    from samplers.knobs.params import SamplingParams

    speech = _speech(device)
    decoder = NarStage(speech)
    ids = [BOS_ID, *range(EOS_ID + 1, EOS_ID + 30), EOS_ID]
    inputs = UtteranceSpec(ids, SamplingParams(seed=0), 0, 0, max_frames=200)
    chunks = 4
    codes = torch.zeros(15 * (1 + 1 + 2 + 3), dtype=torch.int64)

    def run() -> None:
        utterance = decoder.begin(inputs)
        utterance.feed(codes, True)
        for _ in utterance:
            pass

    rows: list[TableRow] = [{"part": "chunk"} | dict(row) for row in profiled(device, run, chunks)]

    streams = 2 if tiny else STREAMS

    def capture(speech: SpeechModel, pool: PagePool) -> NarGraphRunner:
        sizes = ChunkSizes(rows=(streams,), columns=512)
        return NarGraphRunner(speech, pool, GraphCapturer(device, warm_ups=1).capture, sizes)

    pool = make_pool(speech.model, POOL_BYTES)
    captured = NarStage(speech, lambda: pool, capture)
    captured.warm_up()
    warming, measured = ([captured.begin(inputs) for _ in range(streams)] for _ in range(2))
    for stream in (*warming, *measured):
        stream.feed(codes[:CHUNK], ended=False)
    begun = [measured, warming]

    def run_together() -> None:
        if len(captured.make_together(begun.pop())) < streams:
            raise RuntimeError("not all chunks were made together")

    found = profiled(device, run_together, 1)
    rows += [{"part": f"{streams} chunks in one recording"} | dict(row) for row in found]
    return rows, []


def _speech(device: torch.device) -> SpeechModel:
    """Return a random model and codec of the built-in voice's shape; reading weights takes more."""
    from app.engine.backend.loading import place_on_gpu
    from models.checkpoints.builtin import read_config
    from models.codecs.spectral import SpectralCodec
    from models.config import ModelConfig, SpectralCodecConfig

    model = random_model(read_config(WEIGHTS / "lm.json", ModelConfig))
    codec = SpectralCodec(read_config(WEIGHTS / "codec.json", SpectralCodecConfig))
    if device.type == "cuda":
        place_on_gpu(model, device, fused=True)
    codec = codec.eval().requires_grad_(False).to(device)
    return SpeechModel("random", "", WEIGHTS, model, codec)


def _row(what: str, count: float) -> dict[str, Any]:
    return {"what": what, "a time": count}


def _calls(events: Sequence[Any], names: Sequence[str]) -> int:
    return sum(event.count for event in events if event.key in names)


def _dispatched(events: Sequence[Any]) -> int:
    return sum(event.count for event in events if event.key.startswith("aten::"))


def _self_us(event: Any, *, on_device: bool) -> float:
    return float(event.self_device_time_total if on_device else event.self_cpu_time_total)
