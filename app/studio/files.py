"""The files of the studio and of `/docs`: where they are served, and what they are made of.

There is no build step. Style sheets and libraries of other authors are joined as they are, so that
the page loads few files.
"""

import hashlib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

from fastapi import Request, Response

_HERE: Final = Path(__file__).resolve().parent
_PAGE: Final = _HERE / "page"
VENDOR: Final = _HERE / "vendor"
"""Folder of the files of other authors; its README names them, `SHA256SUMS` their content."""

PATH_PREFIX: Final = "/studio/"
"""Prefix of the paths of all files."""

INDEX: Final = _PAGE / "index.html"
ICON: Final = _PAGE / "icon.svg"

_TYPES: Final = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}

_JOINED: Final[Mapping[str, tuple[Path, ...]]] = {
    "style.css": (VENDOR / "pico.css", VENDOR / "uplot.css", _PAGE / "studio.css"),
    "libraries.js": tuple(VENDOR / name for name in ("preact.js", "preact-hooks.js", "htm.js")),
    "plots.js": (VENDOR / "uplot.js",),
    "zip.js": (VENDOR / "fflate.js",),
    "docs.js": (VENDOR / "swagger-ui-bundle.js",),
    "docs.css": (VENDOR / "swagger-ui.css",),
}

PARTS: Final[Mapping[str, tuple[Path, ...]]] = {
    **{PATH_PREFIX + path.name: (path,) for path in (*sorted(_PAGE.glob("*.js")), ICON)},
    **{PATH_PREFIX + name: parts for name, parts in _JOINED.items()},
}
"""Path of a file -> the files that it is joined from."""


class PageFile(NamedTuple):
    """A file as it is sent.

    The ``etag`` is quoted, and changes with the content. It is a weak one, as the same content is
    sent compressed and as it is.
    """

    content: bytes
    media_type: str
    etag: str

    @classmethod
    def of(cls, content: bytes, media_type: str) -> "PageFile":
        """Return a file with the tag of its content."""
        return cls(content, media_type, f'W/"{hashlib.sha256(content).hexdigest()[:32]}"')

    def answer(self, request: Request) -> Response:
        """Return the response with the file, without its content if the client has it already."""
        headers = {
            "Cache-Control": "no-cache",
            "ETag": self.etag,
            "X-Content-Type-Options": "nosniff",
        }
        if self.etag.removeprefix("W/") in request.headers.get("if-none-match", ""):
            return Response(status_code=304, headers=headers)
        return Response(self.content, media_type=self.media_type, headers=headers)


@cache
def page_file(*parts: Path) -> PageFile:
    """Return the content of files of one type, joined by line breaks; read once."""
    content = b"\n".join(path.read_bytes() for path in parts)
    return PageFile.of(content, _TYPES[parts[0].suffix])
