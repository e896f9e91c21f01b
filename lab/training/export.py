"""Write what was trained into `next` of the cache, as the service loads it.

    python -m lab.training.export codec
    python -m lab.training.export lm
    python -m lab.training.export null-head

A null head is added to the language model that is there, or in the folder `--to`, on which it was
trained.

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
from models.checkpoints.builtin import load_lm, save_codec, save_lm, save_null_head
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


def export_null_head(folder: Path) -> None:
    """Add the null head to the language model of a folder."""
    from lab.training.lm.null_head import SPEC

    saved = torch.load(
        cache_folder() / "null" / "checkpoint.pt", map_location="cpu", weights_only=True
    )
    save_null_head(folder, SPEC, saved["head"])


def main() -> None:
    """Export the codec, the language model or its null head."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("what", choices=["codec", "lm", "null-head"])
    parser.add_argument("--coarse", action="store_true", help="numbers of 8 bits of precision")
    parser.add_argument("--half-way-from", type=Path, metavar="FOLDER", help="language model alone")
    parser.add_argument("--to", type=Path, default=NEXT_MODEL, help="null head alone")
    args = parser.parse_args()
    if args.what == "codec":
        export_codec(coarse=args.coarse)
    elif args.what == "null-head":
        export_null_head(args.to)
    else:
        export_lm(coarse=args.coarse, half_way_from=args.half_way_from)


if __name__ == "__main__":
    main()
