"""Sound of speech that is kept as codes alone, where the cache has lost it.

    python -m training.lm.restore --every 2

What goes on from sound (`training.speech.perturb`, `training.speech.recorded`) can then go on
without the hours that the slow teacher takes. It has passed through the codec, so its entries are
marked: the codec itself is never trained on it, and the kept codes stay those of the true speech.
"""

import argparse
from pathlib import Path

import torch

from models.checkpoints import load_codec
from training.cache import cache_folder, present_model
from training.lm.codes import CROWD, SLOW, read_shard, shard_files
from training.speech.corpus import shard_paths, speak_shards, write_shard


@torch.inference_mode()
def _restore_shard(task: tuple[Path, Path, int]) -> float:
    """Write the sound of one shard of codes; return its seconds."""
    codes, folder, number = task
    torch.set_num_threads(1)
    codec = load_codec(present_model())
    speech = (
        (
            codec.decode(torch.from_numpy(one.codes).long()).numpy(),
            {"text": one.text, "speaker": one.speaker, "part": one.part, "restored": True},
        )
        for one in read_shard(codes)
    )
    return write_shard(folder, number, speech)


def main() -> None:
    """Restore every shard whose sound is missing."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--every", type=int, default=1, help="of the chorus, 2: each second shard")
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()
    cache = cache_folder()
    for source, every in ((CROWD, 1), (SLOW, args.every)):
        folder = cache / source
        folder.mkdir(exist_ok=True)
        tasks = [
            (path, folder, int(path.stem))
            for path in shard_files(cache, source)[::every]
            if not shard_paths(folder, int(path.stem))[1].exists()
        ]
        speak_shards(folder, _restore_shard, tasks, workers=args.workers)


if __name__ == "__main__":
    main()
