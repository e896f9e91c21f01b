"""Settings of torch's libraries on a GPU, for the whole process."""

import torch


def set_up() -> None:
    """Choose kernels whose first call for a shape is quick, and products in full float32.

    cuDNN's attention plans anew, for some 30 ms, for every thread and exact shape: each new length
    of a text would meet it. TensorFloat-32, the default of convolutions, keeps 10 bits.
    """
    torch.backends.cuda.enable_cudnn_sdp(False)
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
