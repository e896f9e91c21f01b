"""Guidance in one row: training of a `models.null_head.NullHead`.

    python -m lab.training.lm.null_head --steps 1500 --weights weights

The stack is frozen: conditional logits, strength 1, NAR levels and alignment stay as they are, and
any strength can be asked for, the less exact the higher it is.

It is trained by the divergence of what it makes of the logits from what two rows give (Meng et al.
2023, "On Distillation of Guided Diffusion Models", arXiv:2210.03142, distil guidance likewise). The
same command goes on where the last run stopped. The log has the divergence at some strengths on
utterances never trained on.
"""

import argparse
import json
import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np
import torch
from torch import Tensor, nn

from app.settings import BUILTIN_MODEL
from lab.training.cache import cache_folder
from lab.training.lm.codes import CodedUtterance, load_captured, load_codes
from lab.training.lm.rests import rested, sample_rest
from lab.training.lm.rows import Prompts, Row, corrupt, predicting
from models.checkpoints.builtin import load_lm
from models.config import NullHeadConfig
from models.null_head import NullHead
from models.valle import Valle

STRENGTHS: Final = (1.5, 2.0, 2.5)
SPEC: Final = NullHeadConfig(layers=(1, 3), hidden=512, rank=32, max_strength=max(STRENGTHS))
POSITIONS: Final = 1400  # of a batch, padding included
PROMPT_FRAMES: Final = (50, 226)
CORRUPTED_UP_TO: Final = 0.1
RATE, WARM_STEPS = 1e-3, 20
LOG_EVERY, SAVE_EVERY, VALIDATION_ROWS = 100, 50, 24


def guided(conditional: Tensor, null: Tensor, strength: float) -> Tensor:
    """Return the logits that are drawn from."""
    return null + strength * (conditional - null)


def divergence(wanted: Tensor, given: Tensor) -> Tensor:
    """Return the Kullback-Leibler divergence ``[N]`` in nats of logits ``[N, V]``."""
    log = wanted.log_softmax(-1)
    return (log.exp() * (log - given.log_softmax(-1))).sum(-1)


