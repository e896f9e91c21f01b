"""How likely is what an unseen speaker says next, given a recording of theirs?

    python -m lab.training.judging.prompts --weights weights NEXT

Speakers of the corpus `bent` whom nobody trained on each give a sentence, as it is or recorded in
some way, and say another one; the loss of level 0 and of level 1 on that is told, in nats. Beside
these, the prompts are of another speaker, and none at all. It takes seconds where judging speech
takes minutes, and sees differences that few sentences do not: every model gets the same prompts.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from app.settings import BUILTIN_MODEL
from lab.training.cache import cache_folder
from lab.training.judging.imitation import WAYS, sent, unseen_speakers
from lab.training.judging.judges import resample
from lab.training.judging.speakers import Samples
from lab.training.lm.codes import CodedUtterance, load_codes, trimmed
from lab.training.lm.rows import Row, losses_of
from lab.training.speech.channels import draw_channel, passed
from lab.training.speech.corpus import SAMPLE_RATE_HZ, Corpus
from lab.training.speech.recorded import uploaded
from models.checkpoints.builtin import load_codec, load_lm
from models.valle import Valle

LEVELS = 0, 1
RANDOM, OTHER, NONE = "random channels", "somebody else", "none"


def captured_as(samples: Samples, way: str, seed: int) -> Samples:
    """Return a recording ``[N]`` of `SAMPLE_RATE_HZ` in a way of `WAYS`, or in a random one."""
    if way == RANDOM:
        random = np.random.default_rng(seed)
        return uploaded(passed(samples, draw_channel(random), random))
    sound, rate_hz = sent(samples, SAMPLE_RATE_HZ, way)
    return uploaded(resample(sound, rate_hz, SAMPLE_RATE_HZ))


def prompts(
    count: int, weights: Path
) -> Iterator[tuple[str, list[tuple[CodedUtterance, NDArray[np.int16] | None]]]]:
    """Yield each way of prompting, with what ``count`` speakers say and their prompts ``[Tp, K]``.

    The corpus `bent` and its codes must be in the cache; the codec is that of ``weights``.
    """
    corpus, codec = Corpus(cache_folder(), "bent"), load_codec(weights)
    frames = load_lm(weights).config.max_prompt_frames
    speakers = list(unseen_speakers(corpus.utterances).items())[:count]
    held_out = {one.text: one for one in load_codes(cache_folder())["bent"][1]}
    said = [held_out[entries[1].text] for _, entries in speakers]
    given = [trimmed(corpus.samples(entries[0])) for _, entries in speakers]
    own: list[NDArray[np.int16]] = []
    for way in (*WAYS, RANDOM):
        coded = []
        for seed, samples in enumerate(given):
            sound = torch.from_numpy(captured_as(samples, way, seed))
            coded.append(codec.encode(sound)[:frames].numpy().astype(np.int16))
        own = own or coded
        yield way, list(zip(said, coded, strict=True))
    yield OTHER, list(zip(said, [*own[1:], own[0]], strict=True))
    yield NONE, [(one, None) for one in said]


@torch.inference_mode()
def losses(
    model: Valle, pairs: list[tuple[CodedUtterance, NDArray[np.int16] | None]], level: int
) -> NDArray[np.float64]:
    """Return a model's loss ``[N]`` in nats on each utterance, given its prompt."""
    random = np.random.default_rng(0)
    return np.array([
        losses_of(model, [Row(one, level, prompt)], random)[1][level][0] for one, prompt in pairs
    ])


def main() -> None:
    """Print the losses of some models, and how far the others are from the first."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--weights", type=Path, nargs="+", default=[BUILTIN_MODEL])
    parser.add_argument("--speakers", type=int, default=20)
    args = parser.parse_args()
    models = [load_lm(folder) for folder in args.weights]
    print("| the prompt |" + "".join(f" {w}, level {k} |" for w in args.weights for k in LEVELS))
    for way, pairs in prompts(args.speakers, args.weights[0]):
        first = [losses(models[0], pairs, level) for level in LEVELS]
        cells = [f"{one.mean():.3f}" for one in first]
        for model in models[1:]:
            for level, before in zip(LEVELS, first, strict=True):
                now = losses(model, pairs, level)
                error = (now - before).std(ddof=1) / len(now) ** 0.5
                cells.append(f"{now.mean():.3f} ({(now - before).mean():+.3f} ± {error:.3f})")
        print(f"| {way} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
