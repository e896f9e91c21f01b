"""Train the codec on the corpus.

    python -m training.codec --minutes 35

Two stages. *Warm*: the decoder inverts, and the encoder regresses, the log-mel spectrum of the
same frame as the latent; without it the whole stays on the mean spectrum. *Quantised*: residual
vector quantisation with a random number of levels, reconstruction losses on log-mel and magnitude
at five windows. The encoder stays tied to the log-mel latent by a small loss all along: codes that
follow the spectrum rather than the phase should be easier for a language model to predict.

Checkpoints and the log go to the cache; `training.export` writes what the service loads.
"""

import argparse
import json
import math
import time
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.utils import parametrize
from torch.nn.utils.parametrizations import weight_norm

from models.codec import Codec
from models.config import CodecConfig
from training.cache import cache_folder
from training.data import Corpus
from training.quantizer import QuantizerTrainer
from training.spectra import MelSpectra

# Speech of the teacher has 0.045 rms; without an input of unit variance the encoder learns nothing.
CONFIG = CodecConfig(filters=16, dimension=96, lstm_layers=1, pad_mode="constant", gain=24.0)
CLIP_FRAMES = 24
BATCH = 14
WARM_SHARE = 0.22
ANCHOR_WEIGHT = 0.25
COMMITMENT_WEIGHT = 0.5
KMEANS_CLIPS = 1600
EXACT_FROM = (
    0.7  # share of the budget after which bfloat16, 1.7 times as fast, makes way for float32
)
LOG_EVERY = 100


class Clips:
    """Random clips of the corpus, mostly of speech, in training's shards only."""

    def __init__(self, corpus: Corpus, seed: int) -> None:
        shards = [number for number in corpus.shards if number not in corpus.held_out_shards]
        self._samples = [corpus.shard_samples(number) for number in shards]
        sizes = np.array([len(samples) for samples in self._samples], dtype=np.float64)
        self._share = sizes / sizes.sum()
        self._random = np.random.default_rng(seed)

    def draw(self, count: int) -> Tensor:
        """Return ``[count, 1, N]`` of random loudness, before the codec's gain."""
        length = CLIP_FRAMES * CONFIG.hop
        clips: list[NDArray[np.float32]] = []
        while len(clips) < count:
            samples = self._samples[self._random.choice(len(self._samples), p=self._share)]
            start = int(self._random.integers(0, len(samples) - length))
            clip = np.divide(samples[start : start + length], 32768, dtype=np.float32)
            # One clip in ten may be silence: the codec must know it, not spend itself on it.
            if np.abs(clip[::7]).mean() > 0.008 or self._random.random() < 0.1:
                clips.append(clip * np.float32(self._random.uniform(0.6, 1.3)))
        return torch.from_numpy(np.stack(clips).astype(np.float32))[:, None]


class CodecTrainer:
    """The two stages over one codec; everything it needs to go on is in `state`."""

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
            self.codec.parameters(), lr=1e-3, betas=(0.8, 0.99), weight_decay=0.0
        )
        self.levels_random = np.random.default_rng(seed)
        self.quantised = False
        self.spent_minutes, self.step = 0.0, 0

    def run(self, log: Path, checkpoint: Path) -> None:
        """Train until the budget is spent, logging losses and saving now and then."""
        began, spent_before, sums = time.monotonic(), self.spent_minutes, []
        while self.spent_minutes < self.minutes:
            if not self.quantised and self.spent_minutes > WARM_SHARE * self.minutes:
                self.start_quantising()
            sums.append(self.train_step())
            self.step += 1
            self.spent_minutes = spent_before + (time.monotonic() - began) / 60
            if self.step % LOG_EVERY == 0:
                names = ("mel", "magnitude", "anchor", "commitment")
                means = dict(zip(names, np.mean(sums, 0).round(4).tolist(), strict=True))
                row = {
                    "minutes": round(self.spent_minutes, 2),
                    "step": self.step,
                    "phase": "quantised" if self.quantised else "warm",
                    **means,
                }
                with log.open("a") as file:
                    file.write(json.dumps(row) + "\n")
                print(row, flush=True)
                sums = []
            if self.step % 1000 == 0:
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

    def train_step(self) -> tuple[float, float, float, float]:
        """Make one step; return the mel, magnitude, anchor and commitment losses."""
        progress = min(1.0, self.spent_minutes / self.minutes)
        warm_end = WARM_SHARE
        rate = 1e-3
        if self.quantised:
            after = (progress - warm_end) / (1 - warm_end)
            rate = 6e-4 * (0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * after)))
        for group in self.optimizer.param_groups:
            group["lr"] = rate

        x = self.clips.draw(BATCH) * CONFIG.gain
        exact = progress > EXACT_FROM
        with torch.autocast("cpu", torch.bfloat16, enabled=not exact):
            latent = self.codec.encoder(x)
        latent = latent.float()
        target = self.spectra.latent(x[:, 0], CONFIG.hop, CONFIG.dimension)
        anchor = (latent - target).abs().mean()
        commitment = latent.new_zeros(())
        if self.quantised:
            flat = latent.transpose(1, 2).reshape(-1, CONFIG.dimension)
            flat, commitment = self.quantizer.quantise(flat, self._draw_levels())
            given = flat.view(BATCH, -1, CONFIG.dimension).transpose(1, 2)
            weight = ANCHOR_WEIGHT
        else:
            own = torch.rand(BATCH, 1, 1) < 0.5
            given, weight = torch.where(own, latent.detach(), target), 1.0
        with torch.autocast("cpu", torch.bfloat16, enabled=not exact):
            y = self.codec.decoder(given)
        y = y.float()
        mel, magnitude = self.spectra.distance(x[:, 0], y[:, 0])
        loss = mel + magnitude + weight * anchor + COMMITMENT_WEIGHT * commitment
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(self.codec.parameters(), 50.0)
        self.optimizer.step()
        losses = torch.stack([mel, magnitude, anchor, commitment]).detach().tolist()
        return losses[0], losses[1], losses[2], losses[3]

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
        saved = torch.load(path, weights_only=True)
        self.codec.load_state_dict(saved["codec"])
        self.optimizer.load_state_dict(saved["optimizer"])
        self.quantizer.sizes.copy_(saved["sizes"])
        self.quantizer.sums.copy_(saved["sums"])
        self.quantised = saved["quantised"]
        self.spent_minutes, self.step = saved["spent_minutes"], saved["step"]

    def trained(self) -> Codec:
        """Return the codec with its weight norm folded; training cannot go on after."""
        for module in self.codec.modules():
            if isinstance(module, nn.Conv1d | nn.ConvTranspose1d):
                parametrize.remove_parametrizations(module, "weight")
        return self.codec.eval()


def main() -> None:
    """Train the codec within a time budget, or export what was trained."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--minutes", type=float, default=35.0)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    torch.set_num_threads(2)
    folder = cache_folder() / "codec"
    folder.mkdir(exist_ok=True)
    checkpoint = folder / "checkpoint.pt"
    trainer = CodecTrainer(Clips(Corpus(cache_folder()), args.seed), args.minutes, args.seed)
    if checkpoint.exists():
        trainer.load(checkpoint)
    trainer.run(folder / "log.jsonl", checkpoint)


if __name__ == "__main__":
    main()
