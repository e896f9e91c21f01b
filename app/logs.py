"""Logging: format and destination of log lines, and protection against log injection.

Paths, names and texts in log records come from callers. Characters that are not printable are
escaped, so that no caller can start a line or move a terminal's cursor.
"""

import logging
import sys
from contextvars import ContextVar
from time import monotonic
from types import TracebackType
from typing import Literal, TextIO

from pythonjsonlogger.core import RESERVED_ATTRS
from pythonjsonlogger.json import JsonFormatter

REQUEST_ID: ContextVar[str] = ContextVar("request_id", default="-")
"""Id of the current request. Records of the engine's threads name the job in their message instead.
"""

LogFormat = Literal["text", "json"]

_LOG_HEADERS = ("websockets", "httpx", "httpx2", "httpcore")

_ACCEPT_ERROR = "socket.accept() out of system resource"

ExcInfo = tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]


def configure(level: str, form: LogFormat) -> None:
    """Send the log of the whole process, uvicorn's included, from a level on to stderr."""
    logging.basicConfig(level=level.upper(), handlers=[handler(form, sys.stderr)])
    for name in _LOG_HEADERS:
        # At level debug they log all headers, API keys included.
        logging.getLogger(name).setLevel(logging.INFO)


def handler(form: LogFormat, stream: TextIO) -> logging.Handler:
    """Return a handler that writes records to a stream in a format."""
    stream_handler = logging.StreamHandler(stream)
    stream_handler.addFilter(_add_request_id)
    stream_handler.addFilter(_AcceptErrors())
    stream_handler.setFormatter(json_lines() if form == "json" else TextLines())
    return stream_handler


class TextLines(logging.Formatter):
    """One line per record, for people; tracebacks are indented below it."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s [%(request_id)s]: %(message)s")

    def format(self, record: logging.LogRecord) -> str:
        """Return the text of a record with its traceback."""
        kept = record.exc_text  # another handler's form of the traceback
        record.exc_text = None
        try:
            return super().format(record)
        finally:
            record.exc_text = kept

    def formatMessage(self, record: logging.LogRecord) -> str:
        """Return the line of a record, escaped."""
        return printable(super().formatMessage(record))

    def formatException(self, ei: ExcInfo) -> str:
        """Return an indented, escaped traceback; exception messages may quote a caller."""
        lines = super().formatException(ei).split("\n")
        return "\n".join(f"    {printable(line)}" for line in lines)


def json_lines() -> logging.Formatter:
    """Return a formatter that writes one JSON object per record, with its `extra` fields."""
    return JsonFormatter(
        ["levelname", "name", "request_id", "message"],
        timestamp="time",
        rename_fields={"levelname": "level", "name": "logger", "exc_info": "exception"},
        reserved_attrs=[*RESERVED_ATTRS, "color_message"],  # uvicorn's: its line in colours
    )


def printable(text: str) -> str:
    """Return a text with unprintable characters escaped."""
    if text.isprintable():
        return text
    return "".join(
        one if one.isprintable() else one.encode("unicode_escape").decode() for one in text
    )


class _AcceptErrors(logging.Filter):
    """Passes one error of `accept` a second, in a line: asyncio logs them while there are no files.

    Their tracebacks would open the files that they quote.
    """

    def __init__(self) -> None:
        super().__init__()
        self._next_s = 0.0

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether a record is written."""
        if record.name != "asyncio" or not str(record.msg).startswith(_ACCEPT_ERROR):
            return True
        now_s = monotonic()
        if now_s < self._next_s:
            return False
        self._next_s = now_s + 1.0
        record.msg = "no connection can be accepted: too many files are open"
        record.args = ()
        record.exc_info = record.exc_text = None
        return True


def _add_request_id(record: logging.LogRecord) -> bool:
    record.request_id = REQUEST_ID.get()
    return True
