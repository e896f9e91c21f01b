"""Calibration: what it measures is what the sampler sees, and what it writes can be asked for."""

import json
from pathlib import Path

import numpy as np
import pytest

from app.cli import main
from app.commands.sentences import SENTENCES, read_sentences
from app.engine.backend.synthesizer import Synthesizer
from app.engine.core import ReportOptions, SpeechJob
from app.main import load_synthesizer
from app.settings import Settings
from app.storage.preset_files import read_presets
from lab.porting.calibration import PERCENTILES, THRESHOLDS, CalibrationTask
from models.checkpoints.builtin import load_codec
from models.codecs.silence import silent_codes
from samplers.knobs.params import SamplingParams
from samplers.knobs.presets import PRESETS
from samplers.knobs.resolve import resolve

TEXTS = ["Hello.", "Good bye."]


@pytest.fixture(scope="module")
def written(toy: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The preset file of a calibration over three utterances of two sentences."""
    folder = tmp_path_factory.mktemp("calibration")
    (folder / "sentences.txt").write_text("\n".join(["", *TEXTS, ""]))
    out = folder / "fitted.json"
    arguments = ["--model", str(toy), "--sentences", str(folder / "sentences.txt")]
    arguments += ["--count", "3", "--preset", "stable", "--name", "fitted", "-o", str(out)]
    assert main(["tools", "calibrate", *arguments]) == 0
    return out


@pytest.fixture(scope="module")
def synthesizer(toy: Path) -> Synthesizer:
    return load_synthesizer(Settings(model=str(toy)), PRESETS)


def entropies(synthesizer: Synthesizer) -> dict[str, np.ndarray]:
    """What the trace of the same three utterances says, asked for one by one."""
    traces = []
    for text, seed in zip([*TEXTS, TEXTS[0]], (0, 0, 1), strict=True):
        params = SamplingParams(preset="stable", seed=seed)
        plan = synthesizer.planner.plan(
            SpeechJob("a", text, params, report=ReportOptions(trace=True))
        )
        *_, last = synthesizer.speak(plan)
        assert last.result is not None
        traces += [piece.trace for piece in last.result.utterances]
    return {
        name: np.concatenate([trace[name] for trace in traces if trace is not None])
        for name in ("entropy_bits", "varentropy_bits2")
    }


@pytest.mark.slow
def test_it_needs_no_sound_process(
    toy: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TTS_VOICE_PROCESS", "1")  # the default, which tests change
    assert main(["tools", "calibrate", "--model", str(toy), "--count", "1"]) == 0
    assert "entropy_bits" in capsys.readouterr().out


@pytest.mark.slow
def test_thresholds_are_percentiles_of_what_the_sampler_sees(
    written: Path, synthesizer: Synthesizer
) -> None:
    seen, content = entropies(synthesizer), json.loads(written.read_text())
    knobs, about = content["presets"]["fitted"], content["about"]
    for knob, (column, percentile) in THRESHOLDS.items():
        assert percentile in {10, 90}
        assert knobs[knob] == pytest.approx(np.percentile(seen[column], percentile), abs=1e-3)
        measured = list(about["percentiles"][column].values())
        expected = np.percentile(seen[column], PERCENTILES)
        np.testing.assert_allclose(measured, expected, atol=1e-3)
    assert knobs["entropix_low_entropy"] < knobs["entropix_hehv_entropy"]
    assert sum(about["states"].values()) == pytest.approx(1, abs=1e-3)
    assert len(about["percentiles"]) == 6
    assert about["utterances"] == 3


def test_the_preset_is_the_one_it_is_over_with_entropix_and_the_codes_of_silence(
    written: Path, toy: Path
) -> None:
    presets = read_presets(written)
    resolved = resolve(SamplingParams(preset="fitted", seed=1), presets=presets)
    base = resolve(SamplingParams(preset="stable", seed=1))
    changed = {"preset", "entropix", "dry_sequence_breakers", *THRESHOLDS}
    assert resolved.model_dump(exclude=changed) == base.model_dump(exclude=changed)
    assert resolved.entropix
    assert resolved.dry_sequence_breakers == silent_codes(load_codec(toy))


@pytest.mark.slow
def test_it_speaks_by_name_and_cannot_be_written_over_itself(
    written: Path, toy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    monkeypatch.setenv("TTS_MODEL", str(toy))
    monkeypatch.setenv("TTS_PRESETS", str(written))
    speak = ["speak", "Hello.", "-o", str(tmp_path / "a.wav"), "--max-duration-s", "0.2"]
    assert main([*speak, "--preset", "fitted", "--trace"]) == 0
    report = json.loads((tmp_path / "a.wav.json").read_text())
    assert report["request"]["params"]["preset"] == "fitted"
    assert main(["tools", "calibrate", "--name", "fitted"]) == 2
    assert "name: preset 'fitted' exists already" in capsys.readouterr().err


def test_past_the_last_sentence_it_begins_again_with_another_seed() -> None:
    task = CalibrationTask(["One.", "Two."], 5, "auto")
    jobs = [(job.text, job.params.seed) for job in task.jobs()]
    assert jobs == [("One.", 0), ("Two.", 0), ("One.", 1), ("Two.", 1), ("One.", 2)]


def test_the_sentences_that_come_with_it_are_plain_and_no_test_set() -> None:
    sentences = read_sentences(SENTENCES)
    assert len(sentences) == len(set(sentences)) == 40
    assert all(5 <= len(text.split()) <= 12 and text[-1] == "." for text in sentences)
    held_back = Path("../shared/data/harvard_dev.txt")
    if held_back.exists():
        assert not {*sentences} & {*held_back.read_text("utf-8").splitlines()}
