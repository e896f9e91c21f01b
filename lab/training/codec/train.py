"""Train the codec on the corpora.

    python -m lab.training.codec.train --steps 8000

Three stages of one budget of steps. *Open*: encoder and decoder with nothing between them, until
there is a latent to fit the codebooks to. *Quantised*: residual vector quantisation with a random
number of levels. *Settled*: encoder and codebooks stay as they are, so that codes can be made and a
language model begun (`lab.training.export codec`, `lab.training.lm.codes`), and the decoder alone
goes on, now against a discriminator, too. Rates of learning fall to zero at the end of the second
stage for what settles, and at the end of the budget for the rest.

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

from lab.training.cache import cache_folder
from lab.training.codec.clips import Clips, DrawnClips, clips_of
from lab.training.codec.quantizer import QuantizerTrainer
from lab.training.codec.sound_losses import SoundLosses, breath_loss, pitch_loss, with_breath
from lab.training.speed import fastest_type
from models.checkpoints.builtin import load_codec
from models.codecs.spectral import SpectralCodec
from models.config import SpectralCodecConfig

# Speech of the teacher has 0.045 rms; the networks are to see unit variance. With a quarter of the
# noise the decoder's speech is rated 0.02 higher (DNSMOS), and no word more is lost.
CONFIG = SpectralCodecConfig(gain=24.0, noise_gain=0.25)
# Of the clips, by corpus: a decoder that has heard a dozen voices loses half of who speaks.
SHARES = {"people": 0.5, "speech": 0.18, "kokoro": 0.16, "readers": 0.08, "bent": 0.08}
CLIP_FRAMES, BATCH = 64, 16
JUDGED_CLIPS = 8  # of a batch: the discriminator costs as much as all else
JUDGED_AFTER = 250  # steps of the settled stage: a decoder that is new hears spectra alone first
OPEN_STEPS = 250
SETTLED_FROM = 0.5  # of the budget
WARM_STEPS, RATE = 50, 1.5e-3
WARM_RATE_SHARE = 0.6  # of the rate, where a decoder that was trained goes on
COMMITMENT_WEIGHT = 0.25
FULL_LEVELS_SHARE = 0.85  # of the batches; the others use some of the levels
AVERAGE_DECAY = 0.998
KMEANS_BATCHES = 24
LOG_EVERY, SAVE_EVERY, VALIDATE_EVERY, VALIDATION_CLIPS = 25, 25, 250, 32


class CodecTrainer:
    """The stages over one codec; `save` writes all that is needed to go on."""

    def __init__(
        self, clips: Clips, held_out: Clips, steps: int, device: torch.device, seed: int = 0
    ) -> None:
        torch.manual_seed(seed)
        self.clips, self.steps, self.device, self.seed = clips, steps, device, seed
        self.codec = SpectralCodec(CONFIG).to(device)
        self.quantizer = QuantizerTrainer(self.codec.quantizer, seed)
        self.dtype = fastest_type(device)
        self.losses = SoundLosses(CONFIG, JUDGED_CLIPS, device, self.dtype)
        self.optimizer = torch.optim.AdamW(
            [
                {"params": list(self.codec.encoder.parameters())},
                {"params": list(self._decoding().values())},
            ],
            betas=(0.8, 0.99),
            weight_decay=0.01,
        )
        self.average = {k: v.detach().clone() for k, v in self._decoding().items()}
        self.validation = held_out.draw(VALIDATION_CLIPS, np.random.default_rng(0)).to(device)
        self.step, self.warm_from = 0, 0
        self.settled_from = int(SETTLED_FROM * steps)

    def _decoding(self) -> dict[str, nn.Parameter]:
        """Return what turns codes into sound, by name."""
        return {
            name: value
            for name, value in self.codec.named_parameters()
            if name.startswith(("decoder.", "excitation."))
        }

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
            found = [
                self._latent(self._draw(-1 - number).samples) for number in range(KMEANS_BATCHES)
            ]
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
        clips = self._draw(self.step)
        samples, pitch_hz, told = clips.samples, clips.pitch_hz, clips.cycles
        losses: dict[str, Tensor] = {}
        with torch.set_grad_enabled(not settled):
            latent = self._latent(samples)
        if settled:
            codes = self._codes(latent, clips)
            latent = self.codec.quantizer.decode(codes[..., : self._sample_levels()].flatten(0, 1))
            latent = latent.view(BATCH, CLIP_FRAMES, -1)
        elif self.step >= OPEN_STEPS:
            self.quantizer.reseed(self.seed, self.step)
            flat, commitment = self.quantizer.quantise(latent.flatten(0, 1), self._sample_levels())
            latent, losses["commitment"] = flat.view_as(latent), COMMITMENT_WEIGHT * commitment
        predicted_hz = self.codec.excitation.pitch(latent)
        out = self._decoded(latent)
        # Pulses stand where the teacher's do, where that is known: phases can be compared then.
        used_hz = torch.where(told >= 0, pitch_hz.double(), predicted_hz.detach())
        made = self.codec.shaped(out, used_hz, pulse_positions=told)
        losses["pitch"] = pitch_loss(predicted_hz.float(), pitch_hz)
        losses["breath"] = breath_loss(out, pitch_hz)
        heard = made.detach().requires_grad_()
        judged = self.step >= self.settled_from + JUDGED_AFTER
        pull = self.losses.pull(
            samples, heard, losses, judged=judged, known=(told >= 0).any(1), bands_hz=clips.bands_hz
        )
        (pull,) = torch.autograd.grad(made, out, pull, retain_graph=True)
        pull = with_breath(pull, losses["breath"], out)
        self.optimizer.zero_grad(set_to_none=True)
        extra = losses["pitch"] + losses.get("commitment", 0.0)
        torch.autograd.backward([out, extra], [pull, None])
        nn.utils.clip_grad_norm_(self.codec.parameters(), 10.0)
        self.optimizer.step()
        decay = min(AVERAGE_DECAY, (1 + self.step) / (10 + self.step))
        with torch.no_grad():
            torch._foreach_lerp_(
                list(self.average.values()), list(self._decoding().values()), 1 - decay
            )
        self.step += 1
        return {name: value.item() for name, value in losses.items()}

    @torch.no_grad()
    def validate(self) -> dict[str, float]:
        """Return the losses of clips never trained on, as what would be exported hears them."""
        latent = self._latent(self.validation.samples)
        row = {}
        if self.step > OPEN_STEPS:
            codes = self._codes(latent, self.validation).flatten(0, 1)
            latent = self.codec.quantizer.decode(codes).view_as(latent)
            for level in range(CONFIG.levels):
                shares = codes[:, level].bincount(minlength=CONFIG.codes) / len(codes)
                row[f"used_{level}"] = float(torch.special.entr(shares).sum().exp())
        own = {k: v.detach().clone() for k, v in self._decoding().items()}
        self.codec.load_state_dict(self.average, strict=False)
        made = self.codec.shaped(self._decoded(latent), self.codec.excitation.pitch(latent))
        self.codec.load_state_dict(own, strict=False)
        heard = self.validation
        _, _, mel, magnitude = self.losses.distances(heard.samples, made, heard.bands_hz)
        return row | {"val_mel": mel.item(), "val_magnitude": magnitude.item()}

    def _draw(self, number: int) -> DrawnClips:
        """Return the clips of a step."""
        return self.clips.draw(BATCH, self._random(number)).to(self.device)

    def _random(self, number: int) -> np.random.Generator:
        return np.random.default_rng([self.seed, number + KMEANS_BATCHES])

    def _latent(self, samples: Tensor) -> Tensor:
        heard = self.codec.normalised_log_mel(samples)[:, :CLIP_FRAMES]
        with torch.autocast(self.device.type, self.dtype, self.dtype != torch.float32):
            latent: Tensor = self.codec.encoder(heard)
        return latent.float()

    def _codes(self, latent: Tensor, clips: DrawnClips) -> Tensor:
        """Return the codes ``[B, T, K]`` of clips: known ones, or those of the latent."""
        codes = self.codec.quantizer.encode(latent.flatten(0, 1)).view(*latent.shape[:2], -1)
        if not clips.codes.shape[-1]:
            return codes
        return torch.where(clips.codes >= 0, clips.codes, codes)

    def _decoded(self, latent: Tensor) -> Tensor:
        with torch.autocast(self.device.type, self.dtype, self.dtype != torch.float32):
            out: Tensor = self.codec.decoder(latent)
        return out.float()

    def _rate(self, end: int) -> float:
        """Return the rate of learning that reaches zero at step ``end``."""
        done = self.step - self.warm_from
        warm = min(1.0, (done + 1) / WARM_STEPS) * (WARM_RATE_SHARE if self.warm_from else 1.0)
        share = min(1.0, done / (end - self.warm_from))
        return RATE * warm * 0.5 * (1 + math.cos(math.pi * share))

    def _sample_levels(self) -> int:
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
            "optimizer": self.optimizer.state_dict(),
            **self.losses.state_dict(),
            "sizes": self.quantizer.sizes,
            "sums": self.quantizer.sums,
            "step": self.step,
            "warm_from": self.warm_from,
            "settled_from": self.settled_from,
        }
        torch.save(state, partial)
        partial.rename(path)

    def load(self, path: Path) -> None:
        """Go on from a saved state."""
        saved = torch.load(path, map_location=self.device, weights_only=True)
        self.codec.load_state_dict(saved["codec"])
        self.optimizer.load_state_dict(saved["optimizer"])
        self.losses.load_state_dict(saved)
        self.quantizer.sizes.copy_(saved["sizes"])
        self.quantizer.sums.copy_(saved["sums"])
        self.average, self.step = saved["average"], saved["step"]
        self.warm_from = saved["warm_from"]
        if self.step >= saved["settled_from"]:  # whatever the budget is now, codes stay
            self.settled_from = saved["settled_from"]

    def warm_start(self, codec: SpectralCodec) -> None:
        """Begin the last stage with a codec that was exported."""
        self.codec.load_state_dict(codec.state_dict())
        self.average = {k: v.detach().clone() for k, v in self._decoding().items()}
        self.step = self.warm_from = self.settled_from


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
    clips, held_out = (
        clips_of(SHARES, CLIP_FRAMES, CONFIG.hop, CONFIG.window, held_out=out)
        for out in (False, True)
    )
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
