"""What the kernel that samples is tried with where it is to run, against the sampler there."""

from collections.abc import Iterator
from typing import Any, Final

import torch

from gpu.kernels import Arguments, RandomInputs, Trial
from samplers.ar.state import PREDICTED, HostColumn
from samplers.cuda import operators
from samplers.knobs.params import SamplingParams
from samplers.plain import plain_row

_ROWS: Final = 3
_GUIDED: Final[tuple[dict[str, Any], ...]] = (
    {"temperature": 0.0, "cfg_strength": 1.5},
    {"temperature": 0.9, "top_k": 50, "top_p": 0.9, "cfg_strength": 3.0, "cfg_rescale": 0.7},
    {"temperature": 1.2, "top_p": 0.8, "min_p": 0.1, "min_tokens_to_keep": 3, "cfg_strength": 2.0},
)
_PENALISED: Final[tuple[dict[str, Any], ...]] = (
    {"logit_bias": {3: 2.0}, "ban_tokens": (5,), "min_frames": 20},
    {"repetition_penalty": 1.3, "repetition_penalty_decay": -0.5, "presence_penalty": 0.2},
    {"repetition_penalty": 1.1, "repetition_penalty_mode": "additive", "frequency_penalty": 0.3},
)


def trial(vocab_size: int, stop_token: int, device: torch.device) -> Trial:
    """Return the kernel with arguments of rows that are guided, and of rows that are penalised."""
    random = RandomInputs(device)

    def inputs() -> Iterator[Arguments]:
        numbers = random.whole(_ROWS, _ROWS, len(HostColumn))
        numbers[:, HostColumn.LIMIT] = 99
        numbers[:, HostColumn.KEY] = random.whole(2**62, _ROWS)
        numbers[:, HostColumn.ACTIVE] = 1
        numbers[:, HostColumn.AVOID_UNTIL] = torch.tensor((99, 0, 31))
        numbers[:, HostColumn.UNGUIDED_UNTIL] = torch.tensor((0, 1, 30))
        codes = random.whole(vocab_size - 1, _ROWS, 100)
        lengths = torch.tensor((95, 0, 30)).to(device)
        logits = random.normal(2 * _ROWS, vocab_size)
        avoid = random.normal(_ROWS, vocab_size)
        changed = codes, lengths, random.whole(3, _ROWS) == 0
        results = torch.zeros(_ROWS, 3, dtype=torch.float64, device=device)
        for knobs, partners in ((_GUIDED, (1, 2, PREDICTED)), (_PENALISED, (0, 1, 2))):
            numbers[:, HostColumn.PARTNER] = torch.tensor(partners)
            records = [plain_row(SamplingParams.model_validate(one), vocab_size) for one in knobs]
            plain = torch.stack(records).to(device)
            yield 3 * logits, numbers, avoid, plain, *changed, results, stop_token

    return Trial(operators.sample, inputs)
