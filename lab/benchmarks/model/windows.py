"""Windowed NAR benchmark: codes and samples of `full` masks in windows and as a whole.

    python -m lab.benchmarks.model.windows --sentences 12 --out windows.json
    python -m lab.benchmarks.model.windows --model ecker/vall-e --out windows.json

Level 0 is generated once; the NAR levels are predicted over it with every window shape. A seam is
the border of two windows; its jump is the step between the two samples there divided by the rms of
the audio, to be compared with that of the whole at the same places. Without a checkpoint trained
with `full` masks the built-in voice is used with full masks, which it was not trained for; the row
`own mask` shows the effect of that alone.
"""

import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import repeat
from statistics import fmean, median

import torch
from torch import Tensor
from tqdm import tqdm

from app.commands.sentences import SENTENCES, read_sentences
from app.engine.ar.spec_builder import longest
from app.engine.ar.stage import ArBatch
from app.engine.nar.chunks import Windows
from app.engine.nar.state import NarState
from app.engine.utterance import UtteranceSpec
from app.settings import BUILTIN_MODEL
from lab.benchmarks.harness.report import argument_parser, conclude, machine
from models.checkpoints.sources import SpeechModel, open_speech_model
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

FLOOR_DB = -60.0  # relative to the loudest bin; lower values are clamped


@dataclass(frozen=True)
class WindowResult:
    """Comparison of one window shape with the whole, over all sentences."""

    shape: str  # frames of a window, before and after it; or a name
    heard_after_s: float  # seconds of level 0 needed before the first window can be decoded
    work: float  # positions of all passes relative to those of the whole
    equal_level_1: float  # share of level-1 codes equal to those of the whole
    equal: float  # share of equal codes over all NAR levels
    jump: float  # median jump over seams
    jump_of_whole: float  # median jump of the whole at the same places
    worst_jump: float  # largest jump
    worst_jump_of_whole: float  # largest jump of the whole at the same places
    spectrum_db: float  # mean difference of the log spectra


@dataclass(frozen=True)
class SpokenSentence:
    """A sentence: model input, level 0 ``[T]``, and codes and samples predicted as a whole."""

    inputs: UtteranceSpec
    ar_codes: Tensor
    codes: Tensor
    samples: Tensor


def with_full_mask(model: Valle) -> Valle:
    """Return a model with the same weights and `full` masks."""
    twin = Valle(model.config.model_copy(update={"nar_mask": "full"}))
    twin.load_state_dict(model.state_dict())
    return twin.eval().requires_grad_(False)


@torch.inference_mode()
def sample(
    model: Valle, speech: SpeechModel, inputs: UtteranceSpec, ar_codes: Tensor
) -> tuple[Tensor, Tensor]:
    """Predict the NAR levels over a level 0; return codes ``[T, K]`` and samples ``[N]``."""
    nar = NarState(model, speech.codec.quantizer.codebooks, inputs, PrefixCache(model))
    for window in nar.cut(ar_codes, ended=True):
        nar.sample(window)
    return nar.codes, speech.codec.decode(nar.codes)


def speak(speech: SpeechModel, full: Valle, sentences: Sequence[str]) -> list[SpokenSentence]:
    """Generate sentences with the default voice and the model's preset, one seed each."""
    config, codec = speech.model.config, speech.codec
    front_end, voices = FrontEnd(config), BuiltinVoices(speech.folder / "voices")
    prompts = PromptCodes(codec, torch.device("cpu"), max_frames=config.max_prompt_frames)
    prefixes, spoken = PrefixCache(speech.model), []
    for seed, sentence in enumerate(tqdm(sentences)):
        *_, read = front_end.prepared(sentence, language="en", max_chars=len(sentence))
        assert read is not None
        ids = front_end.encode(" ".join(one.phonemes for one in read.utterances))
        params = resolve(SamplingParams(seed=seed), config.preset)
        limit = longest(len(ids), codec.config.frame_rate_hz)
        inputs = UtteranceSpec(ids, params, seed, 0, limit, prompt=prompts.of(voices.default))
        batch = ArBatch.single(speech.model, prefixes, inputs)
        utterance = batch.admit(inputs)
        while utterance.finish_reason is None:
            batch.step()
        if len(ar_codes := utterance.ar_codes()):
            codes, samples = sample(full, speech, inputs, ar_codes)
            spoken.append(SpokenSentence(inputs, ar_codes, codes, samples))
    return spoken


