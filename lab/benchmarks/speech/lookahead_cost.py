"""What level 0 of speech costs whose text grows, beside that of whole sentences, by turns.

    python -m lab.benchmarks.speech.lookahead_cost --takes 20 --out cost.json

Each text is spoken with each look-ahead, one after the other, by itself in this process. The figure
is the time of level 0 a frame, over that without a look-ahead. Figures need an idle machine.
"""

import sys
from statistics import median
from typing import Any, Final

from app.engine.backend.synthesizer import Synthesizer
from app.engine.core import SpeechJob
from app.settings import Settings
from lab.benchmarks.harness.report import argument_parser, conclude, machine
from lab.benchmarks.harness.texts import texts
from samplers.knobs.params import SamplingParams

LOOKAHEADS: Final = (0, 1, 2)


def frame_s(speaker: Synthesizer, text: str, seed: int, lookahead: int) -> float:
    """Return the seconds of level 0 for a frame of a text."""
    params = SamplingParams(seed=seed, text_lookahead_words=lookahead, nar_levels=0)
    result = speaker.spoken(SpeechJob(f"{seed}-{lookahead}", text, params, voice="heart"))
    return result.timings.ar_s / max(1, result.frames)


def main() -> int:
    """Measure, print the table, write the report."""
    parser = argument_parser(__doc__)
    parser.add_argument("--takes", type=int, default=20, help="texts")
    given = parser.parse_args()
    started = machine()
    inputs = texts(given.takes)
    speaker = Synthesizer.load(Settings(threads=1))
    for lookahead in LOOKAHEADS:
        frame_s(speaker, inputs[0], 0, lookahead)
    costs: dict[int, list[float]] = {lookahead: [] for lookahead in LOOKAHEADS}
    for seed, text in enumerate(inputs, 1):
        turns = LOOKAHEADS if seed % 2 else LOOKAHEADS[::-1]
        for lookahead in turns:
            costs[lookahead].append(frame_s(speaker, text, seed, lookahead))
    rows: list[dict[str, Any]] = []
    for lookahead in LOOKAHEADS:
        ratios = [one / whole for one, whole in zip(costs[lookahead], costs[0], strict=True)]
        rows.append({
            "look-ahead": lookahead,
            "texts": len(inputs),
            "ms a frame, median": 1000 * median(costs[lookahead]),
            "over whole sentences, median": median(ratios),
            "over whole sentences, all": sum(costs[lookahead]) / sum(costs[0]),
        })
    return conclude(rows, [], given.out, started, {"costs": costs})


if __name__ == "__main__":
    sys.exit(main())
