"""Train the AR+NAR language model on the codes of the corpus.

    python -m training.lm.train --steps 3000

Every row of a batch has its own task: level 0 with a causal mask, or one of the levels above with
the block-causal one. Its prompt is a piece of another utterance of the same speaker. Short
utterances come first: alignment of frames to phonemes forms on them. In a tenth of the rows prompt
and text are dropped, so that guidance has a null condition, in another twentieth the prompt alone.
A few of the codes that a row sees are replaced by random ones and, of level 0, by draws of the
model, since at inference they are all its own.

`--warm-start FOLDER` begins with exported weights and with no curriculum: with all of them where
the folder's codec makes the same codes, else with its stack, its tables translated (see
`training.lm.translate`). Matrices of the stack are trained by Muon (Jordan et al. 2024), the rest
by AdamW; their rates fall to zero over the budget of steps. What is exported is the moving average
of the weights. The log has losses by level, of training beside those of validation. The same
command goes on where the last run stopped: batches follow from the seed and the number of the step.
"""

import argparse
import json
import math
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from models.checkpoints.builtin import load_codec, load_lm
from models.config import AlignmentHead, ModelConfig
from models.text import ENGLISH_SYMBOLS
from models.valle import Valle
from training.cache import cache_folder, present_model
from training.lm.codes import CodedUtterance, codes_folder, load_codes, load_recorded
from training.lm.rows import PIECES_UP_TO, Prompts, Row, losses_of
from training.lm.translate import initialise, parallel_codes, some_speech, translate
from training.speed import fastest_type

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
POSITIONS = 2400  # of a batch, padding included
# Of the rows, by pool: `pool_of` says who is in which. A model that is to speak as anybody must not
# hear the named voices alone, and these are most of what was said, at other sizes too.
SHARES = {
    "speech": 0.14,
    "kokoro": 0.2,
    "mixtures": 0.12,
    "bent": 0.12,
    "readers": 0.22,
    "perturbed": 0.2,
}
# The words hang on level 0: with the teacher's codes there, the further voices were understood but
# for 7.5 % of the words, with the model's own but for 18 %. Of the others more hang on the coarse.
AR_SHARE = 0.62
NAR_SHARES = (0.48, 0.3, 0.22)
ALL_DROPPED, PROMPT_DROPPED = 0.1, 0.05
RECORDED_PROMPTS = 0.55  # of the prompts: as people record them; the built-in voices' are clean
PROMPT_FRAMES_MIN = 50
CORRUPTED_UP_TO = 0.1
# Draws cost a pass more: a third of the steps has them, in all of their rows of level 0.
DRAWN_STEPS, DRAWN_UP_TO = 0.3, 0.9
CURRICULUM_SHARE, CURRICULUM_START = 0.3, 0.2
MUON_RATE, ADAM_RATE = 2e-3, 2e-3
WARM_STEPS = 60
HOLD_SHARE = 0.3  # of the budget at the full rate, before it falls
AVERAGE_DECAY = 0.995
LOG_EVERY, SAVE_EVERY, VALIDATION_ROWS = 50, 100, 12
TRANSLATED_UTTERANCES = 1500  # encoded by both codecs to translate tables


