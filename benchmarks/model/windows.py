"""What windows cost in sound: codes and samples of `full` masks drawn in windows, and as a whole.

    python -m benchmarks.model.windows --sentences 12 --out windows.json
    python -m benchmarks.model.windows --model ecker/vall-e --out windows.json

Level 0 is what the model speaks; the finer levels are drawn over it in every shape of windows. A
seam is the border of two windows; its jump is the step between the two samples there over the rms
of the whole sound, and must be compared with that of the whole at the same places. Without a
checkpoint that was trained with `full` masks the built-in voice stands in, its masks opened: what
it was not trained for, so its row `own mask` tells how far that alone leads away.
"""

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from statistics import fmean, median

import torch
from torch import Tensor
from tqdm import tqdm

from app.calibration import SENTENCES, read_sentences
from app.engine.level_0.job import longest
from app.engine.level_0.runner import ArRunner
from app.engine.sound.nar_windowed import Windows
from app.engine.sound.utterance import finer_levels
from app.engine.utterance import UtteranceInput
from app.settings import BUILTIN_MODEL
from models.checkpoints import SpeechModel, open_speech_model
from models.prefix_cache import PrefixCache
from models.text import FrontEnd
from models.valle import Valle
from models.voices.voice import BuiltinVoices, PromptCodes
from samplers.knobs.params import SamplingParams
from samplers.knobs.resolve import resolve

SHAPES = (
    (15, 75, 0),
    (15, 75, 15),
    (30, 0, 0),
    (30, 75, 0),
    (30, 75, 15),
    (30, 75, 45),
    (30, 300, 15),
    (75, 75, 15),
    (150, 75, 15),
)
"""Frames of a window, before it, and after it."""

FLOOR_DB = -60.0  # under the loudest bin; what is softer counts as that


@dataclass(frozen=True)
class Row:
    """One shape of windows against the whole, over all sentences.

    Attributes:
        shape: Frames of a window, before and after it; or in words.
        heard_after_s: Speech that must have been drawn before the first window can be heard.
        work: Positions that all passes see, over those of the whole's.
        equal_level_1: Share of its codes that are those of the whole.
        equal: The same of all finer levels.
        jump: Median over seams of the jump over rms.
        jump_of_whole: The same of the whole's sound, at the same places.
        worst_jump: The greatest.
        worst_jump_of_whole: The same of the whole.
        spectrum_db: Mean difference of the sounds' log spectra.
    """

    shape: str
    heard_after_s: float
    work: float
    equal_level_1: float
    equal: float
    jump: float
    jump_of_whole: float
    worst_jump: float
    worst_jump_of_whole: float
    spectrum_db: float


@dataclass(frozen=True)
class Spoken:
    """A sentence: what it says, its level 0 ``[T]`` and, drawn as a whole, codes and samples."""

    inputs: UtteranceInput
    level_0: Tensor
    codes: Tensor
    samples: Tensor


def opened(model: Valle) -> Valle:
    """Return the same weights with `full` masks."""
    twin = Valle(model.config.model_copy(update={"nar_mask": "full"}))
    twin.load_state_dict(model.state_dict())
    return twin.eval().requires_grad_(False)


@torch.inference_mode()
def draw(
    model: Valle, speech: SpeechModel, inputs: UtteranceInput, level_0: Tensor
) -> tuple[Tensor, Tensor]:
    """Return codes ``[T, K]`` and samples ``[N]`` of a given level 0."""
    finer = finer_levels(model, speech.codec.quantizer.codebooks, inputs, PrefixCache(model))
    chunks = chain.from_iterable(finer.push(level_0, ended=True))
    codes = torch.cat([*chunks, finer.rest()])
    return codes, speech.codec.decode(codes)


def speak(speech: SpeechModel, full: Valle, sentences: Sequence[str]) -> list[Spoken]:
    """Speak sentences with the model's first voice and preset, a seed each."""
    config, codec = speech.model.config, speech.codec
    front_end, voices = FrontEnd(config), BuiltinVoices(speech.folder / "voices")
    prompts = PromptCodes(codec, torch.device("cpu"), max_frames=config.max_prompt_frames)
    prefixes, spoken = PrefixCache(speech.model), []
    for seed, sentence in enumerate(tqdm(sentences)):
        ids = front_end.encode(
            " ".join(
                one.phonemes
                for one in front_end.prepare(sentence, language="en", max_chars=len(sentence))
            )
        )
        params = resolve(SamplingParams(seed=seed), config.preset)
        limit = longest(len(ids), codec.config.frame_rate_hz)
        inputs = UtteranceInput(ids, params, seed, 0, limit, prompt=prompts.of(voices.default))
        batch = ArRunner.alone(speech.model, prefixes, inputs)
        utterance = batch.admit(inputs)
        while utterance.finish_reason is None:
            batch.step()
        if len(level_0 := utterance.codes()):
            codes, samples = draw(full, speech, inputs, level_0)
            spoken.append(Spoken(inputs, level_0, codes, samples))
    return spoken


