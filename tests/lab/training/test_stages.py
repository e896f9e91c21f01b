"""Training over a corpus of noise: each stage learns, can be stopped, and feeds the next one."""

from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch

from lab.training import cache as cache_of_training
from lab.training import export
from lab.training.codec import prior
from lab.training.codec import train as codec_stage
from lab.training.codec.clips import Clips, clips_of
from lab.training.codec.pitch import STEP, UNKNOWN, contour_path, cycles_path
from lab.training.codec.train import CodecTrainer
from lab.training.lm import batches, codes, restore
from lab.training.lm import train as lm_stage
from lab.training.lm.train import Trainer
from lab.training.speech import perturb, recorded
from lab.training.speech.corpus import SAMPLE_RATE_HZ, Corpus, write_shard
from models.checkpoints.builtin import load_codec, load_lm, save_codec, save_lm
from models.checkpoints.sources import open_speech_model
from models.codecs.spectral import SpectralCodec
from models.config import SpectralCodecConfig
from models.valle import Valle
from models.voices.loudness import loudness_lufs
from models.voices.recording import LEVEL_LUFS

CPU = torch.device("cpu")
TEXTS = ("Most of our graduates are employed.", "He who waits, wins!", "In an irate manner.")
SHARDS = 3
CODEC = SpectralCodecConfig(
    width=16, ffn=24, dimension=8, codes=16, bands=20, encoder_layers=1, decoder_layers=1, gain=20
)
LM = lm_stage.CONFIG.model_copy(
    update={"width": 16, "layers": 2, "heads": 2, "kv_heads": 1, "ffn": 24, "codes": 16,
            "alignment": None}
)  # fmt: skip
SMALL: dict[ModuleType, dict[str, object]] = {
    codec_stage: {
        "CONFIG": CODEC, "CLIP_FRAMES": 12, "BATCH": 4, "JUDGED_CLIPS": 2, "OPEN_STEPS": 3,
        "JUDGED_AFTER": 1, "KMEANS_BATCHES": 2, "VALIDATION_CLIPS": 3, "LOG_EVERY": 2,
        "SAVE_EVERY": 100, "VALIDATE_EVERY": 4,
    },
    lm_stage: {
        "CONFIG": LM, "LOG_EVERY": 2, "SAVE_EVERY": 100, "VALIDATION_ROWS": 2,
        "TRANSLATED_UTTERANCES": 6,
    },
    batches: {"POSITIONS": 600, "PROMPT_FRAMES_MIN": 10},
}  # fmt: skip
Run = Callable[..., None]


def write_corpus(folder: Path) -> None:
    """Write shards of noise, said to be sentences of two speakers in a high voice."""
    folder.mkdir(parents=True)
    random = np.random.default_rng(0)
    for number in range(SHARDS):
        write_shard(
            folder,
            number,
            [
                (
                    random.normal(scale=0.05, size=SAMPLE_RATE_HZ).astype(np.float32),
                    {"text": text, "speaker": f"one-{place % 2}"},
                )
                for place, text in enumerate(2 * TEXTS)
            ],
        )
    corpus = Corpus(folder.parent, folder.name)
    for number in corpus.shards:
        values = len(corpus.shard_samples(number)) // STEP + 1
        np.save(contour_path(corpus.folder, number), np.full(values, 300, np.float32))
        np.save(cycles_path(corpus.folder, number), np.full(values, UNKNOWN, np.float32))


def random_codec(seed: int) -> SpectralCodec:
    torch.manual_seed(seed)
    codec = SpectralCodec(CODEC)
    codec.quantizer.codebooks.normal_()
    return codec


@pytest.fixture
def following(tmp_path: Path) -> Path:
    """The folder of the next model, which has a codec that knows nothing."""
    save_codec(tmp_path / "next", random_codec(0))
    return tmp_path / "next"


