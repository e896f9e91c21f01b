"""Loss of held-out speech in 8 bits compared with float32, level by level.

    python -m lab.benchmarks.model.int8_loss --utterances 40

"int8" has weights, keys and values in 8 bits, as a CPU; "8-bit pages" keys and values alone, as a
GPU with ``TTS_KV_CACHE_DTYPE=int8``. All run the same prefixes and codes through KV caches, as the
service does; the codes are those of held-out utterances in the training cache.
"""

import copy
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F
from tqdm import tqdm

from app.engine.memory import make_pool
from app.settings import BUILTIN_MODEL
from lab.benchmarks.harness.report import argument_parser, conclude, machine
from lab.training.cache import cache_folder
from lab.training.lm.codes import CodedUtterance, load_codes
from lab.training.lm.rows import Prompts
from models.checkpoints.builtin import load_lm
from models.int8.quantized import quantize_linears
from models.stack.slot_cache import SlotCache
from models.valle import Valle

POOL_BYTES = 1 << 28


@torch.inference_mode()
def loss(
    model: Valle,
    new_cache: Callable[[int, int], SlotCache],
    utterance: CodedUtterance,
    prompt: Tensor | None,
    level: int,
) -> float:
    """Return the summed loss of one level of an utterance, in nats."""
    codes = torch.from_numpy(utterance.codes.astype(np.int64))
    prefix = model.prefix(utterance.phoneme_ids, level, prompt=prompt)
    cache, stack = new_cache(1, len(prefix) + len(codes)), model.transformer
    first = model.read(prefix, cache, 0)[0][-1:]
    positions = prefix.response_start + torch.arange(len(codes))
    ranks = model.ranks(level, model.response_blocks(0, len(codes)))
    rest = stack.extend(model.embed_response(codes, level), positions, cache, 0, ranks)[0]
    wanted, hidden = codes[:, level], rest
    if level == 0:
        wanted = F.pad(wanted, (0, 1), value=model.config.stop_token)
        hidden = torch.cat([first, rest])
    return F.cross_entropy(model.logits(hidden, level), wanted, reduction="sum").item()


def main() -> int:
    """Run the command line."""
    parser = argument_parser(__doc__)
    parser.add_argument("--utterances", type=int, default=40)
    args, started = parser.parse_args(), machine()
    torch.set_num_threads(1)
    model = load_lm(BUILTIN_MODEL)
    quantized = copy.deepcopy(model)
    quantize_linears(quantized)
    pages = make_pool(model, POOL_BYTES, "int8")
    compared = (
        (model, model.new_cache), (quantized, quantized.new_cache), (model, pages.new_cache),
    )  # fmt: skip
    held_out = [one for _, some in load_codes(cache_folder()).values() for one in some]
    chosen = held_out[:: max(1, len(held_out) // args.utterances)][: args.utterances]
    prompts, random = Prompts(held_out), np.random.default_rng(0)
    drawn = [prompts.draw(one, model.config.max_prompt_frames, random) for one in chosen]
    prompted = [None if one is None else torch.from_numpy(one.astype(np.int64)) for one in drawn]
    codes = sum(len(one.codes) for one in chosen)
    rows: list[dict[str, Any]] = []
    for level in tqdm(range(model.config.levels)):
        losses = np.array([
            [loss(*one, utterance, prompt, level) for one in compared]
            for utterance, prompt in zip(chosen, prompted, strict=True)
        ])
        rows.append({"level": level, "float32, nats a code": losses[:, 0].sum() / codes})
        for name, other in zip(("int8", "8-bit pages"), losses.T[1:], strict=True):
            more = other - losses[:, 0]
            error = more.std() * len(more) ** 0.5
            rows[-1][f"{name} more, thousandths"] = 1000 * more.sum() / codes
            rows[-1][f"{name}, standard error, thousandths"] = 1000 * error / codes
    return conclude(rows, [], args.out, started)


if __name__ == "__main__":
    sys.exit(main())
