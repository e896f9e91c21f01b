"""Train the codec on the corpus.

    python -m training.codec --minutes 60

Two stages. *Warm*: the decoder inverts, and the encoder regresses, the log-mel spectrum of the same
frame as the latent; without it the whole stays on the mean spectrum. *Quantised*: residual vector
quantisation with a random number of levels, reconstruction losses on log-mel and magnitude at five
windows. Nothing ties the latent to the spectrum any more then: the first codec was held to it, and
DNSMOS of its round trip was 2.89; seven minutes of training without that made it 3.08.

`--warm-start CHECKPOINT` begins at the second stage with the codec of another run. Checkpoints and
the log go to the cache; `training.export` writes what the service loads.
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
from torch.nn.utils import parametrize
from torch.nn.utils.parametrizations import weight_norm

from models.codec import Codec
from models.config import CodecConfig
from training.cache import cache_folder
from training.clips import Clips
from training.data import Corpus
from training.quantizer import QuantizerTrainer
from training.spectra import MelSpectra

# Speech of the teacher has 0.045 rms; without an input of unit variance the encoder learns nothing.
CONFIG = CodecConfig(filters=16, dimension=96, lstm_layers=1, pad_mode="constant", gain=24.0)
CLIP_FRAMES = 24
BATCH = 14
WARM_UNTIL = 0.15  # of the budget
COMMITMENT_WEIGHT = 0.5
WARM_RATE, RATE = 1e-3, 6e-4
SHARES = {"speech": 0.5, "kokoro": 0.5}  # of the clips, by corpus
KMEANS_CLIPS = 1600
# Share of the budget after which bfloat16, 1.7 times as fast, makes way for float32.
EXACT_FROM = 0.85
LOG_EVERY = 50
LOSSES = ("mel", "magnitude", "anchor", "commitment")


class CodecTrainer:
    """The stages over one codec; `save` writes everything it needs to go on."""

    def __init__(self, clips: Clips, minutes: float, seed: int = 0) -> None:
        torch.manual_seed(seed)
        self.clips, self.minutes = clips, minutes
        self.codec = Codec(CONFIG)
        for module in self.codec.modules():
            if isinstance(module, nn.Conv1d | nn.ConvTranspose1d):
                weight_norm(module, dim=0)
        self.spectra = MelSpectra(CONFIG.sample_rate_hz)
        self.quantizer = QuantizerTrainer(self.codec.quantizer, seed)
        self.optimizer = torch.optim.AdamW(
            self.codec.parameters(), betas=(0.8, 0.99), weight_decay=0.0
        )
        self.levels_random = np.random.default_rng(seed)
        self.quantised = False
        self.spent_minutes, self.step = 0.0, 0

    @property
    def progress(self) -> float:
        """Share of the budget that is spent."""
        return min(1.0, self.spent_minutes / self.minutes)

    def run(self, log: Path, checkpoint: Path) -> None:
        """Train until the budget is spent, logging losses and saving now and then."""
        began, spent_before = time.monotonic(), self.spent_minutes
        rows: list[dict[str, float]] = []
        while self.spent_minutes < self.minutes:
            if not self.quantised and self.progress > WARM_UNTIL:
                self.start_quantising()
            rows.append(self.train_step())
            self.step += 1
            self.spent_minutes = spent_before + (time.monotonic() - began) / 60
            if self.step % LOG_EVERY == 0:
                means = {
                    name: round(float(np.mean([row[name] for row in rows if name in row])), 4)
                    for name in LOSSES
                    if any(name in row for row in rows)
                }
                row = {"minutes": round(self.spent_minutes, 2), "step": self.step, **means}
                with log.open("a") as file:
                    file.write(json.dumps(row) + "\n")
                print(row, flush=True)
                rows = []
            if self.step % 500 == 0:
                self.save(checkpoint)
        self.save(checkpoint)

    def start_quantising(self) -> None:
        """Fit the codebooks to the latents of one large batch."""
        with torch.no_grad():
            batches = [self.clips.draw(100) * CONFIG.gain for _ in range(KMEANS_CLIPS // 100)]
            latents = [self.codec.encoder(batch).transpose(1, 2) for batch in batches]
            left = self.quantizer.start(torch.cat(latents).reshape(-1, CONFIG.dimension))
        print("residual deviation by level", [round(value, 3) for value in left], flush=True)
        self.quantised = True

    def train_step(self) -> dict[str, float]:
        """Make one step of the present stage; return its losses by name."""
        for group in self.optimizer.param_groups:
            group["lr"] = self._rate()
        exact = self.progress > EXACT_FROM
        x = self.clips.draw(BATCH) * CONFIG.gain
        with torch.autocast("cpu", torch.bfloat16, enabled=not exact):
            latent = self.codec.encoder(x)
        latent = latent.float()
        losses: dict[str, Tensor] = {}
        if self.quantised:
            flat = latent.transpose(1, 2).reshape(-1, CONFIG.dimension)
            flat, losses["commitment"] = self.quantizer.quantise(flat, self._draw_levels())
            given = flat.view(BATCH, -1, CONFIG.dimension).transpose(1, 2)
            beside = COMMITMENT_WEIGHT * losses["commitment"]
        else:
            target = self.spectra.latent(x[:, 0], CONFIG.hop, CONFIG.dimension)
            own = torch.rand(BATCH, 1, 1) < 0.5
            given = torch.where(own, latent.detach(), target)
            beside = losses["anchor"] = (latent - target).abs().mean()
        with torch.autocast("cpu", torch.bfloat16, enabled=not exact):
            y = self.codec.decoder(given)
        y = y.float()
        losses["mel"], losses["magnitude"] = self.spectra.distance(x[:, 0], y[:, 0])
        self.optimizer.zero_grad(set_to_none=True)
        loss = losses["mel"] + losses["magnitude"] + beside
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(self.codec.parameters(), 50.0)
        self.optimizer.step()
        return {name: value.item() for name, value in losses.items()}

    def _rate(self) -> float:
        if not self.quantised:
            return WARM_RATE
        after = (self.progress - WARM_UNTIL) / (1 - WARM_UNTIL)
        return RATE * (0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * after)))

    def _draw_levels(self) -> int:
        """Draw how many levels this batch may use: all in half the batches, else any number."""
        if self.levels_random.random() < 0.5:
            return CONFIG.levels
        return int(self.levels_random.integers(1, CONFIG.levels))

    def save(self, path: Path) -> None:
        """Write all that is needed to go on."""
        partial = path.with_suffix(".partial")
        torch.save(
            {
                "codec": self.codec.state_dict(),
                "optimizer": self.optimizer.state_dict(),
                "sizes": self.quantizer.sizes,
                "sums": self.quantizer.sums,
                "quantised": self.quantised,
                "spent_minutes": self.spent_minutes,
                "step": self.step,
            },
            partial,
        )
        partial.rename(path)

    def load(self, path: Path) -> None:
        """Go on from a saved state."""
        saved = self._load_codec(path)
        self.optimizer.load_state_dict(saved["optimizer"])
        self.quantised = saved["quantised"]
        self.spent_minutes, self.step = saved["spent_minutes"], saved["step"]

    def warm_start(self, path: Path) -> None:
        """Begin the second stage with the codec and codebooks of another run."""
        self._load_codec(path)
        self.quantised = True
        self.spent_minutes = WARM_UNTIL * self.minutes

    def _load_codec(self, path: Path) -> dict[str, Any]:
        saved: dict[str, Any] = torch.load(path, weights_only=True)
        self.codec.load_state_dict(saved["codec"])
        self.quantizer.sizes.copy_(saved["sizes"])
        self.quantizer.sums.copy_(saved["sums"])
        return saved

    def trained(self) -> Codec:
        """Return the codec with its weight norm folded; training cannot go on after."""
        for module in self.codec.modules():
            if isinstance(module, nn.Conv1d | nn.ConvTranspose1d):
                parametrize.remove_parametrizations(module, "weight")
        return self.codec.eval()


def clips(seed: int) -> Clips:
    """Return the clips of all that has been spoken."""
    cache = cache_folder()
    corpora = [(Corpus(cache, name), SHARES[name]) for name in SHARES if (cache / name).is_dir()]
    return Clips(corpora, CLIP_FRAMES * CONFIG.hop, seed)


def main() -> None:
    """Train the codec within a time budget."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--warm-start", type=Path, metavar="CHECKPOINT")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    torch.set_num_threads(2)
    folder = cache_folder() / "codec"
    folder.mkdir(exist_ok=True)
    checkpoint = folder / "checkpoint.pt"
    trainer = CodecTrainer(clips(args.seed), args.minutes, args.seed)
    if checkpoint.exists():
        trainer.load(checkpoint)
    elif args.warm_start:
        trainer.warm_start(args.warm_start)
    trainer.run(folder / "log.jsonl", checkpoint)


if __name__ == "__main__":
    main()
