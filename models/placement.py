"""Placement of a loaded language model on a device, in a dtype."""

import torch

from models.valle import Valle


def prepare_for(device: torch.device, model: Valle, dtype: torch.dtype | None = None) -> Valle:
    """Move a model to a device in place, converting its weights.

    Args:
        device: The target device.
        model: In float32, as it was loaded.
        dtype: Of the weights; None is bfloat16 on a GPU, where a step is bound by reading them, and
            float32 elsewhere. Rotations and logits stay float32.

    Returns:
        The same model.
    """
    if dtype is None:
        dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    for parameter in model.parameters():
        placed = parameter.data.to(device, dtype)
        # The column-major order of `Valle.lay_out_for_steps` is good for a CPU only.
        parameter.data = placed.contiguous() if device.type == "cuda" else placed
    return model.to(device)  # buffers keep their dtype
