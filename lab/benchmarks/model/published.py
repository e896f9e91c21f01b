"""CPU speed and memory of a checkpoint of the published size, with random weights.

    python -m lab.benchmarks.model.published --threads 1 2 --out published.json
    python -m lab.benchmarks.model.published --layout vall-e-x --weights int8

The sizes are those of `ar+nar-len-llama-8`: 12 layers of 1024, 16 heads, 229 M parameters; or of
VALL-E X, with two such stacks, which is written to a file as it is published and loaded from it.
Speed does not depend on the weights. For each number of threads, medians over rounds: AR codes a
second with 300 and 500 cached positions, prefill of the prefix, seconds of NAR passes a second of
audio, and one guided masked pass of a model that has them. Takes three minutes. The figures of the
reference of the former, which has no cache, were measured once, on one thread of such a machine
while others used it.
"""

import json
import platform
import resource
import statistics
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING

import torch

from lab.benchmarks.harness.report import argument_parser
from models.config import ModelConfig
from models.valle import Valle
from samplers.ar.sampler import ArSampler
from samplers.ar.state import RowInput, SlotTable
from samplers.knobs.params import SamplingParams

if TYPE_CHECKING:
    from models.checkpoints.vallex.layout import VallexLayout

FRAME_RATE_HZ = 75
PHONEMES = 40  # ids of a sentence of some 3 s
PROMPT_FRAMES = 225
REFERENCE_CODES_A_SECOND = {300: 0.69, 500: 0.40}
"""By number of positions before the code; one thread, float32, random weights."""
MARKS = tuple(REFERENCE_CODES_A_SECOND)

Figures = dict[str, dict[str, float]]


def published_config(*, layers: int, width: int) -> ModelConfig:
    """Return the configuration of layout `ar+nar-len`, or of a smaller model for tests."""
    return ModelConfig(
        name="published size",
        width=width,
        layers=layers,
        heads=width // 64,
        kv_heads=width // 64,
        ffn=4 * width,
        phonemes=tuple(f"<{number}>" for number in range(3, 256)),
        segments=("phn", "level", "prom", "resp"),
        nar_mask="full",
        prompt_sums="exclusive",
        response_sums="exclusive",
        masked_level_0=True,
        has_null_condition=True,
    )


def random_model(config: ModelConfig) -> Valle:
    """Return a random model, ready for inference as from `load_public`."""
    torch.manual_seed(0)
    model = Valle(config)
    model.lay_out_for_steps()
    return model.eval().requires_grad_(False)


def vallex_sizes(*, layers: int, width: int) -> "VallexLayout":
    """Return the sizes of VALL-E X, or of a smaller model for tests."""
    # Not above: others import this module where torch is all that is installed.
    from models.checkpoints.vallex.layout import StackLayout, VallexLayout

    stack = StackLayout(width, layers, 4 * width)
    return VallexLayout(stack, stack, texts=2048, languages=3, start_token=True)


def random_vallex(*, layers: int, width: int) -> tuple[Valle, float]:
    """Return a random VALL-E X, and the seconds of its loading from a file."""
    from safetensors.torch import save_file

    from models.checkpoints.vallex.load import load_vallex

    layout = vallex_sizes(layers=layers, width=width)
    torch.manual_seed(0)
    tensors = {name: torch.randn(shape) / width**0.5 for name, shape in layout.shapes().items()}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "model.safetensors"
        save_file(tensors, file)
        del tensors
        started_s = perf_counter()
        model = load_vallex(file)
        return model, perf_counter() - started_s


def median_s(run: Callable[[], object], rounds: int) -> float:
    """Return the median seconds of a call, after an untimed one."""
    run()
    seconds = []
    for _ in range(rounds):
        started_s = perf_counter()
        run()
        seconds.append(perf_counter() - started_s)
    return statistics.median(seconds)


