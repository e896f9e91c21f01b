"""Let the teachers say a few seconds for each built-in voice: its reference audio and card.

    python -m lab.training.speech.voices

`next/voices/` in the cache then holds one FLAC and one JSON file a voice. What they say is in no
corpus.
How loud the model speaks as them, `python -m scripts.measure_voices` adds.
"""

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import soundfile
from numpy.typing import NDArray

from lab.training.cache import NEXT_MODEL, cache_folder
from lab.training.lm.codes import trimmed
from lab.training.speech.chorus import levelled
from lab.training.speech.corpus import SAMPLE_RATE_HZ
from lab.training.speech.kokoro import Kokoro
from lab.training.speech.styles import Speaker

TEXT = "I will tell you what I know, and then you can make up your own mind about it."


@dataclass(frozen=True)
class Cast:
    """A built-in voice: its name, the style it is made of, and who that is."""

    name: str
    style: str
    accent: str
    gender: str


CAST = (
    Cast("bella", "af_bella", "American", "female"),
    Cast("sarah", "af_sarah", "American", "female"),
    Cast("fenrir", "am_fenrir", "American", "male"),
    Cast("michael", "am_michael", "American", "male"),
    Cast("puck", "am_puck", "American", "male"),
    Cast("emma", "bf_emma", "British", "female"),
    Cast("isabella", "bf_isabella", "British", "female"),
    Cast("george", "bm_george", "British", "male"),
)
"""Those of the training speakers that the model can be; docs/results/voice.md has figures."""


def write_voice(folder: Path, cast: Cast, samples: NDArray[np.float32]) -> None:
    """Write the audio ``[N]`` of a voice and its card."""
    soundfile.write(folder / f"{cast.name}.flac", samples, SAMPLE_RATE_HZ)
    card = {
        "title": cast.name.capitalize(),
        "language": "en",
        "gender": cast.gender,
        "accent": cast.accent,
        "transcript": TEXT,
        "description": f"Synthetic, spoken by Kokoro-82M (Apache-2.0) as {cast.style}.",
    }
    (folder / f"{cast.name}.json").write_text(json.dumps(card, indent=1) + "\n")


def main() -> None:
    """Write every voice of the cast."""
    teacher = Kokoro(cache_folder())
    folder = NEXT_MODEL / "voices"
    folder.mkdir(exist_ok=True)
    for cast in CAST:
        samples = teacher.speak(TEXT, Speaker(cast.style, {cast.style: 1.0}))
        write_voice(folder, cast, trimmed(levelled(samples)))


if __name__ == "__main__":
    main()
