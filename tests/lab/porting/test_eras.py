"""`eras` finds the switches that a toy model was trained with."""

from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.nn import functional as F

from lab.porting.convert import Switches
from lab.porting.eras import Pair, eras
from models.checkpoints.published.layouts import FileLayout, find_layout
from models.config import BOS_ID, EOS_ID
from models.valle import Valle
from tests.toy import make_public as toy
from tests.toy.make_public import load_switched

LEVELS, CODES, SYMBOLS, FRAMES, BATCH = 4, 16, 12, 16, 6
SIZES = {"levels": LEVELS, "codes": CODES}
TABLES = torch.stack([
    torch.randperm(CODES, generator=torch.Generator().manual_seed(seed)) for seed in range(8)
])


def utterance(generator: torch.Generator, switches: Switches) -> Pair:
    """Make speech that every switch matters to.

    Level 0 spells the phonemes, in another way in each language. Each NAR level is a substitution
    of level 0: the even ones of the same frame, the odd ones of a neighbour, the next frame where
    the model may see it.
    """
    language = int(torch.randint(2, (), generator=generator)) if switches.language else 0
    symbols = torch.randint(3, 3 + SYMBOLS, (FRAMES,), generator=generator)
    first = TABLES[language][symbols - 3]
    beside = first.roll(-1 if switches.nar_mask == "full" else 1)
    levels = [TABLES[1 + q][beside if q % 2 else first] for q in range(1, LEVELS)]
    codes = torch.stack([first, *levels], 1)
    return Pair([BOS_ID, *symbols.tolist(), EOS_ID], codes, language)


def loss(model: Valle, pairs: Sequence[Pair], level: int) -> Tensor:
    """Cross entropy of a level over utterances of one length, in one batch."""
    prefixes = [model.prefix(pair.phoneme_ids, level, language=pair.language) for pair in pairs]
    x = torch.stack([
        torch.cat([prefix.embeddings, model.embed_response(pair.codes, level)])
        for prefix, pair in zip(prefixes, pairs, strict=True)
    ])
    start = len(prefixes[0])
    positions = torch.cat([prefixes[0].positions, torch.arange(FRAMES)]).expand(len(pairs), -1)
    blocks = torch.cat([prefixes[0].blocks, model.response_blocks(0, FRAMES)])
    ranks = model.ranks(level, blocks).expand(len(pairs), -1)
    hidden = model.transformer(x, positions, ranks)[:, start - (level == 0) :]
    truth = torch.stack([pair.codes[:, level] for pair in pairs])
    if level == 0:
        truth = F.pad(truth, (0, 1), value=CODES)
    return F.cross_entropy(model.logits(hidden, level).transpose(1, 2), truth)


def train(path: Path, switches: Switches, steps: int) -> float:
    """Train the model in a file with known switches, write it back, and return the last losses."""
    model = load_switched(path, switches).requires_grad_(True)
    generator = torch.Generator().manual_seed(7)
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-2)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, 1e-2, total_steps=steps)
    last: list[float] = []
    for _ in range(steps):
        pairs = [utterance(generator, switches) for _ in range(BATCH)]
        total = torch.stack([loss(model, pairs, level) for level in range(LEVELS)]).mean()
        optimiser.zero_grad()
        total.backward()
        optimiser.step()
        schedule.step()
        last = [*last[-9:], float(total.detach())]
    model.requires_grad_(False)
    layout = find_layout(load_file(path), str(path))
    save_file(published(model, layout), path, toy.metadata("ar+nar", levels=LEVELS))
    return sum(last) / len(last)


def published(model: Valle, layout: FileLayout) -> dict[str, Tensor]:
    """Return a model's tensors under their published names."""
    ours = model.state_dict()
    theirs = {
        part: piece.contiguous()
        for name, (parts, _) in layout.tables().items()
        for part, piece in zip(parts, ours[name].chunk(len(parts)), strict=True)
    }
    return theirs | {
        f"classifiers.proj.{number}.bias": ours[f"{name}.bias"]
        for number, (name, _) in layout.heads().items()
    }


@pytest.mark.slow
@pytest.mark.parametrize(
    ("truth", "steps", "limit"),
    [
        (Switches("exclusive", "full", language=False), 200, 1.5),
        (Switches("inclusive", "causal", language=True), 500, 1.2),
    ],
)
def test_the_switches_of_a_model_trained_for_seconds_are_found(
    tmp_path: Path, truth: Switches, steps: int, limit: float
) -> None:
    path = tmp_path / "fp32.sft"
    random = toy.tensors("ar+nar", dtype=torch.float32, **SIZES)
    random = {name: t * 0.3 if "_emb." in name else t for name, t in random.items()}
    save_file(random, path, toy.metadata("ar+nar", levels=LEVELS))
    assert train(path, truth, steps) < limit  # it has learnt something to be measured
    generator = torch.Generator().manual_seed(99)
    found = eras(path, [utterance(generator, truth) for _ in range(8)])
    assert len(found) == 12
    assert found[0].switches == truth
    assert [one.total for one in found] == sorted(one.total for one in found)


def test_nothing_to_measure_with_and_other_levels_are_refused(tmp_path: Path) -> None:
    path = toy.make_public(tmp_path, "ar+nar")
    with pytest.raises(ValueError, match="no codes"):
        eras(path, [])
    with pytest.raises(ValueError, match="codes have 4 levels, the model 8"):
        eras(path, [Pair([1, 5, 2], torch.zeros(3, 4, dtype=torch.int64))])
