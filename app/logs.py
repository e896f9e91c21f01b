"""The log: where its lines go, what each of them tells, and that nobody can forge one.

A caller chooses paths, names and texts. None of them may begin a line or move a terminal's cursor:
what cannot be printed is written as an escape.
"""

import logging
import sys
from contextvars import ContextVar
from types import TracebackType
from typing import Literal, TextIO

from pythonjsonlogger.core import RESERVED_ATTRS
from pythonjsonlogger.json import JsonFormatter

REQUEST_ID: ContextVar[str] = ContextVar("request_id", default="-")
"""Of the request that is being answered; what the engine's threads write names its job instead."""

LogFormat = Literal["text", "json"]

_WITH_HEADERS = ("websockets", "httpx", "httpx2", "httpcore")

ExcInfo = tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]


def configure(level: str, form: LogFormat) -> None:
    """Send the whole process's log to the error stream, uvicorn's lines too.

    Args:
        level: Least severity of what is written.
        form: Of a line.
    """
    logging.basicConfig(level=level.upper(), handlers=[handler(form, sys.stderr)])
    for name in _WITH_HEADERS:
        # Under debug they write down every header, and a header may be a key.
        logging.getLogger(name).setLevel(logging.INFO)


def handler(form: LogFormat, stream: TextIO) -> logging.Handler:
    """Return what writes lines of a form."""
    made = logging.StreamHandler(stream)
    made.addFilter(_name_request)
    made.setFormatter(json_lines() if form == "json" else TextLines())
    return made


class TextLines(logging.Formatter):
    """A line a record, for people; what belongs to it below is indented."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s [%(request_id)s]: %(message)s")

    def format(self, record: logging.LogRecord) -> str:
        """Return all that belongs to a record."""
        kept, record.exc_text = record.exc_text, None  # another handler's form of the traceback
        try:
            return super().format(record)
        finally:
            record.exc_text = kept

    def formatMessage(self, record: logging.LogRecord) -> str:
        """Return the line of a record."""
        return printable(super().formatMessage(record))

    def formatException(self, ei: ExcInfo) -> str:
        """Return a traceback; its messages may hold what a caller sent."""
        lines = super().formatException(ei).split("\n")
        return "\n".join(f"    {printable(line)}" for line in lines)


def json_lines() -> logging.Formatter:
    """Return what makes a JSON object of a record; `extra` fields become fields of it."""
    return JsonFormatter(
        ["levelname", "name", "request_id", "message"],
        timestamp="time",
        rename_fields={"levelname": "level", "name": "logger", "exc_info": "exception"},
        reserved_attrs=[*RESERVED_ATTRS, "color_message"],  # uvicorn's: its line in colours
    )


def printable(text: str) -> str:
    """Return a text with escapes for what is no printable character."""
    if text.isprintable():
        return text
    return "".join(
        one if one.isprintable() else one.encode("unicode_escape").decode() for one in text
    )


def _name_request(record: logging.LogRecord) -> bool:
    record.request_id = REQUEST_ID.get()
    return True
