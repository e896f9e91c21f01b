"""A layer: its forms without gradients are those with them."""

import pytest
import torch
from torch.nn import functional as F

from models.stack.block import Attention, FeedForward, RmsNorm
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


@torch.inference_mode()
def test_turned_by_a_complex_product_queries_and_keys_have_the_same_products() -> None:
    attention, x = Attention(CONFIG), vectors(11)
    angles = torch.rand(11, CONFIG.head_dim // 2) * 100
    cos, sin = angles.cos(), angles.sin()
    queries, keys, values = attention.project(
        x, torch.cat([cos, cos], 1), torch.cat([-sin, sin], 1)
    )
    found = attention.project_complex(x, torch.complex(cos, sin)[:, None])
    assert torch.equal(found[2], values)
    for head in range(CONFIG.heads):
        kv = head * CONFIG.kv_heads // CONFIG.heads
        expected = queries[:, head] @ keys[:, kv].T
        assert (found[0][:, head] @ found[1][:, kv].T - expected).abs().max() < 1e-5
