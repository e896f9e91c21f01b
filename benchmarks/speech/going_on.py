"""Takes that go on from a frame of an earlier one: what is equal, and how the cut sounds.

    python -m benchmarks.speech.going_on ../shared/data/harvard_dev.txt --count 50

Each sentence is spoken, cut at a frame that its number decides, and gone on with: with the same
knobs and seed, which must give the same take, and with others, which must give the same samples up
to the cut. The jump between the two samples at the cut is ranked among those at all frame borders
of the new take.
"""

import argparse
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.engine.backend.options import ModelOptions
from app.engine.backend.synthesizer import Synthesizer
from app.engine.job import KeptTake, SpeechJob, SpeechResult
from app.settings import BUILTIN_MODEL
from samplers.knobs.params import SamplingParams

OTHERS: dict[str, Any] = {"preset": "default", "temperature": 0.9, "nar_temperature": 0.7}


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sentences", type=Path)
    parser.add_argument("--count", type=int, default=50)
    chosen = parser.parse_args()
    synthesizer = Synthesizer.load(
        ModelOptions(BUILTIN_MODEL, "cpu", weights="int8", threads=1, max_text_chars=500)
    )
    hop = round(synthesizer.info.sample_rate_hz / synthesizer.info.frame_rate_hz)
    equal = codes_kept = 0
    before, ranks, ratios = [], [], []
    for number, line in enumerate(chosen.sentences.read_text("utf-8").split("\n")[: chosen.count]):
        result, sound = speak(synthesizer, line, None, seed=number)
        first = result.utterances[0]
        frames = len(first.codes)
        cut = frames * (20 + number * 7 % 60) // 100
        kept = KeptTake((first.kept(cut),), whole=0)
        again, same = speak(synthesizer, line, kept, seed=number)
        equal += again.codes_sha256 == result.codes_sha256 and np.array_equal(same, sound)
        other, changed = speak(synthesizer, line, kept, seed=number + 1000, **OTHERS)
        new = other.utterances[0]
        codes_kept += np.array_equal(new.codes[:cut], first.codes[:cut])
        at = cut * hop - round(first.trimmed_s * synthesizer.info.sample_rate_hz)
        length = min(len(sound), len(changed))
        differ = np.flatnonzero(sound[:length] != changed[:length])
        before.append((at - (int(differ[0]) if len(differ) else length)) / hop)
        borders = np.arange(at % hop or hop, len(changed), hop)
        jumps = np.abs(changed[borders] - changed[borders - 1])
        own = float(abs(changed[at] - changed[at - 1])) if at < len(changed) else 0.0
        ranks.append(float((jumps < own).mean()))
        ratios.append(own / max(float(jumps.max()), 1e-9))
    print(f"same knobs and seed, the same codes and samples: {equal} of {chosen.count}")
    print(f"other knobs, the same codes up to the cut: {codes_kept} of {chosen.count}")
    print(
        "other knobs, first sample that differs, frames before the cut:"
        f" median {np.median(before):.2f}, most {max(before):.2f}"
    )
    print(
        f"jump at the cut: rank among the take's frame borders, mean {np.mean(ranks):.2f};"
        f" largest, of the largest border's: {max(ratios):.2f}"
    )


def speak(
    synthesizer: Synthesizer, line: str, kept: KeptTake | None, **knobs: Any
) -> tuple[SpeechResult, NDArray[np.float32]]:
    """Return the result of a sentence and its samples ``[N]``."""
    job = SpeechJob("take", line, SamplingParams(**knobs), kept=kept)
    chunks = list(synthesizer.speak(synthesizer.plan(job)))
    result = chunks[-1].result
    assert result is not None
    return result, np.concatenate([chunk.samples for chunk in chunks])


if __name__ == "__main__":
    main()
