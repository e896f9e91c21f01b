"""What a codec keeps of people: told beside true speech, and paired to the first codec."""

from pathlib import Path

import numpy as np
import pytest
import torch

from lab.training.judging import round_trip
from lab.training.judging.round_trip import PIECES, Hearing, split, unheard
from lab.training.judging.speakers import Samples
from lab.training.speech.corpus import SAMPLE_RATE_HZ, write_shard
from models.checkpoints.builtin import save_codec
from models.codecs.spectral import SpectralCodec
from models.config import SpectralCodecConfig

CODEC = SpectralCodecConfig(
    width=16, ffn=24, dimension=8, codes=16, bands=20, encoder_layers=1, decoder_layers=1, gain=20
)


class Bands:
    """Knows people by where their spectrum is loud."""

    def embed(self, samples: Samples) -> Samples:
        power = np.abs(np.fft.rfft(samples, 4096))[:2048].reshape(64, -1).sum(1)
        return np.asarray(power / np.linalg.norm(power), np.float32)


class Unmoved:
    """Finds everything as good."""

    def rate(self, _: Samples) -> float:
        return 3.0


def tone(hz: float, seed: int) -> Samples:
    seconds = np.arange(SAMPLE_RATE_HZ // 2) / SAMPLE_RATE_HZ
    noise = np.random.default_rng(seed).normal(0, 0.002, len(seconds))
    return (0.1 * np.sin(2 * np.pi * hz * seconds) + noise).astype(np.float32)


PEOPLE = {f"{hz}": [tone(hz, seed) for seed in range(4)] for hz in (500, 1500, 3000)}


@pytest.mark.parametrize(("count", "references"), [(2, 1), (3, 2), (6, 2)])
def test_somebody_is_never_compared_with_the_same_recording(count: int, references: int) -> None:
    pieces = [np.full(1, number, np.float32) for number in range(count)]
    known, others = split(pieces)
    assert [int(one[0]) for one in (*known, *others)] == [*range(count)]
    assert len(known) == references


def test_true_speech_is_nearest_to_its_own_people(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(round_trip, "EMBEDDERS", {"bands": Bands})
    hearing = Hearing("bands", PEOPLE)
    others = {name: split(pieces)[1] for name, pieces in PEOPLE.items()}
    right, trials, cosines = hearing.sums(others)
    assert right.tolist() == trials.tolist() == [2, 2, 2]
    assert (cosines > 1.9).all()
    turned = dict(zip(others, [others["1500"], others["3000"], others["500"]], strict=True))
    assert hearing.sums(turned)[0].tolist() == [0, 0, 0]


def test_the_table_has_true_speech_and_each_codec_with_its_difference_to_the_first(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(round_trip, "EMBEDDERS", {"bands": Bands})
    monkeypatch.setattr(round_trip, "Dnsmos", Unmoved)
    monkeypatch.setattr(round_trip, "WHO", {"judged": lambda: PEOPLE})
    folders = [tmp_path / name for name in ("one", "same", "other")]
    for folder, seed in zip(folders, (0, 0, 1), strict=True):
        torch.manual_seed(seed)
        save_codec(folder, SpectralCodec(CODEC))
    monkeypatch.setattr("sys.argv", ["round_trip", "--weights", *map(str, folders)])
    round_trip.main()
    rows = [line.split(" | ") for line in capsys.readouterr().out.splitlines()[3:]]
    assert [row[0].removeprefix("| ") for row in rows] == ["as they are", *map(str, folders)]
    assert rows[0][1] == "100%"
    assert rows[0][3] == ""
    nothing = "+0.000 [+0.000, +0.000]"
    assert [row[3] == nothing for row in rows[1:]] == [True, True, False]
    assert rows[1][2] == rows[2][2] != rows[3][2]


def test_those_kept_out_of_training_are_heard_who_have_two_recordings(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("VALLE_TRAINING_CACHE", str(tmp_path))
    (tmp_path / "people").mkdir()
    names = ["a"] * (PIECES + 3) + ["b"]
    for shard, part in enumerate(("speakers", "train")):
        lines = [(tone(500, 0), {"text": "", "speaker": one, "part": part}) for one in names]
        write_shard(tmp_path / "people", shard, lines)
    assert {name: len(pieces) for name, pieces in unheard().items()} == {"a": PIECES}