@torch.inference_mode()
def codes_a_second(model: Valle, cached: int, codes: int, rounds: int) -> float:
    """Return the AR's codes a second from a number of cached positions on."""
    config = model.config
    cache = model.new_cache(1, cached + codes)
    # the stop token is banned, so that every round samples as many codes
    params = SamplingParams(ban_tokens=(config.stop_token,))
    hidden = torch.randn(1, config.width)

    def run() -> None:
        cache.rewind(0, 0)
        cache.advance(0, cached)
        sampler = ArSampler(
            SlotTable(1, frames=codes, vocab_size=config.codes + 1), stop_token=config.stop_token
        )
        sampler.join([0], RowInput(params, 0, codes))
        last = hidden
        for frame in range(codes):
            token = sampler.step(model.logits(last, 0))
            embedding = model.embed_response(token[:, None], 0)
            last = model.transformer.step(embedding, torch.tensor([frame]), cache, [0])[0]

    return codes / median_s(run, rounds)


@torch.inference_mode()
def passes(model: Valle, frames: int, rounds: int) -> dict[str, float]:
    """Return the seconds of prefill, of all NAR levels, and of one masked pass."""
    config = model.config
    ids = [1, *range(4, 2 + PHONEMES), 2]
    prompt = torch.randint(config.codes, (PROMPT_FRAMES, config.levels))
    codes = torch.randint(config.codes, (frames, config.levels))
    prefix = model.prefix(ids, 0, prompt=prompt)
    null = model.null_prefix(0) if config.masked_level_0 else None
    cache = model.new_cache(1, len(prefix))

    def read() -> None:
        cache.rewind(0, 0)
        model.read(prefix, cache, 0)

    def nar() -> None:
        for level in range(1, config.levels):
            model.nar_logits(model.prefix(ids, level, prompt=prompt), codes, level)

    def masked() -> None:
        for one in (prefix, null):
            assert one is not None
            model.masked_logits(one, codes[:, 0])

    figures = {
        "prefix_s": median_s(read, rounds),
        "nar_s_a_second_of_audio": median_s(nar, rounds) * FRAME_RATE_HZ / frames,
    }
    if config.masked_level_0:
        figures["guided_masked_pass_s"] = median_s(masked, rounds)
    return figures


def measure(model: Valle, threads: Sequence[int], rounds: int, frames: int) -> Figures:
    """Return the speeds by number of threads, and the memory."""
    from tqdm import tqdm

    config = model.config
    figures: Figures = {}
    for count in tqdm(threads):
        torch.set_num_threads(count)
        speeds = {
            f"codes_a_second_at_{mark}": codes_a_second(model, mark, 40, rounds) for mark in MARKS
        }
        figures[f"{count} threads"] = speeds | passes(model, frames, rounds)
    floats = sum(one.numel() for one in model.parameters())  # those that levels share count once
    a_position = 2 * 4 * config.layers * config.kv_heads * config.head_dim
    figures["memory"] = {
        "float32_millions": floats / 1e6,
        "cache_mib_a_stream_at_500": 500 * a_position / 2**20,
        "peak_rss_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10,
    }
    return figures


def main() -> None:
    """Run the command line."""
    parser = argument_parser(__doc__)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--frames", type=int, default=225, help="length of the utterance")
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--layout", choices=("ar+nar-len", "vall-e-x"), default="ar+nar-len")
    parser.add_argument("--weights", choices=("float32", "int8"), default="float32")
    args = parser.parse_args()
    start = {}
    beside = {}
    if args.layout == "vall-e-x":
        model, load_s = random_vallex(layers=args.layers, width=args.width)
        start["load_s"] = load_s
    else:
        model = random_model(published_config(layers=args.layers, width=args.width))
        beside = {
            f"codes_a_second_at_{mark}": f"  (reference {speed:.2f}, one thread)"
            for mark, speed in REFERENCE_CODES_A_SECOND.items()
        }
    if args.weights == "int8":
        from models.int8.quantized import quantize_linears

        started_s = perf_counter()
        quantize_linears(model)
        start["quantise_s"] = perf_counter() - started_s
    figures = measure(model, args.threads, args.rounds, args.frames)
    if start:
        figures["start"] = start
    kind = platform.processor() or platform.machine()
    print(f"torch {torch.__version__}, {kind}, {args.layout}, {args.weights}")
    for group, values in figures.items():
        print(group)
        for name, value in values.items():
            print(f"  {name:<28} {value:10.3f}{beside.get(name, '')}")
    if args.out:
        args.out.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
