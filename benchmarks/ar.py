"""The AR loop against the same model without a cache, and against `transformers`' generate.

    python -m benchmarks.ar --rounds 5 --threads 1 --out ar.json

All three have the same weights in fp32, the same number of threads and the same work: a prefix of
100 vectors, then 1,000 codes drawn at temperature 1 with the stop banned. Before any timing, all
three must agree on 200 greedy codes. Rounds are interleaved; figures are medians over rounds,
ratios are taken round by round.
"""

import argparse
import json
import platform
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
from torch import Tensor
from tqdm import tqdm
from transformers import LlamaConfig, LlamaForCausalLM, LogitsProcessor, LogitsProcessorList

from app.settings import BUILTIN_MODEL
from models.cache import KVCache
from models.checkpoints import load_lm
from models.valle import Valle
from samplers.chain import ArSampler
from samplers.params import SamplingParams

PREFIX = 100
MARKS = (250, 500, 700, 1000)
GATE = 200
CAPACITIES = (512, 2048)

Marks = dict[int, float]
"""Seconds from the first code to each number of codes."""


class Clock:
    """Notes the time when a loop reaches a mark."""

    def __init__(self) -> None:
        self.marks: Marks = {}
        self._started_s = 0.0

    def tick(self, drawn: int) -> None:
        """Note that ``drawn`` codes exist."""
        if drawn == 1:
            self._started_s = perf_counter()
        elif drawn in MARKS:
            self.marks[drawn] = perf_counter() - self._started_s


def sampler_for(model: Valle, frames: int, *, greedy: bool) -> ArSampler:
    """Return a sampler that never stops."""
    stop = model.config.stop_token
    params = SamplingParams(temperature=0.0 if greedy else 1.0, ban_tokens=(stop,))
    return ArSampler([params], [0], stop_token=stop, vocab_size=stop + 1, max_frames=frames)


@torch.inference_mode()
def ours(
    model: Valle, prefix: Tensor, frames: int, *, greedy: bool, capacity: int = 2048
) -> tuple[list[int], Marks]:
    """Decode with the cache: one prefill, then steps."""
    cache = KVCache(model.config, slots=1, max_length=capacity)
    sampler, clock, codes = sampler_for(model, frames, greedy=greedy), Clock(), []
    positions = torch.arange(PREFIX + frames)
    causal = positions[:PREFIX]
    hidden = model.transformer.extend(prefix, causal, cache, 0, causal)[-1:]
    for frame in range(frames):
        token = sampler.step(model.logits(hidden, 0))
        codes.append(int(token))
        clock.tick(frame + 1)
        embedding = model.embed_response(token[:, None], 0)
        hidden = model.transformer.step(embedding, positions[PREFIX + frame, None], cache, [0])
    return codes, clock.marks


@torch.inference_mode()
def uncached(model: Valle, prefix: Tensor, frames: int, *, greedy: bool) -> tuple[list[int], Marks]:
    """Decode by a whole pass a code, as the published reference does."""
    sampler, clock, codes = sampler_for(model, frames, greedy=greedy), Clock(), []
    x = prefix
    for frame in range(frames):
        hidden = model.transformer(x[None], torch.arange(len(x))[None])[0, -1:]
        token = sampler.step(model.logits(hidden, 0))
        codes.append(int(token))
        clock.tick(frame + 1)
        x = torch.cat([x, model.embed_response(token[:, None], 0)])
    return codes, clock.marks


class _Ticking(LogitsProcessor):
    """Bans the stop and notes the time, at every step of generate."""

    def __init__(self, stop: int) -> None:
        self.clock, self.count, self.stop = Clock(), 0, stop

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:  # noqa: ARG002
        self.count += 1
        self.clock.tick(self.count)
        scores[:, self.stop] = -torch.inf
        return scores


@torch.inference_mode()
def transformers_generate(
    llama: Any, prefix: Tensor, frames: int, *, greedy: bool
) -> tuple[list[int], Marks]:
    """Decode by `generate` with its DynamicCache."""
    ticking = _Ticking(llama.config.vocab_size - 1)
    ids = llama.generate(
        inputs_embeds=prefix[None],
        attention_mask=torch.ones(1, len(prefix), dtype=torch.int64),
        do_sample=not greedy,
        top_k=0,
        top_p=1.0,
        temperature=1.0,
        min_new_tokens=frames,
        max_new_tokens=frames,
        use_cache=True,
        pad_token_id=0,
        logits_processor=LogitsProcessorList([ticking]),
    )
    return ids[0].tolist(), ticking.clock.marks


