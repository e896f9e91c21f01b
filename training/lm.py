"""Train the AR+NAR language model on the codes of the corpus.

    python -m training.lm --minutes 80

Every row of a batch has its own task: level 0 with a causal mask, or one of the levels above with
the block-causal one. Its prompt is a piece of another utterance of the same speaker. Short
utterances come first: alignment of frames to phonemes forms on them. In a tenth of the rows prompt
and text are dropped, so that guidance has a null condition, in another tenth the prompt alone; a
few of the codes that a row sees are replaced by random ones, since at inference they are the
model's own.

`--warm-start CHECKPOINT` begins with the weights of another run, whose prompts, codes or speakers
may differ, and with no curriculum. Matrices of the stack are trained by Muon (Jordan et al. 2024),
the rest by AdamW. What is shipped is the moving average of the weights. The log has losses by
level; the same command goes on where the last run stopped.
"""

import argparse
import json
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from models.config import BOS_ID, EOS_ID, ModelConfig
from models.text import ENGLISH_SYMBOLS
from models.transformer import PADDING_RANK
from models.valle import Valle
from training.cache import cache_folder
from training.codes import CodedUtterance, load_codes

CONFIG = ModelConfig(
    name="valle-voices",
    width=256,
    layers=6,
    heads=4,
    kv_heads=2,
    ffn=896,
    phonemes=ENGLISH_SYMBOLS,
    max_phonemes=100,  # 99 of 100 sentences of the corpus
    max_prompt_frames=225,
    shared_tables=True,
    has_null_condition=True,
    nar_has_null_condition=True,
    preset="builtin",
)
POSITIONS = 4500  # of a batch, padding included
SHARES = {"speech": 0.6, "kokoro": 0.4}  # of the rows, by corpus
# The words hang on level 0, and more on the coarse levels than on the finest, which are close to
# noise: after a third of the run they no longer gain.
AR_SHARE = 0.65
NAR_SHARES = (0.34, 0.22, 0.14, 0.1, 0.08, 0.06, 0.06)
ALL_DROPPED, PROMPT_DROPPED = 0.1, 0.1
PROMPT_FRAMES_MIN = 75
CORRUPTED_UP_TO = 0.1
CURRICULUM_SHARE, CURRICULUM_START = 0.3, 0.2
MUON_RATE, ADAM_RATE = 2e-3, 2e-3
WARM_STEPS = 150
HOLD_SHARE = 0.45  # of the budget at the full rate, before it falls
AVERAGE_DECAY = 0.998
LOG_EVERY, SAVE_EVERY, VALIDATION_ROWS = 100, 500, 12


@dataclass(frozen=True)
class Row:
    """One utterance and what is asked of it: ``level`` 0 is the AR's, ``prompt`` is ``[Tp, K]``."""

    utterance: CodedUtterance
    level: int
    prompt: NDArray[np.int16] | None = None
    null: bool = False
    corrupted: float = 0.0