class NullHeadTrainer:
    """Trains a head on a model that stays as it is."""

    def __init__(self, model: Valle, steps: int, seed: int = 0) -> None:
        torch.manual_seed(seed)
        self.model, self.steps, self.seed, self.step = model.eval(), steps, seed, 0
        model.requires_grad_(requires_grad=False)
        by_source = load_codes(cache_folder()).values()
        train = [one for part, _ in by_source for one in part]
        held_out = [one for _, part in by_source for one in part]
        recorded = load_captured(cache_folder())
        self.prompts = Prompts(train, recorded), Prompts(held_out, recorded)
        self.pool = sorted((one for one in train if one.phonemes), key=lambda one: len(one.codes))
        spoken = [one for one in held_out if one.phonemes]
        self.validation = spoken[:: max(1, len(spoken) // VALIDATION_ROWS)]
        self.head = NullHead(model.config.width, model.config.codes + 1, SPEC)
        self.optimizer = torch.optim.AdamW(
            self.head.parameters(), lr=RATE, betas=(0.9, 0.95), weight_decay=0.01
        )

    def run(self, log: Path, checkpoint: Path) -> None:
        """Train until the budget is spent."""
        losses, began = [], time.monotonic()
        while self.step < self.steps:
            losses.append(self.train_step())
            if self.step % LOG_EVERY == 0 or self.step == self.steps:
                row = {"step": self.step, "loss": float(np.mean(losses)), **self.validate()}
                row["s_a_step"] = (time.monotonic() - began) / len(losses)
                row = {name: round(value, 4) for name, value in row.items()}
                with log.open("a") as file:
                    file.write(json.dumps(row) + "\n")
                print(row, flush=True)
                losses, began = [], time.monotonic()
            if self.step % SAVE_EVERY == 0:
                self.save(checkpoint)
        self.save(checkpoint)

    def train_step(self) -> float:
        """Make one step; return its loss in nats."""
        random = np.random.default_rng([self.seed, self.step])
        done = self.step / self.steps
        rate = RATE * min(1.0, (self.step + 1) / WARM_STEPS) * 0.5 * (1 + math.cos(math.pi * done))
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        rows = self._draw(random)
        seen = [corrupt(_codes(row), row, self.model.config.codes, random) for row in rows]
        conditional, null, predicted = self._logits(rows, seen)
        strength = float(random.choice(STRENGTHS))
        wanted, given = (guided(conditional, one, strength) for one in (null, predicted))
        loss = divergence(null, predicted).mean() + divergence(wanted, given).mean()
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(self.head.parameters(), 1.0)
        self.optimizer.step()
        self.step += 1
        return loss.item()

    def _draw(self, random: np.random.Generator) -> list[Row]:
        """Draw utterances of like length that fill a batch, each with a prompt."""
        centre = int(random.integers(len(self.pool)))
        count = max(1, POSITIONS // (self.pool[centre].positions + PROMPT_FRAMES[1]))
        first = int(np.clip(centre - 4 * count, 0, max(0, len(self.pool) - 8 * count)))
        alike = range(first, min(len(self.pool), first + 8 * count))
        chosen = [self.pool[place] for place in random.choice(alike, count, replace=False)]
        return [self._row(one, self.prompts[0], random) for one in chosen]

    def _row(self, one: CodedUtterance, prompts: Prompts, random: np.random.Generator) -> Row:
        prompt = prompts.draw(one, int(random.integers(*PROMPT_FRAMES)), random, 0.3)
        corrupted = float(random.uniform(0, CORRUPTED_UP_TO))
        codes = rested(one.codes, sample_rest(random), random)
        spoken = CodedUtterance(one.text, one.phonemes, codes, one.speaker)
        return Row(spoken, 0, prompt, corrupted=corrupted)

    def _logits(self, rows: Sequence[Row], seen: Sequence[Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        """Return conditional, null and predicted logits ``[N, V]`` of all positions of rows."""
        nulls = [Row(row.utterance, 0, null=True) for row in rows]
        with torch.no_grad():
            states = torch.cat(predicting(self.model, rows, seen, SPEC.layers))
            null = self.model.logits(torch.cat(predicting(self.model, nulls, seen)), 0)
            hidden = states[:, : self.model.config.width]
            conditional = self.model.logits(hidden, 0)
        correction, difference = self.head(states).split([hidden.shape[1], null.shape[1]], 1)
        return conditional, null, self.model.logits(hidden + correction, 0) + difference

    @torch.no_grad()
    def validate(self) -> dict[str, float]:
        """Return divergence and share of same likeliest codes by strength, always of the same."""
        random, found = np.random.default_rng(0), []
        for one in self.validation:
            prompt = self.prompts[1].draw(one, PROMPT_FRAMES[1] - 1, random)
            row = Row(one, 0, prompt)
            conditional, null, predicted = self._logits([row], [_codes(row)])
            values = []
            for strength in STRENGTHS:
                wanted, given = (guided(conditional, x, strength) for x in (null, predicted))
                same = (wanted.argmax(-1) == given.argmax(-1)).float().mean()
                untaught = divergence(wanted, conditional).mean()
                values += [divergence(wanted, given).mean(), same, untaught]
            found.append(torch.stack(values))
        means = iter(torch.stack(found).mean(0).tolist())
        return {
            f"{name}_{strength:g}": next(means)
            for strength in STRENGTHS
            for name in ("divergence", "same", "one_row")
        }

    def save(self, path: Path) -> None:
        """Write all that is needed to go on."""
        partial = path.with_suffix(".partial")
        state = {
            "head": self.head.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "step": self.step,
        }
        torch.save(state, partial)
        partial.rename(path)

    def load(self, path: Path) -> None:
        """Go on from a saved state."""
        saved = torch.load(path, weights_only=True)
        self.head.load_state_dict(saved["head"])
        self.optimizer.load_state_dict(saved["optimizer"])
        self.step = saved["step"]


def _codes(row: Row) -> Tensor:
    """Return the codes ``[T, K]`` of a row."""
    return torch.from_numpy(row.utterance.codes.astype(np.int64))


def main() -> None:
    """Train the null head of a model within a budget of steps."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--weights", type=Path, default=BUILTIN_MODEL)
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    folder = cache_folder() / "null"
    folder.mkdir(exist_ok=True)
    trainer = NullHeadTrainer(load_lm(args.weights).float(), args.steps)
    numbers = sum(parameter.numel() for parameter in trainer.head.parameters())
    print(f"{numbers / 1e6:.2f} M parameters, {len(trainer.pool)} utterances", flush=True)
    if (folder / "checkpoint.pt").exists():
        trainer.load(folder / "checkpoint.pt")
    trainer.run(folder / "log.jsonl", folder / "checkpoint.pt")


if __name__ == "__main__":
    main()
