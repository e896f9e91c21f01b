"""Train the AR+NAR language model on the codes of the corpus.

    python -m lab.training.lm.train --steps 3000

Every row of a batch has its own task: level 0 with a causal mask, or one of the levels above with
the block-causal one. Its prompt is a piece of another utterance of the same speaker. Short
utterances come first: alignment of frames to phonemes forms on them. In a tenth of the rows prompt
and text are dropped, so that guidance has a null condition, in another twentieth the prompt alone.
A few of the codes that a row sees are replaced by random ones and, of level 0, by draws of the
model, since at inference they are all its own. How long an utterance rests at its end is drawn anew
(`lab.training.lm.rests`), and in some rows of level 0 the text grows (`lab.training.lm.growing`).

`--warm-start FOLDER` begins with exported weights and with no curriculum: with all of them where
the folder's codec makes the same codes, else with its stack, its tables translated (see
`lab.training.lm.translate`). Matrices of the stack are trained by Muon (Jordan et al. 2024), the
rest by AdamW; their rates fall to zero over the budget of steps. What is exported is the moving
average of the weights. The log has losses by level, of training beside those of validation. The
same command goes on where the last run stopped: batches follow from the seed and the number of the
step.
"""

import argparse
import json
import math
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from lab.training.cache import cache_folder, present_model
from lab.training.lm.batches import Batches
from lab.training.lm.codes import (
    PEOPLE,
    CodedUtterance,
    codes_folder,
    load_captured,
    load_codes,
)
from lab.training.lm.growing import FrameWords
from lab.training.lm.rows import Prompts, Row, losses_of
from lab.training.lm.translate import initialise, parallel_codes, some_speech, translate
from lab.training.speed import fastest_type
from models.checkpoints.builtin import load_codec, load_lm
from models.config import AlignmentHead, ModelConfig
from models.text import ENGLISH_SYMBOLS
from models.valle import Valle

CONFIG = ModelConfig(
    name="valle-voices",
    width=256,
    layers=6,
    heads=4,
    kv_heads=2,
    ffn=896,
    phonemes=ENGLISH_SYMBOLS,
    max_phonemes=100,  # 99 of 100 sentences of the corpus
    levels=4,
    max_prompt_frames=450,  # 6 s tell more of who speaks than 3
    shared_tables=True,
    prompt_all_levels=True,  # level 0 alone has not enough of who speaks
    has_null_condition=True,
    nar_has_null_condition=True,
    preset="builtin",
    alignment=AlignmentHead(layer=3, head=2, lead_frames=3),  # of `valle-serve tools calibrate`
)
CURRICULUM_SHARE, CURRICULUM_START = 0.3, 0.2
MUON_RATE, ADAM_RATE = 2e-3, 2e-3
WARM_STEPS = 60
HOLD_SHARE = 0.3  # of the budget at the full rate, before it falls
AVERAGE_DECAY = 0.995
LOG_EVERY, SAVE_EVERY, VALIDATION_ROWS = 50, 25, 12
TRANSLATED_UTTERANCES = 1500  # encoded by both codecs to translate tables


