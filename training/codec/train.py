"""Train the codec on the corpora.

    python -m training.codec.train --steps 8000

Three stages of one budget of steps. *Open*: encoder and decoder with nothing between them, until
there is a latent to fit the codebooks to. *Quantised*: residual vector quantisation with a random
number of levels. *Settled*: encoder and codebooks stay as they are, so that codes can be made and a
language model begun (`training.export codec`, `training.lm.codes`), and the decoder alone goes on,
now against a discriminator, too. Rates of learning fall to zero at the end of the second stage for
what settles, and at the end of the budget for the rest.

The same command goes on where the last run stopped: batches follow from the seed and the number of
the step. `--warm-start FOLDER` begins with the codec of a folder, its codebooks settled.
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

from models.checkpoints import load_codec
from models.codecs.spectral import SpectralCodec
from models.config import SpectralCodecConfig
from training.cache import cache_folder
from training.codec.clips import Clips, clips_of
from training.codec.discriminator import Discriminator, deceiving_losses, judging_loss
from training.codec.quantizer import QuantizerTrainer
from training.codec.spectra import Spectra
from training.speed import fastest_type

# Speech of the teacher has 0.045 rms; the networks are to see unit variance.
CONFIG = SpectralCodecConfig(gain=24.0)
SHARES = {"speech": 0.5, "kokoro": 0.3, "bent": 0.2}  # of the clips, by corpus
CLIP_FRAMES, BATCH = 64, 16
JUDGED_CLIPS = 8  # of a batch: the discriminator costs as much as all else
OPEN_STEPS = 250
SETTLED_FROM = 0.5  # of the budget
WARM_STEPS, RATE, JUDGE_RATE = 100, 1.5e-3, 5e-4
COMMITMENT_WEIGHT = 0.25
FULL_LEVELS_SHARE = 0.6  # of the batches; the others use some of the levels
# How strongly each loss pulls at the samples, whatever its own scale is.
PULL_OF_SPECTRA, PULL_OF_VERDICT, PULL_OF_FEATURES = 1.0, 0.5, 1.0
AVERAGE_DECAY = 0.998
KMEANS_BATCHES = 24
LOG_EVERY, SAVE_EVERY, VALIDATE_EVERY, VALIDATION_CLIPS = 50, 250, 250, 32


class CodecTrainer:
    """The stages over one codec; `save` writes all that is needed to go on."""

    def __init__(
        self, clips: Clips, held_out: Clips, steps: int, device: torch.device, seed: int = 0
    ) -> None:
        torch.manual_seed(seed)
        self.clips, self.steps, self.device, self.seed = clips, steps, device, seed
        self.codec = SpectralCodec(CONFIG).to(device)
        self.judge = Discriminator().to(device)
        self.quantizer = QuantizerTrainer(self.codec.quantizer, seed)
        self.spectra = Spectra(CONFIG.sample_rate_hz, device)
        self.dtype = fastest_type(device)
        self.optimizer = torch.optim.AdamW(
            [
                {"params": self.codec.encoder.parameters()},
                {"params": self.codec.decoder.parameters()},
            ],
            betas=(0.8, 0.99),
            weight_decay=0.01,
        )
        self.judge_optimizer = torch.optim.AdamW(
            self.judge.parameters(), lr=JUDGE_RATE, betas=(0.8, 0.99), weight_decay=0.01
        )
        self.average = {k: v.detach().clone() for k, v in self.codec.decoder.named_parameters()}
        self.validation = held_out.draw(VALIDATION_CLIPS, np.random.default_rng(0)).to(device)
        self.step = 0

    @property
    def settled_from(self) -> int:
        """The first step in which encoder and codebooks no longer change."""
        return int(SETTLED_FROM * self.steps)

    def run(self, log: Path, checkpoint: Path) -> None:
        """Train until the budget is spent, logging losses and saving now and then."""
        rows: list[dict[str, float]] = []
        began = time.monotonic()
        while self.step < self.steps:
            rows.append(self.train_step())
            if self.step % LOG_EVERY == 0:
                row = {name: _mean(rows, name) for name in rows[-1]}
                row["frames_per_s"] = len(rows) * BATCH * CLIP_FRAMES / (time.monotonic() - began)
                if self.step % VALIDATE_EVERY == 0:
                    row |= self.validate()
                row = {name: round(value, 4) for name, value in row.items()}
                with log.open("a") as file:
                    file.write(json.dumps({"step": self.step, **row}) + "\n")
                print(self.step, row, flush=True)
                rows, began = [], time.monotonic()
            if self.step % SAVE_EVERY == 0 or self.step == self.settled_from:
                self.save(checkpoint)
        self.save(checkpoint)

    def start_quantising(self) -> None:
        """Fit the codebooks to the latents of many batches."""
        with torch.no_grad():
            found = [self._latent(self._draw(-1 - number)) for number in range(KMEANS_BATCHES)]
        left = self.quantizer.start(torch.cat(found).flatten(0, 1), BATCH * CLIP_FRAMES)
        print("residual deviation by level", [round(value, 3) for value in left], flush=True)

    def train_step(self) -> dict[str, float]:
        """Make one step of the present stage; return its losses by name."""
        if self.step == OPEN_STEPS:
            self.start_quantising()
        settled = self.step >= self.settled_from
        encoder, decoder = self.optimizer.param_groups
        encoder["lr"], decoder["lr"] = 0.0, self._rate(self.steps)
        if not settled:
            encoder["lr"] = self._rate(self.settled_from)
        samples = self._draw(self.step)
        losses: dict[str, Tensor] = {}
        with torch.set_grad_enabled(not settled):
            latent = self._latent(samples)
        if settled:
            codes = self.codec.quantizer.encode(latent.flatten(0, 1))
            latent = self.codec.quantizer.decode(codes[:, : self._draw_levels()])
            latent = latent.view(BATCH, CLIP_FRAMES, -1)
        elif self.step >= OPEN_STEPS:
            self.quantizer.reseed(self.seed, self.step)
            flat, commitment = self.quantizer.quantise(latent.flatten(0, 1), self._draw_levels())
            latent, losses["commitment"] = flat.view_as(latent), COMMITMENT_WEIGHT * commitment
        made = self._sound(latent)
        heard = made.detach().requires_grad_()
        pull = self._pull(samples, heard, losses, judged=settled)
        self.optimizer.zero_grad(set_to_none=True)
        extra = losses.get("commitment")
        torch.autograd.backward(
            [made] if extra is None else [made, extra], [pull] if extra is None else [pull, None]
        )
        nn.utils.clip_grad_norm_(self.codec.parameters(), 10.0)
        self.optimizer.step()
        decay = min(AVERAGE_DECAY, (1 + self.step) / (10 + self.step))
        with torch.no_grad():
            torch._foreach_lerp_(
                list(self.average.values()), list(self.codec.decoder.parameters()), 1 - decay
            )
        self.step += 1
        return {name: value.item() for name, value in losses.items()}

    def _pull(
        self, samples: Tensor, heard: Tensor, losses: dict[str, Tensor], *, judged: bool
    ) -> Tensor:
        """Return the gradient of all losses by the samples ``[B, N]``; add the losses.

        Each loss is given a fixed share of the gradient, as by EnCodec's balancer (Défossez et al.
        2022, arXiv:2210.13438); the discriminator learns on the way.
        """
        # The first frames lack those before them, whose windows reach into them.
        cut = CONFIG.window - CONFIG.hop
        wanted = self.spectra.magnitudes(samples[:, cut : heard.shape[1]] * CONFIG.gain)
        given = self.spectra.magnitudes(heard[:, cut:] * CONFIG.gain)
        losses["mel"], losses["magnitude"] = self.spectra.distance(wanted, given)
        pulls = [(losses["mel"] + losses["magnitude"], PULL_OF_SPECTRA)]
        if judged:
            with torch.autocast(self.device.type, self.dtype, self.dtype != torch.float32):
                some = {size: part[:JUDGED_CLIPS] for size, part in given.items()}
                real = self.judge({size: part[:JUDGED_CLIPS] for size, part in wanted.items()})
                fooled = self.judge({size: part.detach() for size, part in some.items()})
                losses["judge"] = judging_loss(real, fooled)
                self.judge_optimizer.zero_grad(set_to_none=True)
                losses["judge"].backward()  # type: ignore[no-untyped-call]
                self.judge_optimizer.step()
                self.judge.requires_grad_(requires_grad=False)
                verdict, features = deceiving_losses(real, self.judge(some))
                self.judge.requires_grad_(requires_grad=True)
            losses["verdict"], losses["features"] = verdict, features
            pulls += [(verdict, PULL_OF_VERDICT), (features, PULL_OF_FEATURES)]
        total = torch.zeros_like(heard)
        for loss, share in pulls:
            (grad,) = torch.autograd.grad(loss, heard, retain_graph=True)
            total += share * grad / (grad.norm() + 1e-12)
        return total

    @torch.no_grad()
    def validate(self) -> dict[str, float]:
        """Return the losses of clips never trained on, as what would be exported hears them."""
        latent = self._latent(self.validation)
        row = {}
        if self.step > OPEN_STEPS:
            codes = self.codec.quantizer.encode(latent.flatten(0, 1))
            latent = self.codec.quantizer.decode(codes).view_as(latent)
            for level in range(CONFIG.levels):
                shares = codes[:, level].bincount(minlength=CONFIG.codes) / len(codes)
                row[f"used_{level}"] = float(torch.special.entr(shares).sum().exp())
        own = {k: v.detach().clone() for k, v in self.codec.decoder.named_parameters()}
        self.codec.decoder.load_state_dict(self.average)
        made = self._sound(latent)
        self.codec.decoder.load_state_dict(own)
        cut = CONFIG.window - CONFIG.hop
        mel, magnitude = self.spectra.distance(
            self.spectra.magnitudes(self.validation[:, cut : made.shape[1]] * CONFIG.gain),
            self.spectra.magnitudes(made[:, cut:] * CONFIG.gain),
        )
        return row | {"val_mel": mel.item(), "val_magnitude": magnitude.item()}

    def _draw(self, number: int) -> Tensor:
        """Return the clips ``[B, N]`` of a step."""
        return self.clips.draw(BATCH, self._random(number)).to(self.device)

    def _random(self, number: int) -> np.random.Generator:
        return np.random.default_rng([self.seed, number + KMEANS_BATCHES])

    def _latent(self, samples: Tensor) -> Tensor:
        heard = self.codec.heard(samples)[:, :CLIP_FRAMES]
        with torch.autocast(self.device.type, self.dtype, self.dtype != torch.float32):
            latent: Tensor = self.codec.encoder(heard)
        return latent.float()

    def _sound(self, latent: Tensor) -> Tensor:
        with torch.autocast(self.device.type, self.dtype, self.dtype != torch.float32):
            out = self.codec.decoder(latent)
        return self.codec.sound_of(out)

    def _rate(self, end: int) -> float:
        """Return the rate of learning that reaches zero at step ``end``."""
        warm = min(1.0, (self.step + 1) / WARM_STEPS)
        return RATE * warm * 0.5 * (1 + math.cos(math.pi * min(1.0, self.step / end)))

    def _draw_levels(self) -> int:
        """Draw how many levels this batch may use."""
        random = np.random.default_rng([self.seed, self.step, 1])
        if random.random() < FULL_LEVELS_SHARE:
            return CONFIG.levels
        return int(random.integers(1, CONFIG.levels))

    def save(self, path: Path) -> None:
        """Write all that is needed to go on."""
        partial = path.with_suffix(".partial")
        state: dict[str, Any] = {
            "codec": self.codec.state_dict(),
            "average": self.average,
            "judge": self.judge.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "judge_optimizer": self.judge_optimizer.state_dict(),
            "sizes": self.quantizer.sizes,
            "sums": self.quantizer.sums,
            "step": self.step,
        }
        torch.save(state, partial)
        partial.rename(path)

    def load(self, path: Path) -> None:
        """Go on from a saved state."""
        saved = torch.load(path, map_location=self.device, weights_only=True)
        self.codec.load_state_dict(saved["codec"])
        self.judge.load_state_dict(saved["judge"])
        self.optimizer.load_state_dict(saved["optimizer"])
        self.judge_optimizer.load_state_dict(saved["judge_optimizer"])
        self.quantizer.sizes.copy_(saved["sizes"])
        self.quantizer.sums.copy_(saved["sums"])
        self.average, self.step = saved["average"], saved["step"]

    def warm_start(self, codec: SpectralCodec) -> None:
        """Begin the last stage with a codec that was exported."""
        self.codec.load_state_dict(codec.state_dict())
        self.average = {k: v.detach().clone() for k, v in self.codec.decoder.named_parameters()}
        self.step = self.settled_from


def _mean(rows: list[dict[str, float]], name: str) -> float:
    """Return the mean of a loss over the steps that have it: a stage may just have begun."""
    return float(np.mean([row[name] for row in rows if name in row]))


def main() -> None:
    """Train the codec within a budget of steps."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--steps", type=int, default=8000)
    parser.add_argument("--warm-start", type=Path, metavar="FOLDER")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    folder = cache_folder() / "codec"
    folder.mkdir(exist_ok=True)
    checkpoint = folder / "checkpoint.pt"
    length = (CLIP_FRAMES - 1) * CONFIG.hop + CONFIG.window
    clips, held_out = clips_of(SHARES, length), clips_of(SHARES, length, held_out=True)
    trainer = CodecTrainer(clips, held_out, args.steps, device, args.seed)
    print(f"training in {trainer.dtype}", flush=True)
    if checkpoint.exists():
        trainer.load(checkpoint)
    elif args.warm_start:
        codec = load_codec(args.warm_start)
        if not isinstance(codec, SpectralCodec):
            parser.error(f"{args.warm_start} holds a codec of another architecture")
        trainer.warm_start(codec)
    trainer.run(folder / "log.jsonl", checkpoint)


if __name__ == "__main__":
    main()
