"""Can the model speak as somebody it has never heard?

    python -m lab.training.judging.imitation people --ways full 16k 8k room
    python -m lab.training.judging.imitation voices --ways full 16k 8k
    python -m lab.training.judging.imitation unseen --rates 0.82 0.9 1 1.1 1.22

Each speaker gives a recording, which is uploaded as a client's would be, in one or more ways: as it
is, at 16 or 8 kHz, from a room with noise. The model says sentences in their voices; each is right
if the embedding of what it said is nearest to that of its own speaker among all of them. Beside it
stand the same figures for true speech of these speakers and for its codec round trip, in the same
ways: nobody can do better than those. Between them and the model stands speech of which level 0 is
true and the NAR levels are the model's: what is lost behind it, level 0 has lost.

*people* are real ones (`lab.training.judging.people`): their references are other recordings than
the one that is uploaded. *voices* are those that ship: what the model says as each is uploaded, and
its references are other sentences. *unseen* are speakers of the slow teacher who were kept out of
training (`lab.training.speech.chorus`). Mixtures of one teacher's voices are more alike than people
are: with ``--rates`` each is also heard at other sizes (`lab.training.speech.perturb`), and of all
these the ``--speakers`` whose references are furthest apart are taken.
"""

import argparse
import io
import json
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import numpy as np
import soundfile
import torch
from numpy.typing import NDArray

from app.commands.study.bootstrap import Estimate, Sums, estimate_ratio, estimate_share
from app.settings import BUILTIN_MODEL
from lab.training.cache import cache_folder
from lab.training.judging.evaluate import parse_knobs
from lab.training.judging.judges import (
    EMBEDDERS,
    HEARING_RATE_HZ,
    Dnsmos,
    Whisper,
    count_errors,
    resample,
    whisper_folder,
)
from lab.training.judging.people import PEOPLE, recordings
from lab.training.judging.speakers import BuiltIn, RoundTrip, Samples
from lab.training.lm.codes import trimmed
from lab.training.speech.channels import Channel, passed
from lab.training.speech.corpus import SAMPLE_RATE_HZ, Corpus, CorpusEntry
from lab.training.speech.perturb import played
from models.checkpoints.builtin import load_codec, load_lm
from models.text import FrontEnd, phonemize
from models.voices.recording import Recording, read_recording
from models.voices.voice import BuiltinVoices, PromptCodes

PROMPT_S = 3.0  # of what is uploaded: longer ones are cut where the model takes no more
REFERENCES = 2  # recordings of a speaker that make the reference
SENTENCES = (
    "The morning train was late again, so we walked along the river instead.",
    "Please put the heavy boxes on the left side of the kitchen table.",
    "Nobody had expected such a warm day at the end of October.",
)
OWN_SENTENCES = (
    "The library closes early on Fridays, but you can still return books by the door.",
    "My sister planted three apple trees behind the house last spring.",
    "We should leave before noon if we want to miss the traffic.",
)
"""What a built-in voice says for its recording and for its references."""
ROOM: Final = Channel(
    decay_s=0.4, reverberant_db=-4.0, noise_db=15.0, colour=1.0, band_hz=(80.0, 7_000.0)
)
RATES_HZ: Final = {"16k": 16_000, "8k": 8_000}
WAYS: Final = ("full", *RATES_HZ, "room")

Embedding = NDArray[np.float32]
"""``[D]``, of unit length, or zeros for silence."""
Spoken = list[tuple[Samples, str | None]]
"""Recordings ``[N]``, each with its text where it is known."""


@dataclass(frozen=True)
class Subject:
    """Somebody to imitate; recordings are ``[N]``."""

    uploaded: Samples  # what the model is prompted with
    rate_hz: int  # of that; the others have training's
    references: Sequence[Samples]  # what the speaker is known by
    others: Sequence[Samples]  # true speech, to be judged beside the model's


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


