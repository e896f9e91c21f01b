"""Files of another machine: who asks never waits for a server that hangs."""

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from app.storage import remote_files
from app.storage.remote_files import RemoteFiles
from app.storage.voice_store import StoreAway
from tests.app.tools.serving import until


class Server:
    """A file system with one file, each of whose answers waits for `answering`."""

    def __init__(self) -> None:
        self.answering = threading.Event()
        self.answering.set()
        self.asked: list[str] = []
        self.error: Exception | None = None

    def exists(self, path: str) -> Any:
        return self._answer("exists", path == "root")

    def cat_file(self, path: str) -> Any:
        if path != "root/file":
            raise FileNotFoundError(path)
        return self._answer("cat_file", b"content")

    def _answer(self, method: str, result: Any) -> Any:
        self.asked.append(method)
        self.answering.wait()
        if self.error is not None:
            raise self.error
        return result


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setattr(remote_files, "_FIRST_S", 0.1)
    server = Server()
    yield server
    server.answering.set()
    until(lambda: not any(one.name == "voices" for one in threading.enumerate()))


def read(files: RemoteFiles) -> bytes:
    content: bytes = files.look_up("cat_file", "root/file")
    return content


def cannot_read(files: RemoteFiles) -> None:
    with pytest.raises(StoreAway):
        read(files)


def can_read(files: RemoteFiles) -> bool:
    try:
        return read(files) == b"content"
    except StoreAway:
        return False


def test_a_call_that_misses_its_deadline_is_left_alone(server) -> None:
    files = RemoteFiles(server, "root")
    until(lambda: can_read(files))
    server.answering.clear()
    cannot_read(files)
    assert not server.answering.is_set()  # so the server was not waited for


def test_after_it_nobody_waits_and_the_server_is_not_asked(server, caplog) -> None:
    files = RemoteFiles(server, "root")
    until(lambda: can_read(files))
    server.answering.clear()
    asked = len(server.asked)
    for _ in range(50):
        cannot_read(files)
    assert server.asked[asked:].count("cat_file") == 1
    assert caplog.text.count("does not answer") == 1


def test_a_server_that_answers_again_is_used_again(server, caplog) -> None:
    files = RemoteFiles(server, "root")
    until(lambda: can_read(files))
    for _ in range(2):
        server.answering.clear()
        cannot_read(files)
        server.answering.set()
        until(lambda: can_read(files))
    assert caplog.text.count("answers again") == 2


def test_a_server_that_hangs_from_the_start_is_known_before_anybody_asks(
    server,
) -> None:
    server.answering.clear()
    files = RemoteFiles(server, "root")
    for _ in range(20):
        cannot_read(files)
    assert "cat_file" not in server.asked
    server.answering.set()
    until(lambda: can_read(files))


def test_first_calls_wait_for_a_client_that_is_being_made(server, monkeypatch) -> None:
    made = threading.Event()
    monkeypatch.setattr(remote_files, "_CONNECT_S", 60)
    files = RemoteFiles(server, "root", look_up_s=60, connect=made.wait)
    threading.Timer(0.5, made.set).start()
    assert read(files) == b"content"
    assert made.is_set()


def test_errors_that_come_soon_are_told_to_each_caller(server) -> None:
    def refuse() -> None:
        raise LookupError("no credentials")

    server.error = ConnectionRefusedError("refused")
    files = RemoteFiles(server, "root", look_up_s=60, connect=refuse)
    for _ in range(3):
        with pytest.raises(StoreAway, match="refused"):
            read(files)
    assert server.asked.count("cat_file") == 3
    server.error = None
    assert read(files) == b"content"


def test_that_a_file_is_missing_is_an_answer(server) -> None:
    files = RemoteFiles(server, "root", look_up_s=60)
    with pytest.raises(FileNotFoundError):
        files.look_up("cat_file", "root/another")
    assert read(files) == b"content"