def compare(
    name: str,
    model: Valle,
    speech: SpeechModel,
    spoken: Sequence[SpokenSentence],
    shape: tuple[int, int, int],
) -> WindowResult:
    """Predict all sentences in windows of a shape and compare them with the whole."""
    size, _, lookahead = shape
    hop, rate_hz = speech.codec.config.hop, speech.codec.config.frame_rate_hz
    equal, spectra, work = [], [], []
    jumps: list[float] = [0.0]
    jumps_of_whole: list[float] = [0.0]
    knobs = ("nar_window_frames", "nar_left_context_frames", "nar_lookahead_frames")
    for one in spoken:
        params = one.inputs.params.model_copy(update=dict(zip(knobs, shape, strict=True)))
        fields = {field: getattr(one.inputs, field) for field in one.inputs.__dataclass_fields__}
        codes, samples = sample(
            model, speech, UtteranceSpec(**fields | {"params": params}), one.ar_codes
        )
        frames, *seen_too = shape
        windows = Windows(repeat(frames or len(codes)), *seen_too).up_to(len(codes), ended=True)
        before = len(one.inputs.prefix(model, 1))
        seen = sum(before + window.last - window.first for window in windows)
        work.append(seen / (before + len(codes)))
        equal.append((codes == one.codes)[:, 1:].float().mean(0))
        spectra.append(spectral_difference_db(samples, one.samples))
        seams = [window.start * hop for window in windows[1:]]
        jumps += jumps_at(samples, seams)
        jumps_of_whole += jumps_at(one.samples, seams)
    shares = torch.stack(equal).mean(0)
    longest_s = fmean(len(one.ar_codes) for one in spoken) / rate_hz
    return WindowResult(
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
    """Return the step from the sample before each place, divided by the rms of the audio."""
    rms = float(samples.square().mean().sqrt()) or 1.0
    return [float((samples[place] - samples[place - 1]).abs()) / rms for place in places]


def spectral_difference_db(left: Tensor, right: Tensor) -> float:
    """Return the mean absolute difference of log spectra in dB, with windows of 1024 samples."""
    window = torch.hann_window(1024)
    power = [
        torch.stft(sound, 1024, 256, window=window, return_complex=True).abs()
        for sound in (left, right)
    ]
    floor = float(power[1].max()) * 10 ** (FLOOR_DB / 20)
    logs = [20 * spectrum.clamp(min=floor).log10() for spectrum in power]
    return float((logs[0] - logs[1]).abs().mean())


def measure(speech: SpeechModel, sentences: Sequence[str]) -> list[WindowResult]:
    """Return a result for each shape, and first for the model's own mask if it is not `full`."""
    substitute = speech.model.config.nar_mask != "full"
    full = with_full_mask(speech.model) if substitute else speech.model
    spoken = speak(speech, full, sentences)
    rows = []
    if substitute:
        rows.append(compare("own mask", speech.model, speech, spoken, (0, 0, 0)))
    for shape in tqdm(SHAPES):
        rows.append(compare(" ".join(map(str, shape)), full, speech, spoken, shape))
    return rows


def main() -> int:
    """Run the command line."""
    parser = argument_parser(__doc__)
    parser.add_argument("--model", default=str(BUILTIN_MODEL), help="as TTS_MODEL names one")
    parser.add_argument("--sentences", type=int, default=12)
    args, started = parser.parse_args(), machine()
    torch.set_num_threads(1)
    speech = open_speech_model(args.model, torch.device("cpu"))
    rows = measure(speech, read_sentences(SENTENCES)[: args.sentences])
    about = {"model": speech.name, "sha256": speech.sha256}
    return conclude([*map(asdict, rows)], [], args.out, started, about)


if __name__ == "__main__":
    sys.exit(main())
