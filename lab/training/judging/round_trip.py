"""How much of who speaks does a codec keep? Codecs beside each other, by both judges of voices.

    python -m lab.training.judging.round_trip --weights weights NEXT

Recordings of people pass through each codec, restored as the service restores them; what comes out
is compared with other recordings of the same people. *judged* are the twelve of
`lab.training.judging.people`, *unheard* those of the corpus `people` who are kept out of training.
Every codec gets the same recordings, and differences to the first are paired by person.
"""

import argparse
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

import numpy as np

from app.commands.study.bootstrap import Estimate, Sums, estimate_difference, estimate_ratio
from app.settings import BUILTIN_MODEL
from lab.training.cache import cache_folder
from lab.training.judging.imitation import REFERENCES, Embedding, nearest_to_themselves
from lab.training.judging.judges import EMBEDDERS, HEARING_RATE_HZ, Dnsmos, resample
from lab.training.judging.people import PEOPLE, recordings
from lab.training.judging.speakers import RoundTrip, Samples
from lab.training.speech.corpus import SAMPLE_RATE_HZ, Corpus
from models.checkpoints.builtin import load_codec

PIECES: Final = 6
"""How many recordings of a person are heard, the references among them."""


def judged() -> dict[str, list[Samples]]:
    """Return the recordings ``[N]`` of the judge's twelve people."""
    return {
        person.name: [resample(one, rate, SAMPLE_RATE_HZ) for one, rate in recordings(person)]
        for person in PEOPLE
    }


def unheard() -> dict[str, list[Samples]]:
    """Return the recordings ``[N]`` of people who are kept out of training, of enough of them."""
    corpus = Corpus(cache_folder(), "people")
    found: dict[str, list[Samples]] = {}
    for one in corpus.utterances:
        if one.part == "speakers":
            found.setdefault(one.speaker, []).append(corpus.samples(one))
    return {name: pieces[:PIECES] for name, pieces in found.items() if len(pieces) > 1}


WHO: Final[Mapping[str, Callable[[], dict[str, list[Samples]]]]] = {
    "judged": judged,
    "unheard": unheard,
}


def split(pieces: Sequence[Samples]) -> tuple[Sequence[Samples], Sequence[Samples]]:
    """Return the recordings of a person that make the reference, and the others."""
    count = min(REFERENCES, len(pieces) - 1)
    return pieces[:count], pieces[count:]


class Hearing:
    """What one judge makes of people, as they are and through codecs."""

    def __init__(self, name: str, people: Mapping[str, Sequence[Samples]]) -> None:
        self._embedder = EMBEDDERS[name]()
        self._references = {
            person: self._mean(split(pieces)[0]) for person, pieces in people.items()
        }

    def _mean(self, pieces: Sequence[Samples]) -> Embedding:
        mean = np.mean([self._embed(one) for one in pieces], axis=0)
        return np.asarray(mean / np.linalg.norm(mean), np.float32)

    def _embed(self, samples: Samples) -> Embedding:
        return self._embedder.embed(resample(samples, SAMPLE_RATE_HZ, HEARING_RATE_HZ))

    def sums(self, said: Mapping[str, Sequence[Samples]]) -> tuple[Sums, Sums, Sums]:
        """Return, as `nearest_to_themselves`, what is right, of how many, and summed cosines."""
        embeddings = {name: [self._embed(one) for one in pieces] for name, pieces in said.items()}
        return nearest_to_themselves(embeddings, self._references)


def _cell(estimate: Estimate, sign: str = "") -> str:
    return f"{estimate.value:{sign}.3f} [{estimate.low:{sign}.3f}, {estimate.high:{sign}.3f}]"


def main() -> None:
    """Print what each codec keeps."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--who", choices=WHO, default="judged")
    parser.add_argument("--weights", type=Path, nargs="+", default=[BUILTIN_MODEL])
    args = parser.parse_args()
    people = WHO[args.who]()
    others = {name: split(pieces)[1] for name, pieces in people.items()}
    hearings, dnsmos = {name: Hearing(name, people) for name in EMBEDDERS}, Dnsmos()
    print(
        f"{args.who}: {len(people)} people, {sum(map(len, others.values()))} recordings", flush=True
    )
    heads = [f"{name}: nearest | cosine | over the first" for name in hearings]
    print(f"| | {' | '.join(heads)} | DNSMOS |")
    print("| --- |" + " ---: |" * (3 * len(heads) + 1))
    first: dict[str, tuple[Sums, Sums]] = {}
    for folder in [None, *args.weights]:
        said: Mapping[str, Sequence[Samples]] = others
        if folder is not None:
            codec = RoundTrip(lambda _text, _seed: np.zeros(0, np.float32), load_codec(folder))
            said = {
                name: [codec.pass_through(one).samples for one in pieces]
                for name, pieces in others.items()
            }
        cells = []
        for name, hearing in hearings.items():
            right, trials, cosines = hearing.sums(said)
            cells += [f"{right.sum() / trials.sum():.0%}", _cell(estimate_ratio(cosines, trials))]
            over = ""
            if folder is not None:
                mine = first.setdefault(name, (cosines, trials))
                over = _cell(estimate_difference((cosines, trials), mine), "+")
            cells.append(over)
        ratings = [
            dnsmos.rate(resample(one, SAMPLE_RATE_HZ, HEARING_RATE_HZ)) or 1.0
            for pieces in said.values()
            for one in pieces
        ]
        cells.append(f"{np.mean(ratings):.2f}")
        print(f"| {folder or 'as they are'} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
