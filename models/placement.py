"""Placement of a loaded language model on a device, in a dtype."""

import torch

from models.valle import Valle


def prepare_for(device: torch.device, model: Valle, dtype: torch.dtype | None = None) -> Valle:
    """Move a float32 model to a device in place, converting its weights, and return it.

    A ``dtype`` of None is bfloat16 on a GPU that computes in it and float32 elsewhere. Heads,
    rotations and logits stay float32: of logits in bfloat16 a thirtieth have a tied maximum.
    """
    if dtype is None:
        narrow = device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)
        dtype = torch.bfloat16 if narrow else torch.float32
    heads = {id(parameter) for head in model.output_heads for parameter in head.parameters()}
    for parameter in model.parameters():
        own = torch.float32 if id(parameter) in heads else dtype
        placed = parameter.data.to(device, own)
        # The column-major order of `Valle.lay_out_for_steps` is good for a CPU only.
        parameter.data = placed.contiguous() if device.type == "cuda" else placed
    return model.to(device)  # buffers keep their dtype