def furthest_apart(references: Mapping[str, Embedding], count: int) -> list[str]:
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
    embeddings: Mapping[str, Sequence[Embedding]], references: Mapping[str, Embedding]
) -> tuple[Sums, Sums, Sums]:
    """Return by speaker how many recordings are nearest to them, of how many, and summed cosines.

    ``embeddings`` are unit vectors ``[D]`` of recordings meant to sound like each speaker,
    ``references`` the speakers' own.
    """
    names = list(references)
    matrix = np.stack([references[name] for name in names])
    right, cosines = [], []
    for name, spoken in embeddings.items():
        likeness = np.stack(spoken) @ matrix.T
        own = names.index(name)
        heard = likeness[:, own] > 0  # silence is as near to all
        right.append(((likeness.argmax(1) == own) & heard).sum())
        cosines.append(likeness[:, own].sum())
    trials = [len(spoken) for spoken in embeddings.values()]
    return np.array(right, float), np.array(trials, float), np.array(cosines, float)


def pairwise(references: Mapping[str, Embedding]) -> float:
    """Return the mean cosine of two different speakers: how unlike a crowd is."""
    matrix = np.stack(list(references.values()))
    return float((matrix @ matrix.T)[np.triu_indices(len(matrix), 1)].mean())


def sent(samples: Samples, rate_hz: int, way: str) -> tuple[Samples, int]:
    """Return a recording ``[N]`` as it is sent, and its rate."""
    if way == "room":
        sound = resample(samples, rate_hz, SAMPLE_RATE_HZ)
        return passed(sound, ROOM, np.random.default_rng(0)), SAMPLE_RATE_HZ
    to_hz = min(rate_hz, RATES_HZ.get(way, rate_hz))
    return resample(samples, rate_hz, to_hz), to_hz


def _upload(samples: Samples, rate_hz: int) -> Recording:
    """Return what the service makes of a recording."""
    file = io.BytesIO()
    soundfile.write(file, samples, rate_hz, format="WAV", subtype="FLOAT")
    return read_recording(file.getvalue())


def _with_voices(weights: Path, folder: Path, prompts: Mapping[str, Recording]) -> Path:
    """Copy a model into ``folder``, with the speakers as its voices."""
    shutil.copytree(
        weights, folder, ignore=shutil.ignore_patterns("voices", "plots", "golden.json")
    )
    (folder / "voices").mkdir()
    for name, prompt in prompts.items():
        (folder / "voices" / f"{name}.flac").write_bytes(prompt.flac())
    return folder


def _people(_: argparse.Namespace) -> dict[str, Subject]:
    """Return real people: the first recording is sent, the next ones are the reference."""
    found = {}
    for person in PEOPLE:
        (uploaded, rate_hz), *rest = recordings(person)
        kept = [resample(one, rate, SAMPLE_RATE_HZ) for one, rate in rest]
        found[person.name] = Subject(uploaded, rate_hz, kept[:REFERENCES], kept[REFERENCES:])
    return found


def _voices(args: argparse.Namespace) -> dict[str, Subject]:
    """Return the voices that ship, as the model speaks in them."""
    model = BuiltIn(args.weights)
    found = {}
    for voice in BuiltinVoices(args.weights / "voices"):
        uploaded, *references = [
            model.speak_as(voice.name, text, 0).samples for text in OWN_SENTENCES
        ]
        again = [model.speak_as(voice.name, SENTENCES[0], 1).samples]
        found[voice.name] = Subject(uploaded, SAMPLE_RATE_HZ, references, again)
    return found


def _unseen(args: argparse.Namespace) -> dict[str, Subject]:
    """Return the slow teacher's speakers, at each rate, the longest of what they say first."""
    corpus = Corpus(cache_folder(), "kokoro")
    found = {}
    for name, own in unseen_speakers(corpus.utterances).items():
        for rate in args.rates:
            speech = [played(trimmed(corpus.samples(one)), rate) for one in own]
            prompt = speech[0][: round(PROMPT_S * SAMPLE_RATE_HZ)]
            found[f"{name}-{round(100 * rate)}"] = Subject(
                prompt, SAMPLE_RATE_HZ, speech[:REFERENCES], speech[REFERENCES:]
            )
    return found


WHO: Final[dict[str, Callable[[argparse.Namespace], dict[str, Subject]]]] = {
    "people": _people,
    "voices": _voices,
    "unseen": _unseen,
}


