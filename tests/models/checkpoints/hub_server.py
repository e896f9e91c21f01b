"""A hub on the loopback interface: the routes by which files of a commit are served."""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from urllib.parse import unquote

COMMIT = "c0ffee" + "0" * 34


@dataclass
class Hub:
    """What the server has, how it misbehaves, and what it was asked.

    Attributes:
        url: Where it listens.
        files: Contents by ``/owner/name/resolve/COMMIT/path``, which redirects to a storage host
            as the hub does, or by any other path.
        status: If not 200, the answer to everything.
        cut_after: Each of the next answers breaks off after so many bytes.
        lies: Whether storage sends other bytes than the hub's hash says.
        requests: Method, path and Range of each request.
    """

    url: str
    files: dict[str, bytes] = field(default_factory=dict)
    status: int = 200
    cut_after: list[int] = field(default_factory=list)
    lies: bool = False
    requests: list[tuple[str, str, str]] = field(default_factory=list)
    tokens: list[tuple[str, str]] = field(default_factory=list)

    def add(self, repo: str, path: str, content: bytes) -> None:
        self.files[f"/{repo}/resolve/{COMMIT}/{path}"] = content

    @property
    def ranges(self) -> list[str]:
        """The Range of each request for contents; empty for a whole file."""
        return [found for method, _, found in self.requests if method == "GET"]


class _Handler(BaseHTTPRequestHandler):
    hub: Hub
    protocol_version = "HTTP/1.1"

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def log_message(self, format: str, *args: object) -> None:
        pass

    def _answer(self, *, with_body: bool) -> None:
        hub, path = self.hub, unquote(self.path)
        hub.requests.append((self.command, path, self.headers.get("Range", "")))
        hub.tokens.append((path, self.headers.get("Authorization", "")))
        stored = path.removeprefix("/storage")
        content = hub.files.get(stored)
        if hub.status != 200 or content is None:
            self._empty(hub.status if hub.status != 200 else 404)
        elif "/resolve/" in path and stored == path:
            self.send_response(HTTPStatus.FOUND)
            # another name of the same interface: to a client, another host
            storage = hub.url.replace("127.0.0.1", "localhost")
            self.send_header("Location", f"{storage}/storage{self.path}")
            self.send_header("X-Repo-Commit", COMMIT)
            self.send_header("X-Linked-Etag", f'"{hashlib.sha256(content).hexdigest()}"')
            self.send_header("X-Linked-Size", str(len(content)))
            self.send_header("Content-Length", "0")
            self.end_headers()
        else:
            self._send(content, with_body=with_body)

    def _empty(self, status: int) -> None:
        self.send_response(status)
        if status == HTTPStatus.NOT_FOUND:
            self.send_header("X-Error-Code", "EntryNotFound")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def _send(self, content: bytes, *, with_body: bool) -> None:
        start = int(self.headers.get("Range", "bytes=0-").removeprefix("bytes=").rstrip("-"))
        body = content[start:]
        self.send_response(HTTPStatus.PARTIAL_CONTENT if start else HTTPStatus.OK)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        self.send_header("ETag", '"of-no-use"')
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if not with_body:
            return
        if self.hub.lies:
            body = bytes(len(body))
        if self.hub.cut_after:
            body = body[: self.hub.cut_after.pop(0)]
            self.close_connection = True
        self.wfile.write(body)


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing of clients that were killed."""


@contextmanager
def serve_hub() -> Iterator[Hub]:
    """Serve until the block ends."""

    class Handler(_Handler):
        pass

    with _Server(("127.0.0.1", 0), Handler) as server:
        Handler.hub = Hub(f"http://127.0.0.1:{server.server_address[1]}")
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield Handler.hub
        finally:
            server.shutdown()
            thread.join()
