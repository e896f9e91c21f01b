"""`valle-serve doctor`: a line a check, what to do about what is wrong, and the exit status."""

import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
import torch

from app.cli import main
from app.commands.checks import device
from app.commands.errors import CheckWarning, CommandError
from app.settings import Settings
from gpu.kernels import Kernels
from models.checkpoints.hub import PINNED, HubFile
from tests.app.tools.redis_server import RedisServer
from tests.toy.make_public import make_public

CHECKS = (
    "python",
    "device",
    "espeak",
    "model",
    "kernels",
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
def _environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TTS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("TTS_VOICES", str(tmp_path / "voices"))
    monkeypatch.setenv("TTS_TEXT_PROCESS", "1")  # the default, which tests change


def diagnosed(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, str]]:
    """Run it; return the exit status, and each check's verdict and words."""
    status = main(["doctor", "--port", "0", *arguments])
    lines = [line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines()]
    told = {words.partition(":")[0]: f"{verdict} {words}" for verdict, words in lines}
    assert tuple(told) == CHECKS
    return status, told


def test_the_doctor_finds_nothing_wrong_where_all_is_right(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.commands.doctor._NEEDED_BYTES", 1)
    status, told = diagnosed(capsys)
    assert status == 0
    assert "s of audio per second" in told.pop("streams")  # how many depends on what else runs here
    assert all(line.startswith("ok ") for line in told.values()), told


@pytest.mark.slow
def test_the_doctor_leaves_no_file_behind(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    diagnosed(capsys)
    assert not list(tmp_path.iterdir())  # not even the folders of the cache and of voices


@pytest.mark.slow
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


@pytest.mark.slow
def test_what_is_only_doubtful_is_no_failure(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.commands.doctor._NEEDED_BYTES", 2**62)
    status, told = diagnosed(capsys, "--host", "0.0.0.0")
    assert status == 0
    assert told["keys"].startswith("warn ")
    assert "valle-serve keys new" in told["keys"]
    assert told["cache"].startswith("warn ")


@pytest.mark.slow
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


KERNELS = ("sm_80", "sm_90", "compute_90")


class GpuHost(NamedTuple):
    """What the libraries of a host with an NVIDIA GPU answer; as it is, all is well."""

    driver: int | None = 13000
    on_host: bool = True
    gpus: int = 1
    capability: tuple[int, int] = (9, 0)
    kernels: tuple[str, ...] = KERNELS
    built_for: str | None = "12.8"
    name: str = "NVIDIA H100 80GB HBM3"
    free_gb: float = 70
    visible: str | None = None


@pytest.fixture
def host(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> GpuHost:
    """The libraries answer as those of ``request.param``."""
    is_here: GpuHost = request.param

    def library(name: str) -> Any:
        if is_here.driver is None:
            raise OSError(f"{name}: cannot open shared object file")
        return SimpleNamespace(cuDriverGetVersion=answer)

    def answer(version: Any) -> int:
        version._obj.value = is_here.driver
        return 0

    for name, value in {
        "is_available": lambda: is_here.gpus > 0,
        "get_device_capability": lambda: is_here.capability,
        "get_arch_list": lambda: list(is_here.kernels),
        "mem_get_info": lambda: (int(is_here.free_gb * 1e9), 80 * 10**9),
        "get_device_name": lambda _: is_here.name,
    }.items():
        monkeypatch.setattr(torch.cuda, name, value)
    monkeypatch.setattr(torch.version, "cuda", is_here.built_for)
    monkeypatch.setattr("ctypes.CDLL", library)
    monkeypatch.setattr(device, "KERNEL_MODULE", "/proc" if is_here.on_host else "/nowhere")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setenv("CUDA_MPS_PIPE_DIRECTORY", "/nowhere")
    if is_here.visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", is_here.visible)
    return is_here


@pytest.mark.parametrize(
    ("host", "told"),
    [
        (GpuHost(), "cuda NVIDIA H100 80GB HBM3, 70 GB free, driver for CUDA 13.0"),
        (GpuHost(driver=None, gpus=0), "NVIDIA Container Toolkit"),
        (
            GpuHost(driver=None, on_host=False, gpus=0),
            "no NVIDIA driver, so no GPU; set TTS_DEVICE=cpu",
        ),
        (
            GpuHost(driver=11040),
            "supports CUDA 11.4, and torch is built for 12.8; update the driver",
        ),
        (GpuHost(built_for=None, gpus=0), "torch is built for CPUs; remove .venv and run"),
        (GpuHost(capability=(8, 6)), "cuda NVIDIA H100 80GB HBM3"),
        (GpuHost(capability=(12, 0)), "cuda NVIDIA H100 80GB HBM3"),
        (GpuHost(capability=(7, 5)), "no kernels for this GPU (capability 7.5"),
        (
            GpuHost(capability=(12, 0), kernels=("sm_90",)),
            "no kernels for this GPU (capability 12.0",
        ),
        (GpuHost(gpus=0, visible="7"), "CUDA_VISIBLE_DEVICES=7"),
        (GpuHost(gpus=0), "with an instance below it where MIG is on"),
        (GpuHost(gpus=0, visible=""), "CUDA_VISIBLE_DEVICES= names no GPU"),
        (GpuHost(name="NVIDIA H100 MIG 1g.10gb", free_gb=1.2), "MIG 1g.10gb has 1.2 of"),
    ],
    indirect=["host"],
)
def test_each_way_in_which_a_gpu_host_is_set_up_wrongly_is_told_with_its_cure(
    host: GpuHost, told: str
) -> None:
    try:
        said = device.check_device(Settings(device="cuda"))
    except (CheckWarning, CommandError) as error:
        said = str(error)
        assert host != GpuHost()
    assert told in said


@pytest.mark.parametrize("host", [GpuHost()], indirect=True)
@pytest.mark.parametrize("kind", [socket.SOCK_SEQPACKET, socket.SOCK_STREAM])
def test_a_shared_gpu_without_a_daemon_of_mps_that_listens_is_warned_of(
    host: GpuHost, kind: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_MPS_PIPE_DIRECTORY", str(tmp_path))
    shared = Settings(device="cuda", gpu_memory_utilization=0.45)
    with socket.socket(socket.AF_UNIX, kind) as daemon:
        daemon.bind(str(tmp_path / "control"))  # as one that has died leaves it
        with pytest.raises(CheckWarning, match="NVIDIA's MPS does not run"):
            device.check_device(shared)
        daemon.listen()
        assert device.check_device(shared).endswith(", MPS runs")
    assert "MPS" not in device.check_device(Settings(device="cuda"))


def test_kernels_that_cannot_run_are_told_in_the_words_of_their_compiler(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    why = "RuntimeError: Failed to find C compiler"
    kernels = str(Kernels(failed={"sample": why}, tried=("norm", "sample")))
    loaded = SimpleNamespace(info=SimpleNamespace(kernels=kernels))
    monkeypatch.setattr("app.commands.doctor._loaded", lambda _: loaded)
    _, told = diagnosed(capsys)
    assert told["kernels"].startswith("warn ")
    assert why in told["kernels"]
