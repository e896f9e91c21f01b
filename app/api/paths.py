"""What a path that is not there was meant to be, and which methods one has that is.

Asked after a request was refused, so that routes are searched for wrong requests alone.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, Final

from starlette.routing import BaseRoute, Match

EVERY_PATH: Final = "/{path:path}"
METHODS: Final = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")

_LONGEST: Final = 100  # characters of a path that is searched for
_MOST_SEGMENTS: Final = 8
_CLOSE: Final = 0.8  # difflib ratio of a typing error

ELSEWHERE: Final[Mapping[str, str]] = {
    "/v1/audio/speech/batch": "send each text as a request, or `valle-serve batch` a file of them",
    "/v1/audio/speech/voices": "voices are listed at /v1/audio/voices",
    "/v1/audio/speech/stream": "send `stream: true` to POST /v1/audio/speech; this is the path of a"
    " WebSocket",
    "/v1/audio/speech/ws": "this is the path of a WebSocket",
    "/v1/audio/transcriptions": "this service speaks and does not transcribe",
    "/v1/audio/translations": "this service speaks and does not transcribe",
    "/v1/chat/completions": "this service speaks: POST /v1/audio/speech",
    "/v1/completions": "this service speaks: POST /v1/audio/speech",
    "/v1/responses": "this service speaks: POST /v1/audio/speech",
    "/v1/speech-to-text": "this service speaks and does not transcribe",
    "/v1/sound-generation": "this service makes speech alone",
    "/v1/realtime": "a text that grows is spoken over the WebSocket /v1/audio/speech/stream",
    "/v1/audio/dialogue": "turns are spoken at POST /dev/dialogue",
    "/v1/text-to-dialogue": "turns are spoken at POST /dev/dialogue",
    "/web": "the studio is at /",
    "/ui": "the studio is at /",
    "/redoc": "the documentation is at /docs",
    "/swagger": "the documentation is at /docs",
    "/api/tts": "send JSON to POST /tts",
    "/api/voices": "voices are listed at /v1/audio/voices",
    "/api/ps": "the loaded model is told by /ready",
}
"""Paths of other servers, and what serves their purpose here."""


def allowed(routes: Sequence[BaseRoute], path: str) -> list[str]:
    """Return the methods that a path has; none if there is no such path.

    Of a path that is written out, as `/v1/voices/add`, these are its own and not those that it has
    as an id.
    """
    own = [route for route in every_route(routes) if getattr(route, "path", None) == path]
    has = [one for one in METHODS if _serves(own, path, type="http", method=one)]
    return has or [one for one in METHODS if _serves(routes, path, type="http", method=one)]


def hint(routes: Sequence[BaseRoute], path: str, kind: str = "http") -> str:
    """Return what to do in place of a path that is not there, or nothing.

    ``kind`` is `http` or `websocket`.
    """
    if len(path) > _LONGEST:
        return ""
    elsewhere = ELSEWHERE.get(_tidy(path), "")
    if elsewhere and kind == "http":
        return elsewhere
    meant = next((one for one in _variants(path) if _is_there(routes, one, kind)), None)
    if meant is None and kind == "http":
        near = get_close_matches(_tidy(path), _written_out(routes), n=1, cutoff=_CLOSE)
        meant = next(iter(near), None)
    return f"did you mean {meant}?" if meant and meant != path else elsewhere


def _is_there(routes: Sequence[BaseRoute], path: str, kind: str) -> bool:
    return bool(allowed(routes, path)) if kind == "http" else _serves(routes, path, type=kind)


def _serves(routes: Sequence[BaseRoute], path: str, **more: str) -> bool:
    scope = {"path": path, "root_path": "", "headers": [], **more}
    return any(route.matches(scope)[0] is Match.FULL for route in every_route(routes))


def every_route(routes: Sequence[BaseRoute]) -> Iterator[BaseRoute]:
    """Yield the routes of all routers, but not the one that refuses all other WebSockets."""
    for route in routes:
        inner = getattr(route, "original_router", None)
        if inner is not None:
            yield from every_route(inner.routes)
        elif getattr(route, "path", None) != EVERY_PATH:
            yield route


def _tidy(path: str) -> str:
    """Return a path without slashes that are doubled or at its end."""
    return re.sub("/+", "/", path).rstrip("/") or "/"


def _variants(path: str) -> Iterator[str]:
    """Yield what a path may have been meant to be: below another prefix, or below `/v1`."""
    tidy = _tidy(path)
    segments = tidy.split("/")[1:]
    if tidy != path:
        yield tidy
    if len(segments) > _MOST_SEGMENTS:
        return
    for first in range(len(segments)):
        rest = "/".join(segments[first:])
        for variant in (f"/{rest}", f"/v1/{rest}"):
            if variant != path and rest:
                yield variant


def _written_out(routes: Sequence[BaseRoute]) -> list[str]:
    """Return the paths without parameters."""
    paths: list[Any] = [getattr(route, "path", None) for route in every_route(routes)]
    return [path for path in dict.fromkeys(paths) if path and "{" not in path]