class Judges:
    """Who tells voices apart, what was said, and how it sounds."""

    def __init__(self, embedder: str = "resemblyzer") -> None:
        self._embedder, self._dnsmos = EMBEDDERS[embedder](), Dnsmos()
        self._whisper = Whisper(whisper_folder("tiny.en"))

    def embed(self, samples: Samples) -> Embedding:
        """Return the embedding of speech ``[N]`` of `SAMPLE_RATE_HZ`."""
        return self._embedder.embed(resample(samples, SAMPLE_RATE_HZ, HEARING_RATE_HZ))

    def reference(self, graphs_of_one: Sequence[Samples]) -> Embedding:
        """Return the mean embedding of some recordings, of unit length."""
        mean = np.mean([self.embed(samples) for samples in graphs_of_one], axis=0)
        return np.asarray(mean / np.linalg.norm(mean), np.float32)

    def hear(self, samples: Samples) -> str:
        """Return the words of speech ``[N]``, English ones whatever the language."""
        return self._whisper.hear(resample(samples, SAMPLE_RATE_HZ, HEARING_RATE_HZ))

    def words(self, samples: Samples, text: str) -> tuple[int, int]:
        """Return how many words were heard otherwise, of how many."""
        errors = count_errors(text, self.hear(samples))
        return errors.word_edits, errors.words

    def rate(self, samples: Samples) -> float:
        """Return DNSMOS of speech ``[N]``; 1, the worst, for none at all."""
        return self._dnsmos.rate(resample(samples, SAMPLE_RATE_HZ, HEARING_RATE_HZ)) or 1.0


class TrueAr:
    """True codes of level 0 under the model's NAR levels, in the voices of a model's folder."""

    def __init__(self, folder: Path) -> None:
        self._model, self._codec = load_lm(folder), load_codec(folder)
        self._voices = BuiltinVoices(folder / "voices")
        self._prompts = PromptCodes(
            self._codec,
            torch.device("cpu"),
            max_frames=self._model.config.max_prompt_frames,
        )

    @torch.inference_mode()
    def speak_as(self, voice: str, samples: Samples, text: str) -> Samples:
        """Return ``samples`` ``[N]`` with the likeliest NAR levels after a voice's recording."""
        model, prompt = self._model, self._prompts.of(self._voices[voice])
        codes = self._codec.encode(torch.from_numpy(samples))
        phoneme_ids = FrontEnd(model.config).encode(phonemize(text))
        for level in range(1, codes.shape[1]):
            prefix = model.prefix(phoneme_ids, level, prompt=prompt)
            codes[:, level] = model.nar_logits(prefix, codes, level).argmax(-1)
        return self._codec.decode(codes).numpy()[: len(samples)]


def figures_of(
    said: Mapping[str, Spoken],
    references: Mapping[str, Embedding],
    judges: Judges,
) -> dict[str, Estimate]:
    """Return the figures of one system in one way, with intervals over speakers."""
    embeddings = {
        name: [judges.embed(samples) for samples, _ in spoken] for name, spoken in said.items()
    }
    right, trials, cosines = nearest_to_themselves(embeddings, references)
    ratings = np.array([sum(judges.rate(one) for one, _ in spoken) for spoken in said.values()])
    figures = {
        "nearest": estimate_share(right, trials),
        "cosine": estimate_ratio(cosines, trials),
        "dnsmos": estimate_ratio(ratings, trials),
    }
    counted = [
        [judges.words(one, text) for one, text in spoken if text is not None]
        for spoken in said.values()
    ]
    if all(counted):
        edits, words = np.array([np.sum(counts, 0) for counts in counted], float).T
        figures["wer"] = estimate_ratio(edits, words)
    return figures