@pytest.fixture(autouse=True)
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, following: Path) -> Path:
    """A cache with two corpora, where all of training is small."""
    monkeypatch.setenv("VALLE_TRAINING_CACHE", str(tmp_path / "cache"))
    for module in (cache_of_training, codes, prior, export):
        monkeypatch.setattr(module, "NEXT_MODEL", following)
    for stage, changes in SMALL.items():
        for name, value in changes.items():
            monkeypatch.setattr(stage, name, value)
    for stage in (codec_stage, lm_stage):
        monkeypatch.setattr(stage, "fastest_type", lambda _: torch.float32)
    for source in ("speech", "kokoro"):
        write_corpus(tmp_path / "cache" / source)
    return tmp_path / "cache"


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Run:
    """Return a function that runs a stage as its command does."""

    def main(stage: ModuleType, *words: str) -> None:
        monkeypatch.setattr("sys.argv", [stage.__name__, *words])
        stage.main()

    return main


def codec_trainer(steps: int) -> CodecTrainer:
    shape = 12, CODEC.hop, CODEC.window
    clips, held_out = (clips_of({"speech": 1.0}, *shape, held_out=out) for out in (False, True))
    return CodecTrainer(clips, held_out, steps, CPU)


def lm_trainer(steps: int) -> Trainer:
    return Trainer(steps, CPU)


def weights_of(trainer: CodecTrainer | Trainer) -> dict[str, torch.Tensor]:
    return trainer.average if isinstance(trainer, Trainer) else trainer.codec.state_dict()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "steps", "stop"),
    # Of the codec among the quantised and among the settled steps.
    [(codec_trainer, 12, 4), (codec_trainer, 12, 8), (lm_trainer, 6, 3)],
)
def test_a_stopped_run_goes_on_as_if_it_had_not_been_stopped(run, tmp_path, make, steps, stop):
    run(codes, "--workers", "1")
    whole, stopped, resumed = (make(steps) for _ in range(3))
    whole.run(tmp_path / "log", tmp_path / "whole.pt")
    for _ in range(stop):
        stopped.train_step()
    stopped.save(tmp_path / "stopped.pt")
    resumed.load(tmp_path / "stopped.pt")
    resumed.run(tmp_path / "log", tmp_path / "stopped.pt")
    for name, tensor in weights_of(whole).items():
        assert torch.equal(tensor, weights_of(resumed)[name]), name


@pytest.mark.slow
def test_the_codec_learns_spectra_and_pitch() -> None:
    trainer = codec_trainer(200)
    before = trainer.validate()
    losses = [trainer.train_step()["pitch"] for _ in range(60)]
    assert np.mean(losses[-10:]) < 0.5 * np.mean(losses[:5])
    assert trainer.validate()["val_mel"] < 0.85 * before["val_mel"]


@pytest.mark.slow
def test_the_language_model_learns_every_level(run, tmp_path) -> None:
    run(codes, "--workers", "1")
    trainer = lm_trainer(40)
    before = trainer.validate()
    trainer.run(tmp_path / "log", tmp_path / "checkpoint.pt")
    for level, rows in trainer.validate().items():
        losses = [sum(loss for loss, _ in found) / len(found) for found in (before[level], rows)]
        assert losses[1] < losses[0], level


@pytest.mark.slow
def test_exported_weights_speak_and_a_warm_start_takes_them_as_they_are_or_translates_them(
    run, cache, following, tmp_path
) -> None:
    run(codes, "--workers", "1")
    run(prior)
    run(lm_stage, "--steps", "6")
    run(export, "lm")
    speech = open_speech_model(following, CPU)
    assert speech.model.config == LM
    said = speech.model.nar_logits(speech.model.prefix([1, 3, 2], 1), torch.zeros(5, 4).long(), 1)
    assert said.shape == (5, 16)
    codec = load_codec(following)
    assert isinstance(codec, SpectralCodec)
    assert codec.prior is not None
    assert bool((torch.linalg.eigvalsh(codec.prior.covariance) > -1e-6).all())
    warm = lm_trainer(6)
    warm.warm_start(following)
    trained = torch.load(cache / "lm" / "checkpoint.pt", weights_only=True)["average"]
    for name, tensor in trained.items():
        torch.testing.assert_close(warm.average[name], tensor, atol=1e-3, rtol=1e-3)
    # Another codec: the stack stays, the tables belong to other codes.
    old = following.rename(tmp_path / "old")
    save_codec(following, random_codec(1))
    run(codes, "--workers", "1")
    other = lm_trainer(6)
    other.warm_start(old)
    same = {name for name in trained if torch.equal(warm.average[name], other.average[name])}
    assert {"phonemes.weight", "transformer.blocks.1.attention.qkv.weight"} <= same
    assert not {"response.0.weight", "heads.0.weight"} & same


