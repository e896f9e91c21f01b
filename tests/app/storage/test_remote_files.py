"""Objects on another machine: who asks never waits for a server that hangs."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from app.storage.files import StoreAway
from app.storage.remote_files import RemoteFiles
from tests.app.tools.serving import until


class Server(ThreadingHTTPServer):
    """One object at `/folder/file`; every answer waits for `answering`."""

    daemon_threads = False

    def __init__(self) -> None:
        self.answering = threading.Event()
        self.answering.set()
        self.asked: list[str] = []
        self.status = 200
        super().__init__(("127.0.0.1", 0), Answer)
        self.url = f"http://127.0.0.1:{self.server_port}/folder"
        threading.Thread(target=self.serve_forever).start()


class Answer(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        self.server.asked.append(self.command)
        self.server.answering.wait()
        there = self.path == "/folder/file"
        self.send_response(self.server.status if there else 404)
        self.send_header("Last-Modified", "Mon, 01 Jan 2024 00:00:00 GMT")
        self.send_header("Content-Length", "7" if there and self.command == "GET" else "0")
        self.end_headers()
        if there and self.command == "GET":
            self.wfile.write(b"content")

    do_HEAD = do_GET

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    yield server
    server.answering.set()
    until(lambda: not any(one.name == "voices" for one in threading.enumerate()))
    server.shutdown()
    server.server_close()


def opened(server: Server, deadline_s: float = 0.3) -> RemoteFiles:
    return RemoteFiles(server.url, look_up_s=deadline_s, transfer_s=deadline_s)


def cannot_read(files: RemoteFiles) -> None:
    with pytest.raises(StoreAway):
        files.read(Path("file"))


def can_read(files: RemoteFiles) -> bool:
    try:
        return files.read(Path("file")) == b"content"
    except StoreAway:
        return False


def test_after_a_missed_deadline_nobody_waits_and_the_server_is_not_asked(server, caplog) -> None:
    files = opened(server)
    until(lambda: can_read(files))
    server.answering.clear()
    asked = len(server.asked)
    for _ in range(50):
        cannot_read(files)
    assert not server.answering.is_set()  # so the server was not waited for
    assert server.asked[asked:].count("GET") == 1
    assert caplog.text.count("does not answer") == 1


@pytest.mark.slow
def test_a_server_that_answers_again_is_used_again(server, caplog) -> None:
    files = opened(server)
    until(lambda: can_read(files))
    for _ in range(2):
        server.answering.clear()
        cannot_read(files)
        server.answering.set()
        until(lambda: can_read(files))
    assert caplog.text.count("answers again") == 2


def test_a_server_that_hangs_from_the_start_is_known_before_anybody_asks(server) -> None:
    server.answering.clear()
    files = opened(server)
    for _ in range(20):
        cannot_read(files)
    assert "GET" not in server.asked
    server.answering.set()
    until(lambda: can_read(files))


def test_errors_that_come_soon_are_told_to_each_caller(server) -> None:
    files = opened(server, 60)
    server.status = 403
    for _ in range(3):
        with pytest.raises(StoreAway, match="403"):
            files.read(Path("file"))
    assert server.asked.count("GET") == 3
    server.status = 200
    assert files.read(Path("file")) == b"content"


def test_that_an_object_is_missing_is_an_answer(server) -> None:
    files = opened(server, 60)
    with pytest.raises(FileNotFoundError):
        files.read(Path("another"))
    assert not files.exists(Path("another"))
    assert files.exists(Path("file"))
