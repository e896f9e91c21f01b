"""Models of the hub arrive whole and verified, or not at all: real sockets, a loopback hub."""

import hashlib
import os
import resource
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest

from models.checkpoints.download import DownloadError, NoSuchFile, fetch
from models.checkpoints.hub import PINNED, HubFile, find, locate
from tests.models.checkpoints.hub_server import COMMIT, Hub

CONTENT = os.urandom(300_000)
REPO, PATH = "somebody/vall-e", "models/ckpt/ar+nar-len-llama-8/ckpt/fp32.sft"
NAME = f"{REPO}@{COMMIT}:{PATH}"
CHUNK = 10_000
TARGET = Path("hub", "somebody--vall-e", COMMIT, PATH)


@pytest.fixture
def hub(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> Hub:
    monkeypatch.setattr("huggingface_hub.constants.DOWNLOAD_CHUNK_SIZE", CHUNK)  # 10 MB a piece
    hub.add(REPO, PATH, CONTENT)
    return hub


def files(folder: Path) -> set[str]:
    """What is there for whoever looks for models; locks are nothing."""
    return {
        str(path.relative_to(folder))
        for path in folder.rglob("*")
        if path.is_file() and path.suffix != ".lock"
    }


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
        assert isinstance(port, int)
        return port


def test_a_file_arrives_and_is_fetched_once(hub: Hub, tmp_path: Path) -> None:
    path = locate(NAME, cache=tmp_path, endpoint=hub.url)
    assert path == tmp_path / TARGET
    assert path.read_bytes() == CONTENT
    assert files(tmp_path) == {str(TARGET)}
    asked = len(hub.requests)
    assert locate(NAME, cache=tmp_path, endpoint=hub.url) == path
    assert locate(NAME, cache=tmp_path, offline=True) == path
    assert len(hub.requests) == asked


def test_a_cut_connection_is_taken_up_where_it_broke(hub: Hub, tmp_path: Path) -> None:
    hub.cut_after = [100_000]
    assert locate(NAME, cache=tmp_path, endpoint=hub.url).read_bytes() == CONTENT
    assert hub.ranges == ["", "bytes=100000-"]


def test_a_later_start_goes_on_where_an_earlier_one_ended(hub: Hub, tmp_path: Path) -> None:
    partial = tmp_path / f"{TARGET}.partial"
    partial.parent.mkdir(parents=True)
    partial.write_bytes(CONTENT[:123_456])
    assert locate(NAME, cache=tmp_path, endpoint=hub.url).read_bytes() == CONTENT
    assert hub.ranges == ["bytes=123456-"]
    assert files(tmp_path) == {str(TARGET)}


def test_a_killed_download_leaves_no_model_and_can_go_on(hub: Hub, tmp_path: Path) -> None:
    hub.cut_after = [200_000, 0, 0, 0, 0, 0, 0]
    code = (
        "import sys; from pathlib import Path; from models.checkpoints.hub import locate;"
        f"from huggingface_hub import constants; constants.DOWNLOAD_CHUNK_SIZE = {CHUNK};"
        "locate(sys.argv[1], cache=Path(sys.argv[2]), endpoint=sys.argv[3])"
    )
    loading = subprocess.Popen([sys.executable, "-c", code, NAME, tmp_path, hub.url])
    partial = tmp_path / f"{TARGET}.partial"
    while loading.poll() is None and len(hub.ranges) < 3:
        time.sleep(0.01)
    loading.kill()
    loading.wait()
    assert files(tmp_path) == {str(partial.relative_to(tmp_path))}
    hub.cut_after = []
    hub.requests.clear()
    there = partial.stat().st_size
    assert there > 0
    assert locate(NAME, cache=tmp_path, endpoint=hub.url).read_bytes() == CONTENT
    assert hub.ranges == [f"bytes={there}-"]


def test_more_than_there_should_be_is_begun_anew(hub: Hub, tmp_path: Path) -> None:
    partial = tmp_path / f"{TARGET}.partial"
    partial.parent.mkdir(parents=True)
    partial.write_bytes(CONTENT + b"more")
    assert locate(NAME, cache=tmp_path, endpoint=hub.url).read_bytes() == CONTENT


def test_a_wrong_hash_is_refused_and_deleted(hub: Hub, tmp_path: Path) -> None:
    hub.lies = True
    with pytest.raises(DownloadError, match=f"expected {hashlib.sha256(CONTENT).hexdigest()}"):
        locate(NAME, cache=tmp_path, endpoint=hub.url)
    assert files(tmp_path) == set()


def test_the_pinned_hash_has_the_last_word(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(PINNED, REPO, HubFile(REPO, COMMIT, PATH, sha256="0" * 64))
    with pytest.raises(DownloadError, match="expected 0000"):
        locate(REPO, cache=tmp_path, endpoint=hub.url)
    assert files(tmp_path) == set()


def test_a_missing_file_is_told(hub: Hub, tmp_path: Path) -> None:
    with pytest.raises(NoSuchFile, match="answered 404: there is no such file"):
        locate(f"{NAME}x", cache=tmp_path, endpoint=hub.url)
    assert files(tmp_path) == set()


@pytest.mark.parametrize(
    ("status", "reason"), [(401, "needs a token"), (403, "not granted"), (500, "Internal")]
)
def test_a_refusal_is_told_with_its_reason(
    hub: Hub, tmp_path: Path, status: int, reason: str
) -> None:
    hub.status = status
    with pytest.raises(DownloadError, match=f"answered {status}: .*{reason}"):
        locate(NAME, cache=tmp_path, endpoint=hub.url)
    assert files(tmp_path) == set()


def test_without_a_network_it_is_said_at_once(tmp_path: Path) -> None:
    with pytest.raises(DownloadError, match="the network failed"):
        locate(NAME, cache=tmp_path, endpoint=f"http://127.0.0.1:{free_port()}")
    assert files(tmp_path) == set()


def test_offline_nothing_is_asked_for(hub: Hub, tmp_path: Path) -> None:
    with pytest.raises(DownloadError, match="offline nothing is downloaded"):
        locate(NAME, cache=tmp_path, offline=True, endpoint=hub.url)
    assert hub.requests == []


def test_a_disk_too_small_is_refused_before_the_download(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=1000))
    with pytest.raises(DownloadError, match="300,000 more bytes are needed, the disk has 1,000"):
        locate(NAME, cache=tmp_path, endpoint=hub.url)
    assert hub.ranges == []
    assert files(tmp_path) == set()


def test_a_disk_that_fills_up_leaves_nothing(hub: Hub, tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (150_000, hard))
    try:
        with pytest.raises(DownloadError, match="File too large"):
            locate(NAME, cache=tmp_path, endpoint=hub.url)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert files(tmp_path) == set()


def test_a_folder_that_cannot_be_made_is_told(hub: Hub, tmp_path: Path) -> None:
    (tmp_path / "hub").write_text("in the way")
    with pytest.raises(DownloadError, match=r"Not a directory|File exists"):
        locate(NAME, cache=tmp_path, endpoint=hub.url)


def test_a_token_never_reaches_the_storage_host(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "made-up")
    locate(NAME, cache=tmp_path, endpoint=hub.url)
    assert {bool(token) for path, token in hub.tokens if path.startswith("/storage")} == {False}
    assert ("Bearer made-up") in {token for _, token in hub.tokens}


def test_a_token_of_the_hub_stays_with_the_hub(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "made-up")
    hub.files["/v0/weights.th"] = CONTENT
    fetch(f"{hub.url}/v0/weights.th", tmp_path / "weights.th")
    assert {token for _, token in hub.tokens} == {""}


def test_descriptions_beside_come_too_where_there_are_some(hub: Hub, tmp_path: Path) -> None:
    hub.add(REPO, "model.safetensors", CONTENT)
    hub.add(REPO, "tokenizer.json", b"{}")
    path = locate(f"{REPO}@{COMMIT}:model.safetensors", cache=tmp_path, endpoint=hub.url)
    assert {file.name for file in path.parent.iterdir() if file.suffix != ".lock"} == {
        "model.safetensors",
        "tokenizer.json",
    }


def test_two_starts_at_once_download_once(hub: Hub, tmp_path: Path) -> None:
    with ThreadPoolExecutor(2) as starts:
        running = [starts.submit(locate, NAME, cache=tmp_path, endpoint=hub.url) for _ in range(2)]
    assert {started.result() for started in running} == {tmp_path / TARGET}
    assert len(hub.ranges) == 1


def test_what_exists_here_is_local(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("ecker/vall-e").mkdir(parents=True)
    assert find("ecker/vall-e") is None
    assert locate("ecker/vall-e", cache=tmp_path, offline=True) == Path("ecker/vall-e")
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