@pytest.mark.parametrize(
    ("words", "error", "share"), [([], 2**-10, 0), (["--coarse"], 2**-8, 0), ([], 2**-10, 0.5)]
)
def test_a_language_model_is_its_average_or_the_mean_of_that_and_where_it_began(
    run, cache, following, tmp_path, words, error, share
) -> None:
    torch.manual_seed(0)
    average, began = (
        {name: torch.randn_like(value) for name, value in Valle(LM).state_dict().items()}
        for _ in range(2)
    )
    save_lm(tmp_path / "began", LM, began)
    (cache / "lm").mkdir()
    torch.save({"average": average}, cache / "lm" / "checkpoint.pt")
    run(export, "lm", *words, *(["--half-way-from", str(tmp_path / "began")] if share else []))
    for name, tensor in load_lm(following).state_dict().items():
        expected = torch.lerp(average[name], began[name], share)
        torch.testing.assert_close(tensor, expected, rtol=error, atol=1e-3)


@pytest.mark.slow
def test_derived_corpora_have_the_sentences_and_speakers_of_their_sources(run, cache) -> None:
    write_corpus(cache / "crowd")
    run(perturb, "--workers", "1")
    played = Corpus(cache, "perturbed").utterances
    expected = [
        (one.text, first + one.shard, f"{one.speaker}-0-{version}", one.duration_s / rate)
        for source, first in perturb.FIRST_SHARD.items()
        for one in Corpus(cache, source).utterances
        for version in range(perturb.VERSIONS)
        for rate in [perturb.rate_of(source, one.speaker, one.shard, version)]
    ]
    for entry, (text, shard, speaker, seconds) in zip(played, expected, strict=True):
        assert (entry.text, entry.shard, entry.speaker) == (text, shard, speaker)
        assert entry.duration_s == pytest.approx(seconds, abs=1e-3)
    run(recorded, "--workers", "1")
    prompts = Corpus(cache, "recorded")
    some = prompts.utterances
    heard = [loudness_lufs(prompts.samples(one), SAMPLE_RATE_HZ) for one in some[:9]]
    assert heard == pytest.approx([LEVEL_LUFS] * 9, abs=0.5)  # as an upload is kept
    assert 0.2 * len(played) < len([one for one in some if one.shard in range(2000, 5000)])
    assert len(some) < 0.8 * (len(played) + 3 * SHARDS * 2 * len(TEXTS))
    for one in played:
        same = [prompt for prompt in some if prompt.speaker == one.speaker]
        assert {prompt.shard - 2000 for prompt in same} <= {
            other.shard for other in played if other.speaker == one.speaker
        }
    (cache / "recorded").rename(cache / "before")
    run(recorded, "--workers", "1")
    for path in (cache / "before").glob("*.i16"):
        assert path.read_bytes() == (cache / "recorded" / path.name).read_bytes()


@pytest.mark.slow
def test_lost_sound_is_that_of_its_codes_which_stay_and_the_codec_does_not_learn_from_it(
    run, cache, tmp_path
) -> None:
    write_corpus(cache / "crowd")
    run(codes, "--workers", "1")
    run(codes, "--keep")
    before = codes.read_shard(codes.shard_files(cache, "crowd")[0])
    cache.rename(tmp_path / "lost")
    run(restore, "--workers", "1")
    run(codes, "--workers", "1")
    after = codes.read_shard(codes.shard_files(cache, "crowd")[0])
    corpus = Corpus(cache, "crowd")
    assert corpus.restored_shards == set(corpus.shards) == {*range(SHARDS)}
    lines = [one for one in corpus.utterances if one.shard == 0]
    for line, one, again in zip(lines, before, after, strict=True):
        assert (line.text, line.speaker) == (one.text, one.speaker)
        assert line.duration_s == len(one.codes) / 75
        np.testing.assert_array_equal(one.codes, again.codes)
    write_corpus(cache / "speech")
    true = Corpus(cache, "speech")
    drawn, alone = (
        Clips(shares, 6, CODEC.hop, CODEC.window).draw(8, np.random.default_rng(0)).samples
        for shares in ([(true, 0.5), (corpus, 0.5)], [(true, 1.0)])
    )
    np.testing.assert_array_equal(drawn, alone)
