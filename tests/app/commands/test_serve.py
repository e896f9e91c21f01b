"""`valle-serve serve` as a process: how it ends, and with which status."""

import os
import re
import resource
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.context import ForkServerProcess
from pathlib import Path

import httpx
import psutil
import pytest
import torch

from app.cli import main
from app.settings import BUILTIN_MODEL
from tests.app.tools.process import forked, process
from tests.app.tools.redis_server import redis_running
from tests.app.tools.serving import free_port, until

pytestmark = pytest.mark.slow

COMMAND = [sys.executable, "-m", "app", "serve"]
Ended = Callable[..., tuple[int | None, list[str]]]


def started(log: Path, **variables: str) -> ForkServerProcess:
    return forked(log, {"TTS_PORT": str(free_port()), **variables}, main, ["serve"])


@pytest.fixture
def ended(tmp_path: Path) -> Ended:
    """Return the status and the log of a service that cannot begin."""

    def end(**variables: str) -> tuple[int | None, list[str]]:
        running = started(tmp_path / "log", **variables)
        running.join(120)
        return running.exitcode, (tmp_path / "log").read_text().splitlines()

    return end


def test_ctrl_c_ends_it_with_130_and_voices_that_cannot_be_written_are_told_at_the_start(
    toy: Path, tmp_path: Path
) -> None:
    (tmp_path / "in the way").write_text("a file")
    voices, file = str(tmp_path / "in the way" / "voices"), tmp_path / "log"
    running = started(file, TTS_MODEL=str(toy), TTS_VOICES=voices)
    until(lambda: "ready in " in file.read_text() or running.exitcode)
    os.kill(running.pid or 0, signal.SIGINT)
    running.join(60)
    log = file.read_text()
    assert running.exitcode == 130, log
    assert "Traceback" not in log
    assert "loading the model" in log
    assert "ready: " in log
    assert "WARNING app.commands.serve [-]: voices cannot be uploaded: " in log


def test_the_process_that_makes_the_sound_starts_first_and_ends_with_the_service(
    toy: Path, tmp_path: Path
) -> None:
    url, file = f"http://127.0.0.1:{free_port()}", tmp_path / "log"
    chosen = {"MODEL": str(toy), "DEVICE": "cpu", "TEXT_PROCESS": "1", "VOICE_PROCESS": "1"}
    environment = os.environ | {f"TTS_{name}": value for name, value in chosen.items()}
    command = [*COMMAND, "--port", url.rpartition(":")[2]]
    with (
        file.open("w") as lines,
        subprocess.Popen(command, env=environment, stderr=lines) as running,
    ):
        try:
            until(lambda: "ready in " in file.read_text() or running.poll())
            body = {"input": "Hello.", "max_duration_s": 0.4}
            assert httpx.post(f"{url}/tts", json=body, timeout=60).content[:4] == b"RIFF"
            children = {child.pid for child in psutil.Process(running.pid).children(recursive=True)}
            assert children
            running.terminate()
            running.wait(60)
        finally:
            running.kill()
    log = file.read_text()
    assert running.returncode == 0, log
    assert "Traceback" not in log
    assert re.search(rf"ready in [\d.]+ s: open {url} \(studio\), /docs ", log)
    assert "Uvicorn running on" not in log
    assert "Hello" not in log  # what people say is not written down
    until(lambda: not any(map(psutil.pid_exists, children)))