class Trainer:
    """Model, optimisers, average and data; `state` is all it needs to go on.

    The rates of learning are multiplied by ``rate``: a short run that goes on from trained
    weights wants less than 1.
    """

    def __init__(self, steps: int, device: torch.device, seed: int = 0, rate: float = 1.0) -> None:
        torch.manual_seed(seed)
        self.steps, self.device, self.seed, self.rate = steps, device, seed, rate
        self.dtype = fastest_type(device)
        by_source = load_codes(cache_folder())
        self.sources = list(by_source)
        self.recorded = load_captured(cache_folder())
        said = [(source, one) for source, (train, _) in by_source.items() for one in train]
        self.batches = Batches(said, self.recorded, CONFIG.max_prompt_frames)
        self.validation: dict[str, list[CodedUtterance]] = {}
        for source, (_, held_out) in by_source.items():
            group = PEOPLE if source == PEOPLE else "val"
            self.validation.setdefault(group, []).extend(held_out)
        self.warm_started = False
        self.aligner: Valle | None = None
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
        self.step, self.positions = 0, 0

    @property
    def progress(self) -> float:
        """Share of the budget that is spent."""
        return min(1.0, self.step / self.steps)

    def run(self, log: Path, checkpoint: Path) -> None:
        """Train until the budget is spent."""
        began, positions_before = time.monotonic(), self.positions
        losses: dict[int, list[tuple[float, float]]] = {}
        while self.step < self.steps:
            for level, values in self.train_step().items():
                losses.setdefault(level, []).append(values)
            if self.step % LOG_EVERY == 0:
                a_second = (self.positions - positions_before) / (time.monotonic() - began)
                self._log(log, "train", losses, a_second)
                for group in self.validation:
                    self._log(log, group, self.validate(group), a_second)
                if self.recorded:
                    self._log(log, "recorded", self.validate(recorded=1.0), a_second)
                losses, began, positions_before = {}, time.monotonic(), self.positions
            if self.step % SAVE_EVERY == 0:
                self.save(checkpoint)
        self.save(checkpoint)

    def train_step(self) -> dict[int, tuple[float, float]]:
        """Make one step; return loss in nats and accuracy by level."""
        share = CURRICULUM_START + (1 - CURRICULUM_START) * self.progress / CURRICULUM_SHARE
        share = 1.0 if self.warm_started else min(1.0, share)
        rows, random = self.batches.draw(self._random(0), share), self._random(1)
        rate = self.rate * self._rate()
        for optimizer, full in zip(self.optimizers, (MUON_RATE, ADAM_RATE), strict=True):
            for group in optimizer.param_groups:
                group["lr"] = rate * full
        with self._in_fastest_type():
            loss, by_level = losses_of(self.model, rows, random)
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
        self.step += 1
        self.positions += sum(row.positions for row in rows)
        return by_level

    def _rate(self) -> float:
        warm = min(1.0, (self.step + 1) / WARM_STEPS)
        falling = max(0.0, (self.progress - HOLD_SHARE) / (1 - HOLD_SHARE))
        return warm * 0.5 * (1 + math.cos(math.pi * falling))

    def _random(self, use: int) -> np.random.Generator:
        return np.random.default_rng([self.seed, self.step, use])

    def _in_fastest_type(self) -> torch.autocast:
        return torch.autocast(self.device.type, self.dtype, self.dtype != torch.float32)

    @torch.no_grad()
    def validate(
        self, group: str = "val", recorded: float = 0.0
    ) -> dict[int, list[tuple[float, float]]]:
        """Return loss and accuracy by level on utterances never trained on, always the same.

        The ``group`` is that of people, or of all others (``val``). In a share of ``recorded`` the
        prompt is a recording, where there is one.
        """
        random = np.random.default_rng(0)
        prompts = Prompts(self.validation[group], self.recorded)
        spoken = [one for one in self.validation[group] if one.phonemes]
        chosen = spoken[:: max(1, len(spoken) // VALIDATION_ROWS)]
        prompted = [
            (one, prompts.draw(one, CONFIG.max_prompt_frames, random, recorded)) for one in chosen
        ]
        with self._in_fastest_type():
            return {
                level: [
                    losses_of(self.model, [Row(one, level, prompt)], random)[1][level]
                    for one, prompt in prompted
                ]
                for level in range(CONFIG.levels)
            }

    def _log(
        self,
        log: Path,
        split: str,
        losses: dict[int, list[tuple[float, float]]],
        positions_per_s: float,
    ) -> None:
        means = {level: np.mean(values, 0) for level, values in sorted(losses.items())}
        with log.open("a") as file:
            for level, (loss, accuracy) in means.items():
                row = {"level": level, "loss": round(loss, 4), "accuracy": round(accuracy, 4)}
                row |= {"step": self.step, "split": split}
                row["positions_per_s"] = round(positions_per_s)
                file.write(json.dumps(row) + "\n")
        shown = " ".join(f"{level}:{m[0]:.2f}/{m[1]:.2f}" for level, m in means.items())
        print(f"{self.step} {split} {shown} {positions_per_s:.0f}/s", flush=True)

    def save(self, path: Path) -> None:
        """Write all that is needed to go on, and the averaged weights."""
        partial = path.with_suffix(".partial")
        state: dict[str, Any] = {
            "model": self.model.state_dict(),
            "average": self.average,
            "optimizers": [optimizer.state_dict() for optimizer in self.optimizers],
            "step": self.step,
            "positions": self.positions,
            "warm_started": self.warm_started,
            "aligner": None if self.aligner is None else self.aligner.state_dict(),
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
        self.step, self.positions = saved["step"], saved["positions"]
        self.warm_started = saved["warm_started"]
        if saved["aligner"] is not None:
            self._align_by(saved["aligner"])

    def warm_start(self, folder: Path) -> None:
        """Begin with exported weights; they are translated if they have a codec that is another."""
        other = load_lm(folder)
        own_codec = (folder / "codec.safetensors").exists()
        if not own_codec or codes_folder(cache_folder(), folder) == codes_folder(cache_folder()):
            self.model.load_state_dict(self.model.state_dict() | other.state_dict())
        else:
            speech = some_speech(self.sources, TRANSLATED_UTTERANCES)
            codecs = load_codec(folder), load_codec(present_model())
            translate(other, self.model.cpu(), parallel_codes(speech, *codecs))
            self.model.to(self.device)
        self.average = {
            name: value.detach().clone() for name, value in self.model.named_parameters()
        }
        self.warm_started = True
        self._align_by(self.model.state_dict())

    def _align_by(self, state: dict[str, Tensor]) -> None:
        """From now on texts grow in some rows: frames are aligned by a model that stays."""
        if CONFIG.alignment is None:
            return
        self.aligner = Valle(CONFIG).to(self.device).eval()
        self.aligner.load_state_dict(state)
        self.batches.words = FrameWords(self.aligner)


def main() -> None:
    """Train the language model within a budget of steps."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--warm-start", type=Path, metavar="FOLDER")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rate", type=float, default=1.0, help="of learning, of the full ones")
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    folder = cache_folder() / "lm"
    folder.mkdir(exist_ok=True)
    trainer = Trainer(args.steps, device, args.seed, args.rate)
    parameters = sum(p.numel() for p in trainer.model.parameters())
    counts = {source: len(pool) for source, pool in trainer.batches.pools.items()}
    print(f"{parameters / 1e6:.2f} M parameters, utterances: {counts}, in {trainer.dtype}")
    if (folder / "checkpoint.pt").exists():
        trainer.load(folder / "checkpoint.pt")
    elif args.warm_start:
        trainer.warm_start(args.warm_start)
    trainer.run(folder / "log.jsonl", folder / "checkpoint.pt")


if __name__ == "__main__":
    main()
