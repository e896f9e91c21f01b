"""Look at how frames attend to phonemes: whether the model reads the text as it speaks.

python -m training.lm.attention -o attention.npz     then: python -m training.plots --attention
"""

import argparse
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from app.settings import BUILTIN_MODEL
from models.checkpoints import load_lm
from models.valle import Valle
from training.cache import cache_folder
from training.lm.codes import CodedUtterance, load_codes


@torch.inference_mode()
def frame_attention(model: Valle, utterance: CodedUtterance) -> Tensor:
    """Return how the AR's frames attend to phonemes, teacher-forced.

    Returns:
        ``[layers, heads, T, S]``; S is the phonemes with both marks. A row need not sum to 1: the
        rest goes to earlier frames and to the other segments.
    """
    codes = torch.from_numpy(utterance.codes.astype(np.int64))
    prefix = model.prefix(utterance.phoneme_ids, 0)
    x = torch.cat([prefix.embeddings, model.embed_response(codes, 0)])[None]
    positions = torch.cat([prefix.positions, torch.arange(len(codes))])
    stack = model.transformer
    cos, sin = stack.cos[positions], stack.sin[positions]
    hidden = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)
    bias = torch.zeros(hidden.shape).masked_fill(hidden, -torch.inf)
    first = len(prefix) - 1 - len(utterance.phoneme_ids)
    seen = []
    for block in stack.blocks:
        queries, keys, _ = block.attention.project(block.attention_norm(x), cos, sin)
        group = model.config.heads // model.config.kv_heads
        scores = torch.einsum("bqhd,bkhd->bhqk", queries, keys.repeat_interleave(group, 2))
        weights = (scores * model.config.head_dim**-0.5 + bias).softmax(-1)[0]
        # the row before a frame's own position is the one that predicts it
        seen.append(weights[:, len(prefix) - 1 : -1, first : first + len(utterance.phoneme_ids)])
        x = block(x, cos, sin, bias)
    return torch.stack(seen)


def main() -> None:
    """Write the attention of one utterance that was kept out of training."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--utterance", type=int, default=0)
    parser.add_argument("-o", "--out", type=Path, required=True)
    args = parser.parse_args()
    held_out = [one for _, kept in load_codes(cache_folder()).values() for one in kept]
    utterance = held_out[args.utterance]
    weights = frame_attention(load_lm(BUILTIN_MODEL), utterance)
    phonemes = np.array(["<", *utterance.phonemes, ">"])
    np.savez(args.out, weights=weights.numpy(), phonemes=phonemes)
    print(utterance.text)


if __name__ == "__main__":
    main()