class Trainer:
    """Model, optimisers, average and data; `state` is all it needs to go on."""

    def __init__(self, minutes: float, device: torch.device, seed: int = 0) -> None:
        torch.manual_seed(seed)
        self.minutes, self.device = minutes, device
        self.random = np.random.default_rng(seed)
        by_source = load_codes(cache_folder())
        self.pools = {
            source: sorted(train, key=lambda utterance: len(utterance.codes))
            for source, (train, _) in by_source.items()
        }
        shares = np.array([SHARES[source] for source in self.pools])
        self.pool_shares = shares / shares.sum()
        self.validation = [one for _, held_out in by_source.values() for one in held_out]
        everything = [one for train in self.pools.values() for one in train]
        self.prompts = Prompts(everything, self.random)
        self.warm_started = False
        self.model = Valle(CONFIG).to(device)
        initialise(self.model)
        self.average = {
            name: value.detach().clone() for name, value in self.model.named_parameters()
        }
        matrices = [p for p in self.model.transformer.parameters() if p.ndim == 2]
        chosen = {id(p) for p in matrices}
        others = [p for p in self.model.parameters() if id(p) not in chosen]
        self.optimizers: list[torch.optim.Optimizer] = [
            torch.optim.Muon(
                matrices, lr=MUON_RATE, weight_decay=0.05, adjust_lr_fn="match_rms_adamw"
            ),
            torch.optim.AdamW(others, lr=ADAM_RATE, betas=(0.9, 0.95), weight_decay=0.01),
        ]
        self.step, self.spent_minutes = 0, 0.0

    @property
    def progress(self) -> float:
        """Share of the budget that is spent."""
        return min(1.0, self.spent_minutes / self.minutes)

    def run(self, log: Path, checkpoint: Path) -> None:
        """Train until the budget is spent."""
        began, before = time.monotonic(), self.spent_minutes
        losses: dict[int, list[tuple[float, float]]] = {}
        while self.spent_minutes < self.minutes:
            for level, values in self.train_step().items():
                losses.setdefault(level, []).append(values)
            self.step += 1
            self.spent_minutes = before + (time.monotonic() - began) / 60
            if self.step % LOG_EVERY == 0:
                self._log(log, "train", losses)
                self._log(log, "val", self.validate())
                losses = {}
            if self.step % SAVE_EVERY == 0:
                self.save(checkpoint)
        self.save(checkpoint)

    def train_step(self) -> dict[int, tuple[float, float]]:
        """Make one step; return loss in nats and accuracy by level."""
        rate = self._rate()
        for optimizer, full in zip(self.optimizers, (MUON_RATE, ADAM_RATE), strict=True):
            for group in optimizer.param_groups:
                group["lr"] = rate * full
        with torch.autocast(self.device.type, torch.bfloat16):
            loss, by_level = losses_of(self.model, self._draw_rows(), self.random)
        for optimizer in self.optimizers:
            optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        for optimizer in self.optimizers:
            optimizer.step()
        decay = min(AVERAGE_DECAY, (1 + self.step) / (10 + self.step))
        with torch.no_grad():
            torch._foreach_lerp_(
                list(self.average.values()), list(self.model.parameters()), 1 - decay
            )
        return by_level

    def _rate(self) -> float:
        warm = min(1.0, (self.step + 1) / WARM_STEPS)
        falling = max(0.0, (self.progress - HOLD_SHARE) / (1 - HOLD_SHARE))
        return warm * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * falling)))

    def _draw_rows(self) -> list[Row]:
        """Draw utterances of like length that fill the batch, each with a task and a prompt."""
        share = CURRICULUM_START + (1 - CURRICULUM_START) * self.progress / CURRICULUM_SHARE
        share = 1.0 if self.warm_started else min(1.0, share)
        utterances = self.pools[str(self.random.choice(list(self.pools), p=self.pool_shares))]
        pool = max(64, int(len(utterances) * share))
        centre = int(self.random.integers(0, pool))
        longest = utterances[centre].positions + (PROMPT_FRAMES_MIN + CONFIG.max_prompt_frames) // 2
        count = int(np.clip(POSITIONS // longest, 2, 64))
        first = int(np.clip(centre - 4 * count, 0, pool - 8 * count))
        near = self.random.choice(np.arange(max(0, first), pool)[: 8 * count], count, replace=False)
        frames = int(self.random.integers(PROMPT_FRAMES_MIN, CONFIG.max_prompt_frames + 1))
        return [self._task(utterances[index], frames) for index in near]

    def _task(self, utterance: CodedUtterance, prompt_frames: int) -> Row:
        corrupted = float(self.random.uniform(0, CORRUPTED_UP_TO))
        dropped = self.random.random()
        null = bool(dropped < ALL_DROPPED)
        prompt = None
        if dropped >= ALL_DROPPED + PROMPT_DROPPED:
            prompt = self.prompts.draw(utterance, prompt_frames)
        level = 0
        if self.random.random() >= AR_SHARE:
            level = 1 + int(self.random.choice(len(NAR_SHARES), p=NAR_SHARES))
        return Row(utterance, level, prompt, null, corrupted)

    @torch.no_grad()
    def validate(self) -> dict[int, list[tuple[float, float]]]:
        """Return loss and accuracy by level on utterances never trained on, always the same."""
        random = np.random.default_rng(0)
        prompts = Prompts(self.validation, random)
        chosen = self.validation[:: max(1, len(self.validation) // VALIDATION_ROWS)]
        prompted = [(one, prompts.draw(one, CONFIG.max_prompt_frames)) for one in chosen]
        with torch.autocast(self.device.type, torch.bfloat16):
            return {
                level: [
                    losses_of(self.model, [Row(one, level, prompt)], random)[1][level]
                    for one, prompt in prompted
                ]
                for level in range(CONFIG.levels)
            }

    def _log(self, log: Path, split: str, losses: dict[int, list[tuple[float, float]]]) -> None:
        means = {level: np.mean(values, 0) for level, values in sorted(losses.items())}
        with log.open("a") as file:
            for level, (loss, accuracy) in means.items():
                row = {"level": level, "loss": round(loss, 4), "accuracy": round(accuracy, 4)}
                row |= {"minutes": round(self.spent_minutes, 2), "step": self.step, "split": split}
                file.write(json.dumps(row) + "\n")
        shown = " ".join(f"{level}:{m[0]:.2f}/{m[1]:.2f}" for level, m in means.items())
        print(f"{self.spent_minutes:.1f}m {self.step} {split} {shown}", flush=True)

    def save(self, path: Path) -> None:
        """Write all that is needed to go on, and the averaged weights."""
        partial = path.with_suffix(".partial")
        state: dict[str, Any] = {
            "model": self.model.state_dict(),
            "average": self.average,
            "optimizers": [optimizer.state_dict() for optimizer in self.optimizers],
            "step": self.step,
            "spent_minutes": self.spent_minutes,
            "warm_started": self.warm_started,
        }
        torch.save(state, partial)
        partial.rename(path)

    def load(self, path: Path) -> None:
        """Go on from a saved state."""
        saved = torch.load(path, map_location=self.device, weights_only=True)
        self.model.load_state_dict(saved["model"])
        self.average = saved["average"]
        for optimizer, state in zip(self.optimizers, saved["optimizers"], strict=True):
            optimizer.load_state_dict(state)
        self.step, self.spent_minutes = saved["step"], saved["spent_minutes"]
        self.warm_started = saved["warm_started"]

    def warm_start(self, path: Path) -> None:
        """Begin with the averaged weights of another run; tables it lacks start afresh."""
        saved = torch.load(path, map_location=self.device, weights_only=True)["average"]
        self.model.load_state_dict(saved, strict=False)
        self.average = {
            name: value.detach().clone() for name, value in self.model.named_parameters()
        }
        self.warm_started = True


class Prompts:
    """Pieces of other utterances of the same speaker."""

    def __init__(self, utterances: Sequence[CodedUtterance], random: np.random.Generator) -> None:
        self._random = random
        self._by_speaker: dict[str, list[CodedUtterance]] = {}
        for utterance in utterances:
            self._by_speaker.setdefault(utterance.speaker, []).append(utterance)

    def draw(self, utterance: CodedUtterance, frames: int) -> NDArray[np.int16] | None:
        """Return at most ``frames`` ``[Tp, K]`` in the voice of ``utterance``, not from it."""
        others = self._by_speaker[utterance.speaker]
        if len(others) < 2:
            return None
        other = utterance
        while other is utterance:
            other = others[int(self._random.integers(len(others)))]
        start = int(self._random.integers(0, max(1, len(other.codes) - frames + 1)))
        return other.codes[start : start + frames]


def initialise(model: Valle) -> None:
    """Start small: every block begins as the identity, every head as nearly uniform."""
    for name, parameter in model.named_parameters():
        if parameter.ndim < 2:
            continue
        if name.endswith(("attention.out.weight", "feed_forward.down.weight")):
            nn.init.zeros_(parameter)
        else:
            linear = "transformer" in name or "heads" in name
            nn.init.normal_(parameter, std=0.03 if linear else 0.3)
    nn.init.normal_(model.separator, std=0.3)


def losses_of(
    model: Valle, rows: list[Row], random: np.random.Generator
) -> tuple[Tensor, dict[int, tuple[float, float]]]:
    """Return the mean cross-entropy over all predicted codes, and loss and accuracy by level."""
    device = model.separator.device
    embeddings, positions, ranks, spans, targets = [], [], [], [], []
    for row in rows:
        codes = torch.from_numpy(row.utterance.codes.astype(np.int64)).to(device)
        ids = [BOS_ID, EOS_ID] if row.null else row.utterance.phoneme_ids
        prompt = None
        if row.prompt is not None:
            prompt = torch.from_numpy(row.prompt.astype(np.int64)).to(device)
        prefix = model.prefix(ids, row.level, prompt=prompt)
        response = model.embed_response(_corrupt(codes, row, random), row.level)
        frames = torch.arange(len(codes), device=device)
        blocks = torch.cat([prefix.blocks, model.response_blocks(0, len(codes))])
        embeddings.append(torch.cat([prefix.embeddings, response]))
        positions.append(torch.cat([prefix.positions, frames]))
        ranks.append(model.ranks(row.level, blocks))
        target = codes[:, row.level]
        if row.level == 0:
            target = F.pad(target, (0, 1), value=model.config.stop_token)
        targets.append(target)
        first = len(prefix) - (row.level == 0)  # the AR's first code is predicted by the prefix
        spans.append((first, first + len(target)))
    pad = nn.utils.rnn.pad_sequence
    hidden = model.transformer(
        pad(embeddings, batch_first=True),
        pad(positions, batch_first=True),
        pad(ranks, batch_first=True, padding_value=PADDING_RANK),
    )
    total, count, by_level = hidden.new_zeros(()), 0, {}
    for level in sorted({row.level for row in rows}):
        of_level = [index for index, row in enumerate(rows) if row.level == level]
        predicted = torch.cat([hidden[index, slice(*spans[index])] for index in of_level])
        wanted = torch.cat([targets[index] for index in of_level])
        logits = model.logits(predicted, level).float()
        loss = F.cross_entropy(logits, wanted, reduction="sum")
        total, count = total + loss, count + len(wanted)
        accuracy = (logits.argmax(-1) == wanted).float().mean()
        by_level[level] = (loss.item() / len(wanted), accuracy.item())
    return total / count, by_level


def _corrupt(codes: Tensor, row: Row, random: np.random.Generator) -> Tensor:
    if not row.corrupted:
        return codes
    chosen = torch.from_numpy(random.random(tuple(codes.shape)) < row.corrupted).to(codes.device)
    other = torch.from_numpy(random.integers(0, CONFIG.codes, tuple(codes.shape)))
    return torch.where(chosen, other.to(codes.device), codes)


def main() -> None:
    """Train the language model within a time budget."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--minutes", type=float, default=80.0)
    parser.add_argument("--warm-start", type=Path, metavar="CHECKPOINT")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    folder = cache_folder() / "lm"
    folder.mkdir(exist_ok=True)
    trainer = Trainer(args.minutes, device, args.seed)
    parameters = sum(p.numel() for p in trainer.model.parameters())
    counts = {source: len(pool) for source, pool in trainer.pools.items()}
    print(f"{parameters / 1e6:.2f} M parameters, utterances: {counts}")
    if (folder / "checkpoint.pt").exists():
        trainer.load(folder / "checkpoint.pt")
    elif args.warm_start:
        trainer.warm_start(args.warm_start)
    trainer.run(folder / "log.jsonl", folder / "checkpoint.pt")


if __name__ == "__main__":
    main()
