"""Streams by rows of a table sound as streams by themselves do."""

import pytest
import torch
from torch import Tensor

from models.codecs.encodec import Encodec
from models.codecs.spectral import SpectralCodec
from models.codecs.streaming import StreamTable
from models.config import CodecConfig, SpectralCodecConfig

pytestmark = pytest.mark.usefixtures("without_gradients")

STREAMS, FRAMES = 3, (15, 15, 30, 45)
ENCODEC = {"codes": 64, "filters": 2, "dimension": 8, "lstm_layers": 2}
CLOSE = 1e-5


def codec(name: str) -> Encodec | SpectralCodec:
    torch.manual_seed(0)
    if name == "spectral":
        config = SpectralCodecConfig(width=8, ffn=12, dimension=4, encoder_layers=1, codes=64)
        made: Encodec | SpectralCodec = SpectralCodec(config)
    else:
        made = Encodec(CodecConfig(pad_mode=name, **ENCODEC))
    made.quantizer.codebooks.normal_()
    return made.eval().requires_grad_(False)


@pytest.mark.parametrize("name", ["constant", "reflect", "spectral"])
def test_rows_that_begin_and_go_on_together_sound_as_alone(name: str) -> None:
    own = codec(name)
    latent = torch.randn(STREAMS, sum(FRAMES), own.config.dimension)
    table = StreamTable(own, latent[:1, :15], STREAMS + 2)
    alone = [own.sound(one[None])[0] for one in latent]
    rows, at = torch.tensor([4, 0, 2]), [0, 0, 0]
    found: list[list[Tensor]] = [[] for _ in range(STREAMS)]
    for number in range(len(FRAMES) + STREAMS - 1):  # each begins a chunk later than the one before
        turn = [one for one in range(STREAMS) if 0 <= number - one < len(FRAMES)]
        for size in {FRAMES[number - one] for one in turn}:
            those = [one for one in turn if FRAMES[number - one] == size]
            begins = torch.tensor([number == one for one in those])
            state = table.read(rows[those], begins)
            given = torch.stack([latent[one, at[one] : at[one] + size] for one in those])
            for one, samples in zip(those, own.sound(given, state), strict=True):
                found[one].append(samples)
                at[one] += size
            table.write(rows[those], state)

    for one, samples in enumerate(alone):
        assert (torch.cat(found[one]) - samples).abs().max() < CLOSE * samples.abs().max()


def test_what_a_row_held_before_a_stream_began_is_not_heard() -> None:
    own = codec("constant")
    latent = torch.randn(1, 15, own.config.dimension)
    table, row, yes = StreamTable(own, latent, 1), torch.tensor([0]), torch.tensor([True])
    state = table.read(row, yes)
    own.sound(latent * torch.nan, state)
    table.write(row, state)
    assert not own.sound(latent, table.read(row, ~yes)).isfinite().all()
    found = own.sound(latent, table.read(row, yes))
    assert torch.equal(found, own.sound(latent, table.read(row, yes)))
    assert (found - own.sound(latent)).abs().max() < CLOSE
