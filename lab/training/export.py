"""Write what was trained into `next` of the cache, as the service loads it.

    python -m lab.training.export codec
    python -m lab.training.export lm

The codec can be exported as soon as its encoder and codebooks have settled. With `--coarse` numbers
have bfloat16's 8 bits: what training merely goes on from then takes a sixth less in a git history.
What makes codes is never rounded so.

A short run on speech of another kind forgets some of the first. `--half-way-from weights` writes
the mean of what was trained and of where it began, which kept most of both (Wortsman et al. 2022,
"Robust fine-tuning of zero-shot models").
"""

import argparse
from pathlib import Path

import torch

from lab.training.cache import NEXT_MODEL, cache_folder
from models.checkpoints.builtin import load_lm, save_codec, save_lm
from models.codecs.spectral import SpectralCodec


def averaged_codec(path: Path) -> SpectralCodec:
    """Return the codec of a saved state, with the decoder's averaged weights."""
    from lab.training.codec.train import CONFIG

    saved = torch.load(path, map_location="cpu", weights_only=True)
    codec = SpectralCodec(CONFIG)
    codec.load_state_dict(saved["codec"])
    codec.load_state_dict(saved["average"], strict=False)
    return codec.eval()


def export_codec(*, coarse: bool = False) -> None:
    """Write the codec, its decoder with averaged weights."""
    codec = averaged_codec(cache_folder() / "codec" / "checkpoint.pt")
    if coarse:
        codec.decoder.bfloat16().float()
    save_codec(NEXT_MODEL, codec)


def export_lm(*, coarse: bool = False, half_way_from: Path | None = None) -> None:
    """Write the averaged weights of the language model, or their mean with those of a folder."""
    from lab.training.lm.train import CONFIG

    saved = torch.load(
        cache_folder() / "lm" / "checkpoint.pt", map_location="cpu", weights_only=True
    )
    tensors = saved["average"]
    if half_way_from:
        began = load_lm(half_way_from).state_dict()
        tensors = {
            name: torch.lerp(began.get(name, torch.zeros_like(tensor)), tensor, 0.5)
            for name, tensor in tensors.items()
        }
    if coarse:
        tensors = {name: tensor.bfloat16().float() for name, tensor in tensors.items()}
    save_lm(NEXT_MODEL, CONFIG, tensors)


def main() -> None:
    """Export the codec or the language model."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("what", choices=["codec", "lm"])
    parser.add_argument("--coarse", action="store_true", help="numbers of 8 bits of precision")
    parser.add_argument("--half-way-from", type=Path, metavar="FOLDER", help="language model alone")
    args = parser.parse_args()
    if args.what == "codec":
        export_codec(coarse=args.coarse)
    else:
        export_lm(coarse=args.coarse, half_way_from=args.half_way_from)


if __name__ == "__main__":
    main()