@pytest.mark.parametrize("name", ["port", "wyoming_port"])
def test_a_port_that_is_taken_is_a_sentence_before_anything_is_loaded(
    ended: Ended, name: str
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        status, (said,) = ended(**{"TTS_PORT": "0", f"TTS_{name.upper()}": str(port)})
    assert status == 2
    assert said.startswith(f"{name}: 127.0.0.1:{port}: Address already in use; free it, or set")


def test_one_port_for_two_protocols_is_taken(ended: Ended) -> None:
    port = str(free_port())
    status, (said,) = ended(TTS_PORT=port, TTS_WYOMING_PORT=port)
    assert (status, said.partition(":")[0]) == (2, "wyoming_port")


def test_a_state_that_refuses_its_password_is_a_wrong_setting(toy: Path, ended: Ended) -> None:
    with redis_running() as server:
        server.client.config_set("requirepass", "right")
        wrong = server.url.replace("//", "//:wrong@")
        status, log = ended(TTS_MODEL=str(toy), TTS_STATE=wrong)
    assert status == 2
    assert "state: Redis refuses us: invalid username-password pair" in "\n".join(log)
    assert not any("Traceback" in line for line in log)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("TTS_MODEL", "/nope", "model: /nope does not exist; TTS_MODEL names"),
        ("TTS_VOICES", "nothing://there", "nothing://there: no kind of store that is known"),
        pytest.param(
            "TTS_DEVICE", "cuda", "there is no NVIDIA driver, so no GPU; set TTS_DEVICE=cpu",
            marks=pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU"),
        ),
    ],
)  # fmt: skip
def test_a_wrong_setting_is_a_sentence(
    toy: Path, ended: Ended, name: str, value: str, message: str
) -> None:
    status, log = ended(**{"TTS_MODEL": str(toy), name: value})
    assert status == 2
    assert message in log[-1]
    assert "ready: " not in "\n".join(log)
    assert not any("Traceback" in line for line in log)


def test_a_model_that_cannot_be_loaded_ends_the_process(tmp_path: Path, ended: Ended) -> None:
    """Docker starts anew what ended, and leaves alone what is merely unhealthy."""
    model = tmp_path / "model"
    shutil.copytree(BUILTIN_MODEL, model, ignore=shutil.ignore_patterns("plots"))
    (model / "codec.safetensors").write_bytes(b"damaged")
    status, log = ended(TTS_MODEL=str(model), TTS_VOICE_PROCESS="0")
    assert status == 1
    (said,) = [line for line in log if "ERROR" in line]
    assert f"the model cannot be used: {model / 'codec.safetensors'} is damaged" in said
    assert not any("Traceback" in line for line in log)


def test_an_engine_that_breaks_again_and_again_ends_the_process(tmp_path: Path) -> None:
    with process(tmp_path) as served:
        with suppress(httpx.TransportError):  # it has ended
            for _ in range(6):
                answer = served.client.post("/tts", json={"input": "crash, please"})
                assert answer.status_code in {500, 503}
        assert served.until_gone() == 1
        log = "\n".join(served.log)
    assert "the level 0 worker crashes again and again" in log


def test_a_drain_that_is_cut_is_told_without_a_traceback(tmp_path: Path) -> None:
    with process(tmp_path, drain_timeout_s=0.2) as served:
        body = {"input": "wait for me", "response_format": "pcm", "stream": True}
        served.let(1)
        with served.client.stream("POST", "/tts", json=body) as answer:
            pieces = answer.iter_bytes()
            next(pieces)
            served.process.terminate()
            with pytest.raises(httpx.RemoteProtocolError):
                list(pieces)
        served.let(1000)
        assert served.until_gone() == 0
        log = "\n".join(served.log)
    assert "Traceback" not in log, log


def test_too_few_open_files_are_refused_and_a_low_soft_limit_is_raised(toy: Path) -> None:
    def few() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (200, 200))

    environment = {**os.environ, "TTS_MODEL": str(toy), "TTS_PORT": str(free_port())}
    refused = subprocess.run(
        COMMAND, env=environment, capture_output=True, text=True, preexec_fn=few, check=False
    )
    assert refused.returncode == 2, refused.stderr
    assert "512 connections need 608" in refused.stderr
    check = "import resource; from app.settings import Settings; from app.commands.checks.host"
    check += " import check_open_files; print(check_open_files(Settings(max_connections=90)));"
    check += " print(resource.getrlimit(resource.RLIMIT_NOFILE)[0])"

    def low() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (100, 200))

    said = subprocess.check_output([sys.executable, "-c", check], preexec_fn=low, text=True)
    assert said.splitlines() == ["200 files may be open, 186 are needed", "200"]
