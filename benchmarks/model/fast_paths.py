"""Largest differences of cached and streamed paths from whole passes, with built-in weights.

    python -m benchmarks.model.fast_paths

The tests check random weights of many shapes; this measures the weights that ship.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor

from app.settings import BUILTIN_MODEL
from models.checkpoints import load_codec, load_lm
from models.codecs.interface import Codec
from models.config import BOS_ID, EOS_ID
from models.stack.slot_cache import SlotCache
from models.valle import Valle

STEPS = 300
PHONEMES = (10, 25, 40, 60)  # of the four slots' texts
REWINDS = (1, 40, 299)


def some_codes(model: Valle, frames: int, seed: int) -> Tensor:
    """Return random codes ``[T, K]`` from a seed."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(model.config.codes, (frames, model.config.levels), generator=generator)


def phonemes(count: int) -> list[int]:
    """Return a number of phoneme ids, with BOS and EOS."""
    return [BOS_ID, *(EOS_ID + 1 + number % 40 for number in range(count)), EOS_ID]


def uncached(model: Valle, ids: list[int], codes: Tensor) -> Tensor:
    """Return the logits ``[T + 1, V]`` of one whole pass."""
    prefix = model.prefix(ids, 0)
    x = torch.cat([prefix.embeddings, model.embed_response(codes, 0)])
    positions = torch.cat([prefix.positions, torch.arange(len(codes))])
    return model.logits(model.transformer(x[None], positions[None])[0, len(prefix) - 1 :], 0)


def prefill(model: Valle, ids: list[int], cache: SlotCache, slot: int) -> Tensor:
    """Run a prefix into a slot; return its last hidden state ``[1, D]``."""
    return model.read(model.prefix(ids, 0), cache, slot)[0][-1:]


def step(model: Valle, codes: Tensor, frame: int, cache: SlotCache, slots: list[int]) -> Tensor:
    """Step the slots with one frame of codes ``[B, T, K]``; return the logits ``[B, V]``."""
    positions = torch.full((len(slots),), frame)
    x = model.embed_response(codes[:, frame], 0)
    return model.logits(model.transformer.step(x, positions, cache, slots), 0)


def cache_differences(model: Valle) -> Iterator[tuple[str, float]]:
    """Yield the name of each comparison and the largest difference of logits."""
    ids = [phonemes(count) for count in PHONEMES]
    codes = torch.stack([some_codes(model, STEPS, seed) for seed in range(len(ids))])
    expected = [uncached(model, *pair) for pair in zip(ids, codes, strict=True)]
    cache = model.new_cache(len(ids), 512)
    slots = list(range(len(ids)))
    found = [torch.cat([model.logits(prefill(model, i, cache, s), 0) for s, i in enumerate(ids)])]
    found += [step(model, codes, frame, cache, slots) for frame in range(STEPS)]
    together = (torch.stack(found, 1) - torch.stack(expected)).abs().max()
    yield f"4 slots of different lengths, {STEPS} steps together", float(together)
    prefix = cache.lengths[0] - STEPS
    other = some_codes(model, STEPS, 99)[None]
    for kept in REWINDS:
        cache.rewind(0, prefix + kept)
        path = torch.cat([codes[:1, :kept], other[:, kept:]], 1)
        again = [step(model, path, frame, cache, [0]) for frame in range(kept, STEPS)]
        wanted = uncached(model, ids[0], path[0])[kept + 1 :]
        yield (
            f"rewound to {kept}, other codes from there",
            float((torch.cat(again) - wanted).abs().max()),
        )
        cache.rewind(0, prefix)
        for frame in range(STEPS):
            step(model, codes[:1], frame, cache, [0])


def greedy_agrees(model: Valle) -> bool:
    """Return whether 300 greedy codes are equal with and without a cache."""
    ids, cache = phonemes(30), model.new_cache(1, 512)
    logits, drawn = model.logits(prefill(model, ids, cache, 0), 0), []
    for frame in range(STEPS):
        drawn.append(logits[:, :-1].argmax(-1))
        logits = step(model, drawn[-1][:, None, None].expand(1, frame + 1, 1), frame, cache, [0])
    codes = torch.cat(drawn)
    return torch.equal(uncached(model, ids, codes[:, None])[:-1, :-1].argmax(-1), codes)


def stream_differences(model: Valle, codec: Codec) -> Iterator[tuple[str, float]]:
    """Yield the largest difference of streamed and whole samples, relative to the peak."""
    for frames, chunk in ((200, 1), (200, 2), (200, 5), (200, 15), (200, 77), (1, 1), (6, 1)):
        codes = some_codes(model, frames, chunk)
        whole, stream = codec.decode(codes), codec.stream()
        pieces = [*(stream.push(piece) for piece in torch.split(codes, chunk)), stream.finish()]
        difference = (torch.cat(pieces) - whole).abs().max() / whole.abs().max()
        yield f"codec: {frames} frames in chunks of {chunk}", float(difference)


@torch.inference_mode()
def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", type=Path, default=BUILTIN_MODEL)
    folder: Path = parser.parse_args().model
    torch.set_num_threads(1)
    model, codec = load_lm(folder), load_codec(folder)
    print("| compared | greatest difference |\n| --- | --- |")
    for name, difference in (*cache_differences(model), *stream_differences(model, codec)):
        print(f"| {name} | {difference:.1e} |")
    greedy = "equal" if greedy_agrees(model) else "DIFFERENT"
    print(f"| {STEPS} greedy codes, cached and uncached | {greedy} |")


if __name__ == "__main__":
    main()
