"""A layer: its forms without gradients are those with them.

That queries and keys that are turned by a complex product have the same products is said by
`test_cached_passes`, whose passes over slots turn them so.
"""

import pytest
import torch
from torch.nn import functional as F

from models.stack.block import FeedForward, RmsNorm
from tests.models.stack.stacks import CONFIG, vectors


@pytest.mark.parametrize("size", [0, 1e-4, 1, 1e4])
def test_the_norm_is_torchs_with_and_without_gradients(size: float) -> None:
    norm = RmsNorm(CONFIG.width, 1e-6)
    torch.nn.init.uniform_(norm.weight, 0.2, 3)
    x = vectors(7) * size
    expected = F.rms_norm(x, x.shape[1:], norm.weight, 1e-6)
    assert torch.equal(norm(x), expected)
    with torch.inference_mode():
        assert torch.allclose(norm(x), expected, rtol=1e-6, atol=1e-6)
        assert torch.equal(norm(x[2, None])[0], norm(x)[2])


@pytest.mark.parametrize("activation", ["gelu", "silu"])
def test_the_activation_of_a_row_has_the_same_bits_in_every_batch(activation: str) -> None:
    layer = FeedForward(CONFIG.model_copy(update={"activation": activation}))
    layer.gate_up = layer.down = torch.nn.Identity()  # type: ignore[assignment]
    x = torch.cat([vectors(9, seed) for seed in range(3)], 1)
    expected = layer(x)
    with torch.inference_mode():
        assert (layer(x) - expected).abs().max() < 1e-6
        for row in range(9):
            assert torch.equal(layer(x[row, None])[0], layer(x)[row])
