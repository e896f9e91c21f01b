"""Models of the hub arrive whole and verified, or not at all: real sockets, a loopback hub."""

import hashlib
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from models.checkpoints.hub import (
    PINNED,
    DownloadError,
    HubFile,
    NoSuchFile,
    Unreachable,
    fetch,
    find,
    locate,
)
from tests.app.tools.serving import free_port
from tests.fixtures import full_disk
from tests.models.checkpoints.hub_server import COMMIT, Hub

CONTENT = os.urandom(300_000)
REPO, PATH = "somebody/vall-e", "models/ckpt/ar+nar-len-llama-8/ckpt/fp32.sft"
NAME = f"{REPO}@{COMMIT}:{PATH}"
CHUNK = 10_000
REPO_FOLDER = Path("models--somebody--vall-e")
TARGET = REPO_FOLDER.joinpath("snapshots", COMMIT, PATH)
BLOB = REPO_FOLDER.joinpath("blobs", hashlib.sha256(CONTENT).hexdigest())


@pytest.fixture
def hub(hub: Hub, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Hub:
    monkeypatch.setattr("huggingface_hub.constants.DOWNLOAD_CHUNK_SIZE", CHUNK)  # 10 MB a piece
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    hub.add(REPO, PATH, CONTENT)
    return hub


def files(folder: Path) -> set[str]:
    """What is there for whoever looks for models: neither locks nor what is not whole."""
    return {
        str(path.relative_to(folder))
        for path in folder.rglob("*")
        if path.is_file() and path.suffix not in {".lock", ".incomplete"} and path.name != "TAG"
    } - {"CACHEDIR.TAG", ".gitignore"}


def test_a_file_arrives_and_is_fetched_once(hub: Hub, tmp_path: Path) -> None:
    path = locate(NAME, endpoint=hub.url)
    assert path == tmp_path / TARGET
    assert path.read_bytes() == CONTENT
    assert files(tmp_path) == {str(TARGET), str(BLOB)}
    asked = len(hub.requests)
    assert locate(NAME, endpoint=hub.url) == path
    assert locate(NAME, offline=True) == path
    assert len(hub.requests) == asked


@pytest.mark.slow
def test_a_cut_connection_is_taken_up_where_it_broke(hub: Hub, tmp_path: Path) -> None:
    hub.cut_after = [100_000]
    assert locate(NAME, endpoint=hub.url).read_bytes() == CONTENT
    assert hub.ranges == ["", "bytes=100000-"]


@pytest.mark.slow
def test_a_killed_download_leaves_no_model_and_can_go_on(hub: Hub, tmp_path: Path) -> None:
    hub.cut_after = [200_000, 0, 0, 0, 0, 0, 0]
    code = (
        "import sys; from models.checkpoints.hub import locate;"
        f"from huggingface_hub import constants; constants.DOWNLOAD_CHUNK_SIZE = {CHUNK};"
        "locate(sys.argv[1], endpoint=sys.argv[2])"
    )
    here = {**os.environ, "HF_HUB_CACHE": str(tmp_path)}
    loading = subprocess.Popen([sys.executable, "-c", code, NAME, hub.url], env=here)
    while loading.poll() is None and len(hub.ranges) < 3:
        time.sleep(0.01)
    loading.kill()
    loading.wait()
    assert files(tmp_path) == set()
    hub.cut_after = []
    assert locate(NAME, endpoint=hub.url).read_bytes() == CONTENT
    assert files(tmp_path) == {str(TARGET), str(BLOB)}


def test_a_wrong_hash_is_refused_and_deleted(hub: Hub, tmp_path: Path) -> None:
    hub.lies = True
    with pytest.raises(DownloadError, match=f"expected {hashlib.sha256(CONTENT).hexdigest()}"):
        locate(NAME, endpoint=hub.url)
    assert files(tmp_path) == set()


def test_the_pinned_hash_has_the_last_word(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(PINNED, REPO, HubFile(REPO, COMMIT, PATH, sha256="0" * 64))
    with pytest.raises(DownloadError, match="expected 0000"):
        locate(REPO, endpoint=hub.url)
    assert files(tmp_path) == set()


def test_what_was_changed_in_the_cache_is_not_believed(hub: Hub, tmp_path: Path) -> None:
    """The cache is not ours alone."""
    path = locate(NAME, endpoint=hub.url)
    path.resolve().chmod(0o644)
    path.resolve().write_bytes(CONTENT[:-1] + b"?")
    with pytest.raises(DownloadError, match="deleted it"):
        locate(NAME, endpoint=hub.url)
    assert locate(NAME, endpoint=hub.url).read_bytes() == CONTENT


def test_a_missing_file_is_told(hub: Hub, tmp_path: Path) -> None:
    with pytest.raises(NoSuchFile, match="answered 404: there is no such file"):
        locate(f"{NAME}x", endpoint=hub.url)
    assert files(tmp_path) == set()


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The seconds between two attempts of `huggingface_hub`, which nobody waits for."""
    found: list[float] = []
    monkeypatch.setattr(time, "sleep", found.append)
    return found


@pytest.mark.parametrize(
    ("status", "reason", "may_pass"),
    [
        (401, "needs a token", False),
        (403, "not granted", False),
        (429, "Too Many", True),
        (500, "Internal", True),
    ],
)
def test_a_refusal_is_told_with_its_reason_and_what_may_pass_is_another_error(
    hub: Hub, tmp_path: Path, status: int, reason: str, may_pass: bool, waits: list[float]
) -> None:
    hub.status = status
    with pytest.raises(DownloadError, match=f"answered {status}: .*{reason}") as refused:
        locate(NAME, endpoint=hub.url)
    assert isinstance(refused.value, Unreachable) == may_pass
    assert sum(waits) < 60
    assert files(tmp_path) == set()


@pytest.mark.usefixtures("waits")
def test_without_a_network_it_is_said(tmp_path: Path) -> None:
    with pytest.raises(DownloadError, match="the network failed"):
        locate(NAME, endpoint=f"http://127.0.0.1:{free_port()}")
    assert files(tmp_path) == set()


def test_offline_nothing_is_asked_for(hub: Hub, tmp_path: Path) -> None:
    with pytest.raises(DownloadError, match="offline nothing is downloaded"):
        locate(NAME, offline=True, endpoint=hub.url)
    assert hub.requests == []


def test_a_disk_that_fills_up_leaves_nothing(hub: Hub, tmp_path: Path) -> None:
    with full_disk(150_000), pytest.raises(DownloadError, match="File too large"):
        locate(NAME, endpoint=hub.url)
    assert files(tmp_path) == set()


def test_a_folder_that_cannot_be_made_is_told(hub: Hub, tmp_path: Path) -> None:
    (tmp_path / REPO_FOLDER).write_text("in the way")
    with pytest.raises(DownloadError, match=r"Not a directory|File exists"):
        locate(NAME, endpoint=hub.url)


def test_a_token_never_reaches_the_storage_host(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "made-up")
    locate(NAME, endpoint=hub.url)
    assert {bool(token) for path, token in hub.tokens if path.startswith("/storage")} == {False}
    assert ("Bearer made-up") in {token for _, token in hub.tokens}


def test_a_token_of_the_hub_stays_with_the_hub(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "made-up")
    hub.files["/v0/weights.th"] = CONTENT
    digest = hashlib.sha256(CONTENT).hexdigest()[:8]
    fetch(f"{hub.url}/v0/weights.th", tmp_path / "weights.th", sha256=digest)
    assert {token for _, token in hub.tokens} == {""}


def test_descriptions_beside_come_too_where_there_are_some(hub: Hub, tmp_path: Path) -> None:
    hub.add(REPO, "model.safetensors", CONTENT)
    hub.add(REPO, "tokenizer.json", b"{}")
    path = locate(f"{REPO}@{COMMIT}:model.safetensors", endpoint=hub.url)
    assert {file.name for file in path.parent.iterdir() if file.suffix != ".lock"} == {
        "model.safetensors",
        "tokenizer.json",
    }


def test_two_starts_at_once_download_once(hub: Hub, tmp_path: Path) -> None:
    with ThreadPoolExecutor(2) as starts:
        running = [starts.submit(locate, NAME, endpoint=hub.url) for _ in range(2)]
    assert {started.result() for started in running} == {tmp_path / TARGET}
    assert len(hub.ranges) == 1


def test_what_exists_here_is_local(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("ecker/vall-e").mkdir(parents=True)
    assert find("ecker/vall-e") is None
    assert locate("ecker/vall-e", offline=True) == Path("ecker/vall-e")
    assert find("/nowhere/at/all") is None


def test_every_pin_is_a_commit_with_a_hash_and_a_licence() -> None:
    for wanted in PINNED.values():
        assert (len(wanted.revision), len(wanted.sha256)) == (40, 64)
        assert wanted.size_bytes > 0
        assert wanted.licence


@pytest.mark.parametrize(
    "name",
    ["some/model", "some/model@main", "some/model@main:file.sft", f"some/model@{COMMIT}"],
)
def test_what_is_not_pinned_is_refused_with_the_way_out(name: str) -> None:
    with pytest.raises(DownloadError, match=r"ecker/vall-e.*owner/name@COMMIT:path/of/file"):
        find(name)


def test_a_path_out_of_the_repository_is_refused() -> None:
    with pytest.raises(DownloadError, match="leads out"):
        find(f"some/model@{COMMIT}:../../file.sft")