def pool_of(source: str, speaker: str) -> str:
    """Return what an utterance is drawn with: its corpus, or ``mixtures`` if a mixture says it.

    What was made of mixtures (``perturbed``) stays by itself.
    """
    mixed = speaker.startswith(("mixed-", "crowd-")) and source != "perturbed"
    return "mixtures" if mixed else source


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
        pools: dict[str, list[CodedUtterance]] = {}
        for source, (train, _) in by_source.items():
            for one in train:
                pools.setdefault(pool_of(source, one.speaker), []).append(one)
        self.pools = {
            name: sorted(pool, key=lambda utterance: len(utterance.codes))
            for name, pool in pools.items()
        }
        shares = np.array([SHARES[name] for name in self.pools])
        self.pool_shares = shares / shares.sum()
        self.validation = [one for _, held_out in by_source.values() for one in held_out]
        everything = [one for pool in self.pools.values() for one in pool]
        self.recorded = load_recorded(cache_folder())
        self.prompts = Prompts(everything, self.recorded)
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
                self._log(log, "val", self.validate(), a_second)
                if self.recorded:
                    self._log(log, "recorded", self.validate(recorded=1.0), a_second)
                losses, began, positions_before = {}, time.monotonic(), self.positions
            if self.step % SAVE_EVERY == 0:
                self.save(checkpoint)
        self.save(checkpoint)

    def train_step(self) -> dict[int, tuple[float, float]]:
        """Make one step; return loss in nats and accuracy by level."""
        rows, random = self._draw_rows(self._random(0)), self._random(1)
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

    def _draw_rows(self, random: np.random.Generator) -> list[Row]:
        """Draw utterances of like length that fill the batch, each with a task and a prompt."""
        share = CURRICULUM_START + (1 - CURRICULUM_START) * self.progress / CURRICULUM_SHARE
        share = 1.0 if self.warm_started else min(1.0, share)
        utterances = self.pools[str(random.choice(list(self.pools), p=self.pool_shares))]
        pool = min(len(utterances), max(64, int(len(utterances) * share)))
        centre = int(random.integers(0, pool))
        longest = utterances[centre].positions + (PROMPT_FRAMES_MIN + CONFIG.max_prompt_frames) // 2
        count = int(np.clip(POSITIONS // longest, 2, 64))
        first = int(np.clip(centre - 4 * count, 0, max(0, pool - 8 * count)))
        alike = np.arange(first, min(pool, first + 8 * count))
        near = random.choice(alike, min(count, len(alike)), replace=False)
        frames = int(random.integers(PROMPT_FRAMES_MIN, CONFIG.max_prompt_frames + 1))
        drawn = DRAWN_UP_TO if random.random() < DRAWN_STEPS else 0.0
        return [self._task(utterances[index], frames, drawn, random) for index in near]

    def _task(
        self,
        utterance: CodedUtterance,
        prompt_frames: int,
        drawn_up_to: float,
        random: np.random.Generator,
    ) -> Row:
        corrupted = float(random.uniform(0, CORRUPTED_UP_TO))
        dropped = random.random()
        null = bool(dropped < ALL_DROPPED)
        prompt = None
        if dropped >= ALL_DROPPED + PROMPT_DROPPED:
            pieces = int(random.integers(1, PIECES_UP_TO + 1))
            prompt = self.prompts.draw(utterance, prompt_frames, random, RECORDED_PROMPTS, pieces)
        level = 0
        if random.random() >= AR_SHARE:
            level = 1 + int(random.choice(len(NAR_SHARES), p=NAR_SHARES))
        drawn = float(random.uniform(0, drawn_up_to)) if level == 0 else 0.0
        return Row(utterance, level, prompt, null, corrupted, drawn)

    @torch.no_grad()
    def validate(self, recorded: float = 0.0) -> dict[int, list[tuple[float, float]]]:
        """Return loss and accuracy by level on utterances never trained on, always the same.

        In a share of ``recorded`` the prompt is a recording, where there is one.
        """
        random = np.random.default_rng(0)
        prompts = Prompts(self.validation, self.recorded)
        chosen = self.validation[:: max(1, len(self.validation) // VALIDATION_ROWS)]
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
    counts = {source: len(pool) for source, pool in trainer.pools.items()}
    print(f"{parameters / 1e6:.2f} M parameters, utterances: {counts}, in {trainer.dtype}")
    if (folder / "checkpoint.pt").exists():
        trainer.load(folder / "checkpoint.pt")
    elif args.warm_start:
        trainer.warm_start(args.warm_start)
    trainer.run(folder / "log.jsonl", folder / "checkpoint.pt")


if __name__ == "__main__":
    main()
