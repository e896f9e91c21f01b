"""Vocos against the package `vocos`, at the published shapes with random weights."""

from typing import Any

import pytest
import torch
from torch import Tensor

from models.checkpoints.vocos import vocos_from_published
from models.codecs.vocos import Vocos
from models.config import VocosConfig
from tests.models.codecs.oracle import random_vocos

BANDWIDTHS = {1: 0, 2: 0, 3: 1, 4: 1, 5: 2, 8: 2, 9: 3, 16: 3}
SMALL = VocosConfig(
    dimension=4, width=8, ffn=12, layers=2, codes=16, bandwidth_levels=(2, 4), window=32, hop=8
)


@pytest.fixture(scope="module")
def oracle() -> Any:
    return random_vocos()


def published(oracle: Any) -> dict[str, Tensor]:
    """The tensors that upstream's file has: EnCodec is not among them."""
    return {
        name: tensor
        for name, tensor in oracle.state_dict().items()
        if not name.startswith("feature_extractor.encodec.")
    }


@pytest.fixture(scope="module")
def vocos(oracle: Any) -> Vocos:
    return vocos_from_published(published(oracle), VocosConfig())


@pytest.fixture
def small() -> Vocos:
    torch.manual_seed(0)
    vocos = Vocos(SMALL)
    for name, tensor in vocos.state_dict().items():
        if name != "window":
            tensor.normal_(0, 0.3)
    return vocos.eval()


@pytest.mark.parametrize("frames", [1, 2, 5, 150])
@pytest.mark.parametrize("levels", BANDWIDTHS)
def test_it_decodes_as_the_vocos_package(
    oracle: Any, vocos: Vocos, frames: int, levels: int
) -> None:
    codes = torch.randint(1024, (frames, levels), generator=torch.Generator().manual_seed(frames))
    features = oracle.codes_to_features(codes.T)
    expected = oracle.decode(features, bandwidth_id=torch.tensor([BANDWIDTHS[levels]]))[0]
    found = vocos.decode(codes)
    assert found.shape == (320 * frames,)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5 * float(expected.abs().max()))


def test_a_stream_gives_the_whole_at_its_end(small: Vocos) -> None:
    codes = torch.randint(16, (23, 4))
    stream = small.stream()
    assert all(not len(stream.push(part)) for part in codes.split(5))
    assert torch.equal(stream.finish(), small.decode(codes))
    assert not len(stream.finish())


def test_a_loud_magnitude_is_cut_off(small: Vocos) -> None:
    small.requires_grad_(False).out.bias[: SMALL.window // 2 + 1] = 50.0
    samples = small.decode(torch.randint(16, (20, 4)))
    # Four Hann windows sum to 2, their squares to 1.5.
    inside = samples[SMALL.window : -SMALL.window]
    assert 1.0 < inside.abs().max() <= 100.0 * 2.0 / 1.5


@pytest.mark.parametrize("shape", [(0, 4), (3, 0), (3, 5), (3,)])
def test_codes_of_another_shape_are_refused(small: Vocos, shape: tuple[int, ...]) -> None:
    for refuse in (small.decode, small.stream().push):
        with pytest.raises(ValueError, match="codes must be"):
            refuse(torch.zeros(shape, dtype=torch.int64))
