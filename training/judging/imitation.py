"""Can the model speak as somebody it has never heard?

    python -m training.judging.imitation --sentences-each 2 --rates 0.82 0.9 1 1.1 1.22

Speakers who were kept out of training (`training.speech.chorus`) each give a prompt of some 3 s.
The model says sentences in their voices; each is right if the embedding of what it said is nearest
to that of its own speaker among all of them. Beside it stand the same figures for true speech of
these speakers and for its codec round trip: nobody can do better than those.

Mixtures of one teacher's voices are more alike than people are. With ``--rates`` each speaker is
also heard at other sizes (`training.speech.perturb`), and of all these the ``--speakers`` whose
reference recordings are furthest apart are taken; what is judged are other recordings.
"""

import argparse
import json
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np
import soundfile
from numpy.typing import NDArray

from app.settings import BUILTIN_MODEL
from models.checkpoints import load_codec
from training.cache import cache_folder
from training.judging.bootstrap import Sums, estimate_share
from training.judging.judges import HEARING_RATE_HZ, VoiceEmbedder, resample
from training.judging.speakers import BuiltIn, RoundTrip, Samples
from training.lm.codes import trimmed
from training.speech.corpus import SAMPLE_RATE_HZ, Corpus, CorpusEntry
from training.speech.perturb import played

PROMPT_S = 3.0
REFERENCES = 2  # recordings of a speaker that make the reference; the first is also the prompt
SENTENCES = (
    "The morning train was late again, so we walked along the river instead.",
    "Please put the heavy boxes on the left side of the kitchen table.",
    "Nobody had expected such a warm day at the end of October.",
)


def unseen_speakers(utterances: Sequence[CorpusEntry]) -> dict[str, list[CorpusEntry]]:
    """Return the utterances of each speaker whom training never hears, the longest first."""
    found: dict[str, list[CorpusEntry]] = {}
    for utterance in utterances:
        if utterance.part == "speakers":
            found.setdefault(utterance.speaker, []).append(utterance)
    return {
        name: sorted(spoken, key=lambda utterance: -utterance.duration_s)
        for name, spoken in sorted(found.items())
    }


def furthest_apart(references: Mapping[str, NDArray[np.float32]], count: int) -> list[str]:
    """Return the names of ``count`` unit vectors ``[D]`` that are unlike each other, sorted.

    The two that are least alike, then again and again the one whose nearest of those taken is the
    furthest from it (Gonzalez 1985, "Clustering to minimize the maximum intercluster distance").
    """
    names = sorted(references)
    if len(names) <= count:
        return names
    matrix = np.stack([references[name] for name in names])
    likeness = matrix @ matrix.T
    taken = [int(place) for place in np.unravel_index(likeness.argmin(), likeness.shape)]
    while len(taken) < count:
        nearest = likeness[:, taken].max(1)
        nearest[taken] = np.inf
        taken.append(int(nearest.argmin()))
    return sorted(names[place] for place in taken[:count])


def nearest_to_themselves(
    embeddings: Mapping[str, Sequence[NDArray[np.float32]]],
    references: Mapping[str, NDArray[np.float32]],
) -> tuple[Sums, Sums, float]:
    """Return how many recordings are nearest to their speaker, of how many, and the mean cosine.

    Args:
        embeddings: Unit vectors ``[D]`` of recordings meant to sound like each speaker.
        references: The speakers' own, ``[D]``.
    """
    names = list(references)
    matrix = np.stack([references[name] for name in names])
    right, cosines = [], []
    for name, recordings in embeddings.items():
        likeness = np.stack(recordings) @ matrix.T
        own = names.index(name)
        heard = likeness[:, own] > 0  # silence is as near to all
        right.append(((likeness.argmax(1) == own) & heard).sum())
        cosines.extend(likeness[:, own].tolist())
    trials = [len(recordings) for recordings in embeddings.values()]
    return np.array(right, float), np.array(trials, float), float(np.mean(cosines))


def _with_voices(weights: Path, folder: Path, prompts: Mapping[str, Samples]) -> Path:
    """Copy a model into ``folder``, with the speakers as its voices."""
    shutil.copytree(weights, folder, ignore=shutil.ignore_patterns("voices", "plots"))
    (folder / "voices").mkdir()
    for name, samples in prompts.items():
        soundfile.write(folder / "voices" / f"{name}.flac", samples, SAMPLE_RATE_HZ)
    return folder


def _systems(
    args: argparse.Namespace, folder: Path, speech: Mapping[str, Sequence[Samples]]
) -> Iterator[tuple[str, Callable[[str], list[Samples]]]]:
    """Yield who speaks, and what they said as a given speaker."""

    def true_speech(name: str) -> list[Samples]:
        return list(speech[name][REFERENCES:])

    yield "true speech", true_speech
    round_trip = RoundTrip(lambda _text, _seed: np.zeros(0, np.float32), load_codec(args.weights))
    yield (
        "its codec round trip",
        lambda name: [round_trip.pass_through(one).samples for one in true_speech(name)],
    )
    model = BuiltIn(folder)
    yield (
        "model",
        lambda name: [
            model.speak_as(name, text, 0).samples for text in SENTENCES[: args.sentences_each]
        ],
    )


def _speech(corpus: Corpus, rates: Sequence[float]) -> dict[str, list[Samples]]:
    """Return what each unseen speaker says, at each rate, the longest first."""
    return {
        f"{name}-{round(100 * rate)}": [played(trimmed(corpus.samples(one)), rate) for one in own]
        for name, own in unseen_speakers(corpus.utterances).items()
        for rate in rates
    }


def main() -> None:
    """Print how often each system is nearest to the speaker it imitates."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--weights", type=Path, default=BUILTIN_MODEL)
    parser.add_argument("--sentences-each", type=int, default=2, choices=[1, 2, 3])
    parser.add_argument("--rates", type=float, nargs="+", default=[1.0], help="of playing")
    parser.add_argument("--speakers", type=int, default=20, help="at most, those furthest apart")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    speech = _speech(Corpus(cache_folder(), "kokoro"), args.rates)
    embedder = VoiceEmbedder()

    def embed(samples: Samples) -> NDArray[np.float32]:
        return embedder.embed(resample(samples, SAMPLE_RATE_HZ, HEARING_RATE_HZ))

    def reference(name: str) -> NDArray[np.float32]:
        mean = np.mean([embed(samples) for samples in speech[name][:REFERENCES]], axis=0)
        return np.asarray(mean / np.linalg.norm(mean), np.float32)

    references = {name: reference(name) for name in speech}
    names = furthest_apart(references, args.speakers)
    references = {name: references[name] for name in names}
    prompts = {name: speech[name][0][: round(PROMPT_S * SAMPLE_RATE_HZ)] for name in names}
    figures = {}
    print(f"| of {len(names)} unseen speakers | nearest to themselves | cosine |")
    print("| --- | --- | --- |")
    with tempfile.TemporaryDirectory() as place:
        folder = _with_voices(args.weights, Path(place) / "model", prompts)
        for system, speak in _systems(args, folder, speech):
            said = {name: [embed(samples) for samples in speak(name)] for name in names}
            right, trials, cosine = nearest_to_themselves(said, references)
            share = estimate_share(right, trials)
            figures[system] = {**asdict(share), "cosine": cosine}
            shown = f"{share.value:.0%} [{share.low:.0%}, {share.high:.0%}]"
            print(f"| {system} | {shown} | {cosine:.3f} |", flush=True)
    if args.out:
        args.out.write_text(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
