"""Sound of speech that is kept as codes alone, where the cache has lost it.

    python -m lab.training.lm.restore --every 2

What goes on from sound (`lab.training.speech.perturb`, `lab.training.speech.recorded`) can then go
on without the hours that the slow teacher takes. It has passed through the codec, so its entries
are marked: the codec itself is never trained on it, and the kept codes stay those of the true
speech.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path

import torch

from lab.training.cache import cache_folder, present_model
from lab.training.lm.codes import CROWD, SLOW, read_shard, shard_files
from lab.training.speech.corpus import Spoken, make_corpus
from models.checkpoints.builtin import load_codec


@torch.inference_mode()
def _decoded(codes: Path) -> Iterator[Spoken]:
    """Yield the sound of one shard of codes."""
    torch.set_num_threads(1)
    codec = load_codec(present_model())
    for one in read_shard(codes):
        fields = {"text": one.text, "speaker": one.speaker, "part": one.part, "restored": True}
        yield codec.decode(torch.from_numpy(one.codes).long()).numpy(), fields


def main() -> None:
    """Restore every shard whose sound is missing."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--every", type=int, default=1, help="of the chorus, 2: each second shard")
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()
    cache = cache_folder()
    for source, every in ((CROWD, 1), (SLOW, args.every)):
        shards = [(int(path.stem), (path,)) for path in shard_files(cache, source)[::every]]
        make_corpus(source, _decoded, shards, workers=args.workers)


if __name__ == "__main__":
    main()
