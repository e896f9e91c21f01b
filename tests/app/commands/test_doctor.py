"""`valle-serve doctor`: a line a check, what to do about what is wrong, and the exit status."""

import importlib.util
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from app.cli import main
from app.commands.checks.device import CudaFacts, lacking_for_kernels, problem
from models.checkpoints.hub import PINNED, HubFile
from tests.app.tools.redis_server import RedisServer
from tests.toy.make_public import make_public

CHECKS = (
    "python",
    "device",
    "espeak",
    "model",
    "golden",
    "streams",
    "formats",
    "presets",
    "keys",
    "state",
    "cache",
    "voices",
    "port",
)


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch, toy: Path, tmp_path: Path) -> None:
    monkeypatch.setenv("TTS_MODEL", str(toy))
    monkeypatch.setenv("TTS_DEVICE", "cpu")
    monkeypatch.setenv("TTS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("TTS_VOICES", str(tmp_path / "voices"))


def diagnosed(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, str]]:
    """Run it; return the exit status, and each check's verdict and words."""
    status = main(["doctor", "--port", "0", *arguments])
    lines = [line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines()]
    told = {words.partition(":")[0]: f"{verdict} {words}" for verdict, words in lines}
    assert tuple(told) == CHECKS
    return status, told


def test_it_finds_nothing_wrong(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.commands.checks.host._NEEDED_BYTES", 1)
    status, told = diagnosed(capsys)
    assert status == 0
    assert all(line.startswith("ok ") for line in told.values()), told


def test_it_leaves_nothing_behind(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    diagnosed(capsys)
    assert not list(tmp_path.iterdir())  # not even the folders of the cache and of voices


def test_what_is_wrong_stands_beside_what_to_do(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "presets.json").write_text("{")
    (tmp_path / "keys").write_text("alice:none\n")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        status, told = diagnosed(
            capsys,
            *("--port", str(taken.getsockname()[1])),
            *("--model", "/nowhere"),
            *("--presets", str(tmp_path / "presets.json")),
            *("--api-keys-file", str(tmp_path / "keys")),
            *("--cache", str(tmp_path / "file")),
            *("--voices", "/proc/voices"),
        )
    assert status == 1
    for check, advice in {
        "model": "TTS_MODEL",
        "presets": str(tmp_path / "presets.json"),
        "keys": str(tmp_path / "keys"),
        "cache": "TTS_CACHE",
        "voices": "TTS_VOICES",
        "port": "TTS_PORT",
    }.items():
        assert told[check].startswith("FAIL ")
        assert advice in told[check]
    assert told["espeak"].startswith("ok ")


def test_what_is_only_doubtful_is_no_failure(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.commands.checks.host._NEEDED_BYTES", 2**62)
    status, told = diagnosed(capsys, "--host", "0.0.0.0")
    assert status == 0
    assert told["keys"].startswith("warn ")
    assert "valle-serve keys new" in told["keys"]
    assert told["cache"].startswith("warn ")


def test_a_state_or_a_store_that_is_refused_or_away_is_told(
    capsys: pytest.CaptureFixture[str], redis_server: RedisServer
) -> None:
    redis_server.client.config_set("requirepass", "right")
    asked = redis_server.url.replace("//", "//:wrong@")
    _, told = diagnosed(capsys, "--state", asked, "--voices", "nothing://there")
    assert told["state"].startswith("FAIL ")
    assert "invalid username-password pair" in told["state"]
    assert told["voices"].startswith("FAIL ")
    assert "no kind of store" in told["voices"]
    _, told = diagnosed(capsys, "--state", asked.replace("wrong", "right"))
    assert told["state"] == "ok state: Redis answers"
    redis_server.kill()
    _, told = diagnosed(capsys, "--state", asked)
    assert told["state"].startswith("warn ")


def test_a_published_model_that_was_changed_is_found_out(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pinned = HubFile("some/model", "0" * 40, "fp32.sft", sha256="1" * 64)
    monkeypatch.setitem(PINNED, "some/model", pinned)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    here = pinned.local()
    here.parent.mkdir(parents=True)
    shutil.copy(make_public(tmp_path / "public", "ar+nar"), here)
    _, told = diagnosed(capsys, "--model", "some/model", "--offline")
    assert f"{here} differs from the published file" in told["model"]


@pytest.mark.slow
def test_a_folder_that_runs_no_programs_is_named_as_what_stops_espeak(tmp_path: Path) -> None:
    mount = f"mount -t tmpfs -o noexec tmpfs {tmp_path}"
    if subprocess.run(["unshare", "-m", "sh", "-c", mount], capture_output=True).returncode:
        pytest.skip("nothing may be mounted here")
    command = f"{mount} && exec {sys.executable} -m app doctor --port 0"
    told = subprocess.run(
        ["unshare", "-m", "sh", "-c", command],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert told.returncode == 1
    (line,) = [one for one in told.stdout.splitlines() if one.startswith("FAIL  espeak:")]
    assert f"{tmp_path} must allow programs" in line


BUILT = "12.8"
KERNELS = ("sm_80", "sm_90", "compute_90")


@pytest.mark.parametrize(
    ("place", "advice"),
    [
        (CudaFacts(None, None, usable=False), None),
        (CudaFacts(BUILT, None, usable=False), None),
        (CudaFacts(BUILT, "12.4", usable=True, capability=(9, 0), kernels=KERNELS), None),
        (CudaFacts(BUILT, "13.0", usable=True, capability=(8, 6), kernels=KERNELS), None),
        (CudaFacts(BUILT, "13.0", usable=True, capability=(12, 0), kernels=KERNELS), None),
        (CudaFacts(None, "12.4", usable=False), "TORCH_INDEX_URL"),
        (CudaFacts("13.0", "12.4", usable=False), "update the driver"),
        (CudaFacts(BUILT, "12.4", usable=False), "--gpus all"),
        (
            CudaFacts(BUILT, "12.4", usable=True, capability=(7, 5), kernels=KERNELS),
            "no kernels for this GPU (capability 7.5",
        ),
        (
            CudaFacts(BUILT, "12.4", usable=True, capability=(12, 0), kernels=("sm_90",)),
            "no kernels for this GPU (capability 12.0",
        ),
    ],
)
def test_a_gpu_that_cannot_be_used_is_told_of_with_the_reason(
    place: CudaFacts, advice: str | None
) -> None:
    told = problem(place)
    assert told is None if advice is None else told is not None and advice in told


def test_what_our_own_kernels_lack_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    assert "need Triton" in (lacking_for_kernels() or "")

    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name)
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setattr(shutil, "which", lambda _: None)
    assert "install gcc" in (lacking_for_kernels() or "")

    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
    assert lacking_for_kernels() is None
