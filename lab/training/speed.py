"""In which numbers this machine trains fastest: measured, for processors differ by factors.

    python -m lab.training.speed

Without instructions for bfloat16 its matrix products take three times as long as float32's, with
them a third.
"""

import time

import torch

MEASURED_S = 0.3
SHAPES = ((4096, 256, 768), (4096, 768, 256), (4096, 256, 1024))  # rows, inputs, outputs
TYPES = (torch.float32, torch.bfloat16)


def products_per_second(dtype: torch.dtype, device: torch.device) -> float:
    """Return how many billion multiplications a second training's own matrices get.

    On a processor it is a second of its own time: others may use it, and not always as much.
    """
    clock = time.perf_counter if device.type == "cuda" else time.process_time
    done, spent_s = 0, 0.0
    for rows, inputs, outputs in SHAPES:
        x = torch.randn(rows, inputs, device=device, dtype=dtype)
        weight = torch.randn(outputs, inputs, device=device, dtype=dtype)
        (x @ weight.T).sum().item()  # the first product also prepares the kernel
        began = clock()
        while clock() - began < MEASURED_S:
            (x @ weight.T)[0, 0].item()  # waits for a card, too
            done += rows * inputs * outputs
        spent_s += clock() - began
    return done / spent_s / 1e9


def fastest_type(device: torch.device) -> torch.dtype:
    """Return the type to train in: what multiplies training's matrices fastest."""
    return max(TYPES, key=lambda dtype: products_per_second(dtype, device))


def main() -> None:
    """Print what each type gives."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    for dtype in TYPES:
        print(f"{dtype}: {products_per_second(dtype, device):.0f} billion products/s")


if __name__ == "__main__":
    main()
