"""Let each built-in voice speak for the listening page, and draw it beside its teacher.

    python -m lab.training.judging.listening

Writes two recordings and one picture a voice to `docs/listening/`: spectrograms of the first
sentence, the teacher's above, the model's below. None of the sentences was in training.
"""

import argparse
from functools import partial
from pathlib import Path

import numpy as np
import soundfile
from matplotlib.figure import Figure
from numpy.typing import NDArray

from app.settings import BUILTIN_MODEL
from lab.training.cache import cache_folder
from lab.training.judging.speakers import BuiltIn, SpeakFunction, Speech, Teacher
from lab.training.lm.codes import trimmed
from lab.training.speech.chorus import levelled
from lab.training.speech.corpus import SAMPLE_RATE_HZ
from lab.training.speech.kokoro import Kokoro
from lab.training.speech.styles import Speaker
from lab.training.speech.voices import CAST

FOLDER = Path("docs/listening")
SENTENCES = (
    "The birch canoe slid on the smooth planks, and nobody saw where it came from.",
    "Would you mind reading the last page again, a little more slowly this time?",
)
SEED = 0
WINDOW, HOP, RANGE_DB, TOP_HZ = 1024, 120, 80, 10_000
FIGURE_INCHES, DPI, QUALITY = (9, 4.2), 80, 75


def spectrogram(samples: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return levels ``[bins, T]`` in dB below the loudest, of ``[N]`` samples."""
    pieces = np.lib.stride_tricks.sliding_window_view(samples, WINDOW)[::HOP]
    magnitudes = np.abs(np.fft.rfft(pieces * np.hanning(WINDOW).astype(np.float32))).T
    levels = 20 * np.log10(np.maximum(magnitudes / magnitudes.max(), 1e-6))
    return levels.astype(np.float32)


def draw(teacher: NDArray[np.float32], model: NDArray[np.float32], name: str) -> Figure:
    """Return the picture of two recordings ``[N]``, one above the other, on one scale of time."""
    figure = Figure(figsize=FIGURE_INCHES, layout="constrained")
    longest_s = max(len(teacher), len(model)) / SAMPLE_RATE_HZ
    panels = figure.subplots(2, 1, sharex=True)
    for axes, samples, who in zip(panels, (teacher, model), ("teacher", "model"), strict=True):
        axes.imshow(
            spectrogram(samples),
            origin="lower",
            aspect="auto",
            extent=(0, len(samples) / SAMPLE_RATE_HZ, 0, SAMPLE_RATE_HZ / 2000),
            vmin=-RANGE_DB,
            vmax=0,
            cmap="magma",
        )
        axes.set(xlim=(0, longest_s), ylim=(0, TOP_HZ / 1000), ylabel="kHz")
        axes.set_title(f"{name}, {who}", fontsize="small")
    panels[1].set_xlabel("s")
    return figure


def teachers() -> dict[str, SpeakFunction]:
    """Return who taught each voice, by the voice's name."""
    kokoro = Kokoro(cache_folder())
    found: dict[str, SpeakFunction] = {"heart": Teacher()}
    for cast in CAST:
        speaker = Speaker(cast.style, {cast.style: 1.0})
        found[cast.name] = partial(_speak, kokoro, speaker)
    return found


def _speak(kokoro: Kokoro, speaker: Speaker, text: str, _seed: int) -> NDArray[np.float32]:
    return kokoro.speak(text, speaker)


def main() -> None:
    """Write recordings and pictures of the voices that the model has."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--weights", type=Path, default=BUILTIN_MODEL)
    parser.add_argument("--folder", type=Path, default=FOLDER)
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    model = BuiltIn(args.weights)
    for name, teacher in teachers().items():
        if not (args.weights / "voices" / f"{name}.flac").is_file():
            continue
        spoken: list[Speech] = [model.speak_as(name, text, SEED) for text in SENTENCES]
        for number, speech in enumerate(spoken, 1):
            path = args.folder / f"{name}-{number}.mp3"
            soundfile.write(path, speech.samples, SAMPLE_RATE_HZ, format="MP3")
        reading = trimmed(levelled(teacher(SENTENCES[0], SEED)))
        figure = draw(reading, trimmed(levelled(spoken[0].samples)), name)
        figure.savefig(args.folder / f"{name}.jpg", dpi=DPI, pil_kwargs={"quality": QUALITY})
        print(name, flush=True)


if __name__ == "__main__":
    main()