def _systems(
    args: argparse.Namespace, folder: Path, subjects: Mapping[str, Subject], judges: Judges
) -> Iterator[tuple[str, Callable[[str, str], Spoken]]]:
    """Yield who speaks, and what they said as a speaker who is recorded in some way."""

    def true_speech(name: str, way: str) -> Spoken:
        found: Spoken = []
        for one in subjects[name].others:
            samples, rate_hz = sent(one, SAMPLE_RATE_HZ, way)
            found.append((resample(samples, rate_hz, SAMPLE_RATE_HZ), None))
        return found

    if not args.model_only:
        yield "true speech", true_speech
        codec = RoundTrip(lambda _text, _seed: np.zeros(0, np.float32), load_codec(args.weights))
        yield (
            "its codec round trip",
            lambda name, way: [
                (codec.pass_through(one).samples, None) for one, _ in true_speech(name, way)
            ],
        )
        true_ar = TrueAr(folder)
        yield (
            "true level 0, NAR levels of the model",
            lambda name, way: [
                (true_ar.speak_as(f"{name}-{way}", one, judges.hear(one)), None)
                for one in subjects[name].others
            ],
        )
    model = BuiltIn(folder)
    for chosen in args.knobs or [""]:
        knobs = parse_knobs(chosen)
        yield (
            ", ".join(filter(None, ("model", chosen))),
            lambda name, way, knobs=knobs: [  # type: ignore[misc]
                (model.speak_as(f"{name}-{way}", text, 0, knobs).samples, text)
                for text in SENTENCES[: args.sentences_each]
            ],
        )


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("who", choices=WHO)
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=["full"], help="of recording")
    parser.add_argument("--seconds", type=float, help="of what is uploaded, at most")
    parser.add_argument("--weights", type=Path, default=BUILTIN_MODEL)
    parser.add_argument("--sentences-each", type=int, default=3, choices=[1, 2, 3])
    parser.add_argument("--knobs", action="append", metavar="NAME=VALUE,...", help="of the model")
    parser.add_argument("--model-only", action="store_true", help="no true speech, no codec")
    parser.add_argument("--rates", type=float, nargs="+", default=[1.0], help="of playing: unseen")
    parser.add_argument("--speakers", type=int, default=20, help="at most, those furthest apart")
    parser.add_argument("--judge", choices=EMBEDDERS, default="resemblyzer", help="of who speaks")
    parser.add_argument("--out", type=Path, help="JSON file")
    return parser.parse_args()


def _row(figures: Mapping[str, Estimate], right_of: float) -> str:
    near, cosine, mos = figures["nearest"], figures["cosine"], figures["dnsmos"]
    cells = [
        f"{round(near.value * right_of)} of {right_of:.0f},"
        f" {near.value:.0%} [{near.low:.0%}, {near.high:.0%}]",
        f"{cosine.value:.2f} [{cosine.low:.2f}, {cosine.high:.2f}]",
        "",
        f"{mos.value:.2f} [{mos.low:.2f}, {mos.high:.2f}]",
    ]
    if "wer" in figures:
        wer = figures["wer"].scaled(100)
        cells[2] = f"{wer.value:.1f} % [{wer.low:.1f}, {wer.high:.1f}]"
    return " | ".join(cells)


def main() -> None:
    """Print how often each system is nearest to the speaker it imitates."""
    args = _parse()
    subjects, judges = WHO[args.who](args), Judges(args.judge)
    references = {name: judges.reference(one.references) for name, one in subjects.items()}
    references = {name: references[name] for name in furthest_apart(references, args.speakers)}
    prompts = {}
    for name in references:
        subject = subjects[name]
        length = round(args.seconds * subject.rate_hz) if args.seconds else None
        for way in args.ways:
            made = sent(subject.uploaded[:length], subject.rate_hz, way)
            prompts[f"{name}-{way}"] = _upload(*made)
    figures: dict[str, dict[str, dict[str, float]]] = {}
    print(f"{args.who}: {len(references)} speakers, {pairwise(references):.2f} alike")
    print("| | nearest to themselves | cosine | WER (tiny.en) | DNSMOS |")
    print("| --- | ---: | ---: | ---: | ---: |")
    with tempfile.TemporaryDirectory() as place:
        folder = _with_voices(args.weights, Path(place) / "model", prompts)
        for system, speak in _systems(args, folder, subjects, judges):
            for way in args.ways:
                said = {name: speak(name, way) for name in references}
                found = figures_of(said, references, judges)
                trials = sum(map(len, said.values()))
                figures[f"{system}, {way}"] = {name: asdict(one) for name, one in found.items()}
                print(f"| {system}, {way} | {_row(found, trials)} |", flush=True)
    if args.out:
        args.out.write_text(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
