"""Where a language model runs, and in which numbers."""

import torch

from models.valle import Valle


def prepare_for(device: torch.device, model: Valle, dtype: torch.dtype | None = None) -> Valle:
    """Put a loaded model where it is to run, for good.

    Args:
        device: Where.
        model: In float32, as it was loaded.
        dtype: Of the weights; None is bfloat16 on a GPU, whose steps take the time of reading
            them, and float32 elsewhere. Rotations stay float32, and so do logits.

    Returns:
        The model.
    """
    if dtype is None:
        dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    for parameter in model.parameters():
        placed = parameter.data.to(device, dtype)
        # Column by column, as `Valle.lay_out_for_steps` has them, is good for a CPU alone.
        parameter.data = placed.contiguous() if device.type == "cuda" else placed
    return model.to(device)  # buffers, in the numbers that they are in
