"""Routes of the studio at `/` and `/studio`, of its files, and of the documentation at `/docs`."""

import asyncio
import json
from typing import Final

from fastapi import APIRouter, FastAPI, HTTPException, Request, Response
from fastapi.openapi.docs import get_swagger_ui_html

from app.studio.files import ICON, INDEX, PARTS, PATH_PREFIX, PageFile, page_file

PAGES: Final = frozenset({"/", "/studio", "/docs"})
_KNOBS: Final = PATH_PREFIX + "knobs.json"
_ICON: Final = "/favicon.ico"

OPEN_PATHS: Final = PAGES | {*PARTS, _KNOBS, _ICON}
"""All paths of this module. They hold nothing secret and need no key: the page asks for one."""

_POLICY: Final = "; ".join((
    "default-src 'none'",
    "script-src 'self'",
    "style-src 'self' 'unsafe-inline'",
    "img-src 'self' data: blob:",
    "media-src 'self' blob:",
    "connect-src 'self'",
    "base-uri 'none'",
    "form-action 'none'",
    "frame-ancestors 'none'",
))
"""What the studio may load: this service's files and answers alone."""

studio_router = APIRouter(include_in_schema=False)


@studio_router.get("/")
async def get_root(request: Request) -> Response:
    """Return the studio to browsers; a program that asks for JSON gets a 404."""
    if "text/html" not in request.headers.get("accept", ""):
        raise HTTPException(404, "Not Found")
    return await _studio(request)


@studio_router.get("/studio")
async def get_studio(request: Request) -> Response:
    """Return the studio."""
    return await _studio(request)


@studio_router.get("/docs")
async def get_docs() -> Response:
    """Return the interactive documentation, which loads nothing from other hosts."""
    return get_swagger_ui_html(
        openapi_url="openapi.json",
        title="valle-serve",
        swagger_js_url=f"{PATH_PREFIX[1:]}docs.js",
        swagger_css_url=f"{PATH_PREFIX[1:]}docs.css",
        swagger_favicon_url=f"{PATH_PREFIX[1:]}{ICON.name}",
        swagger_ui_parameters={"validatorUrl": None},  # by default another host's
    )


@studio_router.get(_ICON)
async def get_icon(request: Request) -> Response:
    """Return the icon, where a browser looks for one that no page names."""
    return (await asyncio.to_thread(page_file, ICON)).answer(request)


@studio_router.get(_KNOBS)
async def get_knobs(request: Request) -> Response:
    """Return the part of `/openapi.json` that the page is made by: what a request may hold."""
    return (await asyncio.to_thread(_knobs, request.app)).answer(request)


def _knobs(app: FastAPI) -> PageFile:
    paths = app.openapi()["paths"]
    spoken, read = (
        paths[path]["post"]["requestBody"]["content"]["application/json"]["schema"]["properties"]
        for path in ("/tts", "/v1/audio/phonemes")
    )
    shown = {"properties": spoken, "phonemes": [*read]}
    return PageFile.of(json.dumps(shown).encode(), "application/json")


@studio_router.get(PATH_PREFIX + "{name}")
async def get_file(request: Request, name: str) -> Response:
    """Return a file of a page; 404 if there is none of that name."""
    parts = PARTS.get(PATH_PREFIX + name)
    if parts is None:
        raise HTTPException(404, "Not Found")
    return (await asyncio.to_thread(page_file, *parts)).answer(request)


async def _studio(request: Request) -> Response:
    answer = (await asyncio.to_thread(page_file, INDEX)).answer(request)
    answer.headers["Content-Security-Policy"] = _POLICY
    answer.headers["Referrer-Policy"] = "no-referrer"
    answer.headers["Vary"] = "Accept"
    return answer
