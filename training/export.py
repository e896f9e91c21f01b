"""Write what was trained into `weights/`, as the service loads it.

python -m training.export codec
python -m training.export lm
"""

import argparse

import torch

from app.settings import BUILTIN_MODEL
from models.checkpoints import save_codec, save_lm
from training.cache import cache_folder


def export_codec() -> None:
    """Write the codec with its weight norm folded."""
    from training.codec import CodecTrainer, clips

    trainer = CodecTrainer(clips(seed=0), minutes=0.0)
    trainer.load(cache_folder() / "codec" / "checkpoint.pt")
    save_codec(BUILTIN_MODEL, trainer.trained())


def export_lm() -> None:
    """Write the averaged weights of the language model."""
    from training.lm import CONFIG

    saved = torch.load(
        cache_folder() / "lm" / "checkpoint.pt", map_location="cpu", weights_only=True
    )
    save_lm(BUILTIN_MODEL, CONFIG, saved["average"])


def main() -> None:
    """Export the codec or the language model."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("what", choices=["codec", "lm"])
    {"codec": export_codec, "lm": export_lm}[parser.parse_args().what]()


if __name__ == "__main__":
    main()
