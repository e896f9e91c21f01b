"""A model's stack as a `LlamaForCausalLM` of `transformers`, as a baseline."""

from typing import Any

import torch
from torch import Tensor
from transformers import LogitsProcessor, LogitsProcessorList
from transformers.models.llama import LlamaConfig, LlamaForCausalLM

from lab.benchmarks.harness.mark_timer import Marks, MarkTimer
from models.valle import Valle


class _TimingProcessor(LogitsProcessor):
    """Bans the stop token and records the time at every step of `generate`."""

    def __init__(self, stop: int) -> None:
        self.timer, self.count, self.stop = MarkTimer(), 0, stop

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:  # noqa: ARG002
        self.count += 1
        self.timer.tick(self.count)
        scores[:, self.stop] = -torch.inf
        return scores


@torch.inference_mode()
def transformers_generate(
    llama: Any, prefixes: Tensor, frames: int, *, greedy: bool, static: bool = False
) -> tuple[Tensor, Marks]:
    """Decode prefixes ``[B, S, D]`` with `generate`, with a StaticCache or its DynamicCache.

    Samples at temperature 1 unless ``greedy``. Returns codes ``[B, frames]``, and the seconds at
    each of `MARKS`.
    """
    timing = _TimingProcessor(llama.config.vocab_size - 1)
    ids: Tensor = llama.generate(
        inputs_embeds=prefixes,
        attention_mask=torch.ones(prefixes.shape[:2], dtype=torch.int64, device=prefixes.device),
        do_sample=not greedy,
        top_k=0,
        top_p=1.0,
        temperature=1.0,
        min_new_tokens=frames,
        max_new_tokens=frames,
        use_cache=True,
        cache_implementation="static" if static else None,
        pad_token_id=0,
        logits_processor=LogitsProcessorList([timing]),
    )
    return ids, timing.timer.marks


def as_llama(model: Valle) -> Any:
    """Return a `LlamaForCausalLM` with the weights of a model, whose head must have no bias."""
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
