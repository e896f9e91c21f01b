"""Does the model hear words? How much likelier level 0 of true speech is by its text.

    python -m lab.training.judging.text_gain --weights weights NEXT

People who are kept out of training, and mixtures of the slow teacher that are, say a sentence each
after a prompt of their own; the loss of level 0 is told with the text and without, in nats a frame.
The codes of both must be there (`lab.training.lm.codes`).
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional as F

from app.commands.study.bootstrap import estimate_ratio
from app.settings import BUILTIN_MODEL
from lab.training.cache import cache_folder
from lab.training.lm.codes import PEOPLE, SLOW, CodedUtterance, load_codes
from lab.training.lm.rows import Prompts
from models.checkpoints.builtin import load_lm
from models.config import BOS_ID, EOS_ID
from models.valle import Valle

PROMPT_FRAMES: Final = 225


@torch.inference_mode()
def losses(model: Valle, utterances: Sequence[CodedUtterance]) -> NDArray[np.float64]:
    """Return the loss of level 0 with the text and without, ``[N, 2]`` in nats a frame.

    One utterance of each speaker whose text is known and who said another, the prompt.
    """
    prompts, random = Prompts(utterances), np.random.default_rng(0)
    first = {one.speaker: one for one in reversed(utterances) if one.phonemes}
    found = []
    for speaker in sorted(first):
        prompt = prompts.draw(first[speaker], PROMPT_FRAMES, random)
        if prompt is None:
            continue
        codes = torch.from_numpy(first[speaker].codes.astype(np.int64))
        given = torch.from_numpy(prompt.astype(np.int64))
        texts = first[speaker].phoneme_ids, [BOS_ID, EOS_ID]
        logits = [model.ar_logits(model.prefix(ids, 0, prompt=given), codes) for ids in texts]
        found.append([float(F.cross_entropy(one[:-1], codes[:, 0])) for one in logits])
    return np.array(found)


def main() -> None:
    """Print what the text is worth to each model."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--weights", type=Path, nargs="+", default=[BUILTIN_MODEL])
    args = parser.parse_args()
    kept_out = {source: held_out for source, (_, held_out) in load_codes(cache_folder()).items()}
    print("| | with the text | without | the text is worth |")
    print("| --- | ---: | ---: | ---: |")
    for source in (PEOPLE, SLOW):
        spoken = [one for one in kept_out.get(source, []) if one.part == "speakers"]
        for folder in args.weights if spoken else ():
            told, untold = losses(load_lm(folder), spoken).T
            worth = estimate_ratio(untold - told, np.ones(len(told)))
            means = f"{told.mean():.3f} | {untold.mean():.3f}"
            cell = f"{worth.value:.3f} [{worth.low:.3f}, {worth.high:.3f}]"
            print(f"| {len(told)} of {source}, {folder} | {means} | {cell} |", flush=True)


if __name__ == "__main__":
    main()