def as_llama(model: Valle) -> Any:
    """Return a `LlamaForCausalLM` of the same shape and weights; the head's bias must be zero."""
    config = model.config
    llama: Any = LlamaForCausalLM(
        LlamaConfig(
            hidden_size=config.width,
            intermediate_size=config.ffn,
            num_hidden_layers=config.layers,
            num_attention_heads=config.heads,
            num_key_value_heads=config.kv_heads,
            hidden_act=config.activation,
            rms_norm_eps=config.norm_eps,
            rope_parameters={"rope_type": "default", "rope_theta": config.rope_theta},
            vocab_size=config.codes + 1,
            max_position_embeddings=4096,
            tie_word_embeddings=False,
            eos_token_id=None,
            bos_token_id=None,
        )
    )
    llama.eval()
    tensors: dict[str, Any] = {
        "model.embed_tokens.weight": model.response[0].weight,
        "lm_head.weight": model.heads[0].weight,
        "model.norm.weight": model.transformer.norm.weight,
    }
    kv = config.kv_heads * config.head_dim
    for number, block in enumerate(model.transformer.blocks):
        layer = f"model.layers.{number}."
        q, k, v = torch.split(block.attention.qkv.weight, [config.width, kv, kv])
        gate, up = block.feed_forward.gate_up.weight.chunk(2)
        tensors |= {
            f"{layer}self_attn.q_proj.weight": q,
            f"{layer}self_attn.k_proj.weight": k,
            f"{layer}self_attn.v_proj.weight": v,
            f"{layer}self_attn.o_proj.weight": block.attention.out.weight,
            f"{layer}mlp.gate_proj.weight": gate,
            f"{layer}mlp.up_proj.weight": up,
            f"{layer}mlp.down_proj.weight": block.feed_forward.down.weight,
            f"{layer}input_layernorm.weight": block.attention_norm.weight,
            f"{layer}post_attention_layernorm.weight": block.feed_forward_norm.weight,
        }
    llama.load_state_dict({name: tensor.contiguous() for name, tensor in tensors.items()})
    return llama


@torch.inference_mode()
def step_us(model: Valle, prefix: Tensor, *, length: int, capacity: int, steps: int = 50) -> float:
    """Return microseconds a step of the stack and head, around ``length`` cached positions."""
    cache = KVCache(model.config, slots=1, max_length=capacity)
    x = prefix.repeat(-(-length // len(prefix)), 1)[:length]
    positions = torch.arange(length + steps)
    model.transformer.extend(x, positions[:length], cache, 0, positions[:length])
    began = perf_counter()
    for step in range(steps):
        hidden = model.transformer.step(x[:1], positions[length + step, None], cache, [0])
        model.logits(hidden, 0)
    return (perf_counter() - began) / steps * 1e6


def spread(values: Sequence[float]) -> dict[str, float]:
    """Return median, least and greatest."""
    return {"median": statistics.median(values), "min": min(values), "max": max(values)}


def measure(model: Valle, rounds: int) -> dict[str, object]:
    """Run the gate, then the rounds; return every figure.

    Raises:
        SystemExit: The three do not agree, so no time would mean anything.
    """
    torch.manual_seed(0)
    torch.nn.init.zeros_(model.heads[0].get_parameter("bias"))  # Llama's head has none
    prefix = torch.randn(PREFIX, model.config.width) * 0.3
    llama = as_llama(model)
    contestants: dict[str, Callable[..., tuple[list[int], Marks]]] = {
        "ours": lambda **k: ours(model, prefix, **k),
        "uncached": lambda **k: uncached(model, prefix, **k),
        "transformers": lambda **k: transformers_generate(llama, prefix, **k),
    }
    greedy = {name: run(frames=GATE, greedy=True)[0] for name, run in contestants.items()}
    if len({tuple(codes) for codes in greedy.values()}) != 1:
        raise SystemExit("the three do not agree on the greedy codes: nothing is timed")

    seconds: dict[str, list[Marks]] = {name: [] for name in contestants}
    steps: dict[int, list[float]] = {capacity: [] for capacity in CAPACITIES}
    with tqdm(total=rounds * len(contestants)) as bar:
        for _ in range(rounds):
            for name, run in contestants.items():
                seconds[name].append(run(frames=max(MARKS), greedy=False)[1])
                bar.update()
            for capacity in CAPACITIES:
                steps[capacity].append(step_us(model, prefix, length=250, capacity=capacity))
    figures: dict[str, object] = {"machine": platform.processor() or platform.machine()}
    figures |= {"torch": torch.__version__, "threads": torch.get_num_threads(), "rounds": rounds}
    for name, marks in seconds.items():
        figures[f"{name}_tokens_per_s"] = {
            mark: spread([(mark - 1) / marks_of[mark] for marks_of in marks]) for mark in MARKS
        }
    for other in ("uncached", "transformers"):
        figures[f"ratio_to_{other}"] = {
            mark: spread([
                b[mark] / a[mark] for a, b in zip(seconds["ours"], seconds[other], strict=True)
            ])
            for mark in MARKS
        }
    figures["us_per_step_at_250_by_capacity"] = {c: spread(v) for c, v in steps.items()}
    return figures


def main() -> None:
    """Print one table and write JSON."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--model", type=Path, default=BUILTIN_MODEL)
    parser.add_argument("--out", type=Path, default=None)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    figures = measure(load_lm(args.model), args.rounds)
    print(f"\nmedian (min to max) of {args.rounds} rounds, {args.threads} thread(s)\n")
    print("| figure | " + " | ".join(f"T = {mark}" for mark in MARKS) + " |")
    print("| --- " * (len(MARKS) + 1) + "|")
    for name, by_mark in figures.items():
        if isinstance(by_mark, dict) and set(by_mark) == set(MARKS):
            cells = (
                f"{v['median']:.1f} ({v['min']:.1f} to {v['max']:.1f})" for v in by_mark.values()
            )
            print(f"| {name} | " + " | ".join(cells) + " |")
    print(f"\nus a step at T = 250: {figures['us_per_step_at_250_by_capacity']}")
    if args.out:
        args.out.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