def compare(
    name: str,
    model: Valle,
    speech: SpeechModel,
    spoken: Sequence[Spoken],
    shape: tuple[int, int, int],
) -> Row:
    """Draw all sentences in windows of a shape, and hold them against the whole."""
    size, _, lookahead = shape
    hop, rate_hz = speech.codec.config.hop, speech.codec.config.frame_rate_hz
    equal, spectra, work = [], [], []
    jumps: list[float] = [0.0]
    jumps_of_whole: list[float] = [0.0]
    knobs = ("nar_window_frames", "nar_left_context_frames", "nar_lookahead_frames")
    for one in spoken:
        params = one.inputs.params.model_copy(update=dict(zip(knobs, shape, strict=True)))
        fields = {field: getattr(one.inputs, field) for field in one.inputs.__dataclass_fields__}
        codes, samples = draw(
            model, speech, UtteranceInput(**fields | {"params": params}), one.level_0
        )
        windows = list(Windows(*shape).up_to(len(codes), ended=True))
        before = len(one.inputs.prefix(model, 1))
        seen = sum(before + window.last - window.first for window in windows)
        work.append(seen / (before + len(codes)))
        equal.append((codes == one.codes)[:, 1:].float().mean(0))
        spectra.append(spectral_difference_db(samples, one.samples))
        seams = [window.start * hop for window in windows[1:]]
        jumps += jumps_at(samples, seams)
        jumps_of_whole += jumps_at(one.samples, seams)
    shares = torch.stack(equal).mean(0)
    longest_s = fmean(len(one.level_0) for one in spoken) / rate_hz
    return Row(
        name,
        min(longest_s, (size + lookahead) / rate_hz) if size else longest_s,
        fmean(work),
        float(shares[0]),
        float(shares.mean()),
        median(jumps[1:] or [0.0]),
        median(jumps_of_whole[1:] or [0.0]),
        max(jumps),
        max(jumps_of_whole),
        fmean(spectra),
    )


def jumps_at(samples: Tensor, places: Sequence[int]) -> list[float]:
    """Return the step to each place from the sample before it, over the sound's rms."""
    rms = float(samples.square().mean().sqrt()) or 1.0
    return [float((samples[place] - samples[place - 1]).abs()) / rms for place in places]


def spectral_difference_db(left: Tensor, right: Tensor) -> float:
    """Return the mean absolute difference of two sounds' log spectra, 1024 samples a window."""
    window = torch.hann_window(1024)
    power = [
        torch.stft(sound, 1024, 256, window=window, return_complex=True).abs()
        for sound in (left, right)
    ]
    floor = float(power[1].max()) * 10 ** (FLOOR_DB / 20)
    logs = [20 * spectrum.clamp(min=floor).log10() for spectrum in power]
    return float((logs[0] - logs[1]).abs().mean())


def measure(speech: SpeechModel, sentences: Sequence[str]) -> list[Row]:
    """Return a row a shape; the first is of the model's own mask if it is another."""
    stands_in = speech.model.config.nar_mask != "full"
    full = opened(speech.model) if stands_in else speech.model
    spoken = speak(speech, full, sentences)
    rows = []
    if stands_in:
        rows.append(compare("own mask", speech.model, speech, spoken, (0, 0, 0)))
    for shape in tqdm(SHAPES):
        rows.append(compare(" ".join(map(str, shape)), full, speech, spoken, shape))
    return rows


def main() -> None:
    """Print the table and write JSON."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--model", default=str(BUILTIN_MODEL), help="as TTS_MODEL names one")
    parser.add_argument("--sentences", type=int, default=12)
    parser.add_argument("--out", type=Path, default=None)
    args = parser.parse_args()
    torch.set_num_threads(1)
    speech = open_speech_model(args.model, torch.device("cpu"))
    rows = measure(speech, read_sentences(SENTENCES)[: args.sentences])
    names = list(Row.__dataclass_fields__)
    print("| " + " | ".join(names) + " |")
    print("| " + " | ".join("---" for _ in names) + " |")
    for row in rows:
        shape, *figures = asdict(row).values()
        print(f"| {shape} | " + " | ".join(f"{figure:.3f}" for figure in figures) + " |")
    if args.out:
        report = {"model": speech.name, "sha256": speech.sha256, "rows": [*map(asdict, rows)]}
        args.out.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
