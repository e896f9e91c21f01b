"""Write what was trained into `weights/next`, as the service loads it.

    python -m training.export codec
    python -m training.export lm

The codec can be exported as soon as its encoder and codebooks have settled.
"""

import argparse

import torch

from models.checkpoints import save_codec, save_lm
from training.cache import NEXT_MODEL, cache_folder


def export_codec() -> None:
    """Write the codec, its decoder with averaged weights."""
    from training.codec import exported

    save_codec(NEXT_MODEL, exported(cache_folder() / "codec" / "checkpoint.pt"))


def export_lm() -> None:
    """Write the averaged weights of the language model."""
    from training.lm import CONFIG

    saved = torch.load(
        cache_folder() / "lm" / "checkpoint.pt", map_location="cpu", weights_only=True
    )
    save_lm(NEXT_MODEL, CONFIG, saved["average"])


def main() -> None:
    """Export the codec or the language model."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("what", choices=["codec", "lm"])
    {"codec": export_codec, "lm": export_lm}[parser.parse_args().what]()


if __name__ == "__main__":
    main()
