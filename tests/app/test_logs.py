import io
import json
import logging
import subprocess
import sys

import pytest

from app import logs

FORGED = "a\r\n2026-01-01 INFO forged\x1b[2J\x00\x85\u2028\u202e"


def record(message: str, *arguments: object, **fields: object) -> logging.LogRecord:
    made = logging.LogRecord("some.logger", logging.INFO, "file", 1, message, arguments, None)
    made.request_id = "-"
    vars(made).update(fields)
    return made


def test_nothing_that_is_logged_can_begin_a_line() -> None:
    line = logs.TextLines().format(record("path %s", FORGED))
    assert line.isprintable()
    assert r"a\r\n2026-01-01 INFO forged\x1b[2J\x00\x85\u2028\u202e" in line


def test_what_is_printable_stays_as_it_is() -> None:
    assert logs.printable("¿Qué? 今日は 😀") == "¿Qué? 今日は 😀"


def test_a_traceback_is_indented_and_its_message_cannot_leave_it() -> None:
    try:
        raise ValueError(FORGED)
    except ValueError:
        made = record("broke")
        made.exc_info = sys.exc_info()
    logging.Formatter().format(made)  # as another handler would, and keeps its own form
    first, *rest = logs.TextLines().format(made).split("\n")
    assert first.endswith("some.logger [-]: broke")
    assert rest[-1].startswith("    ")
    for line in rest:
        assert line.startswith("    ")
        assert line.isprintable()


def test_a_json_line_is_one_object_with_the_extra_fields() -> None:
    line = logs.json_lines().format(record("path %s", FORGED, status=200, color_message="x"))
    assert line.isascii()
    assert "\n" not in line
    told = json.loads(line)
    assert told.pop("time")
    assert told == {
        "level": "INFO",
        "logger": "some.logger",
        "request_id": "-",
        "message": f"path {FORGED}",
        "status": 200,
    }


@pytest.mark.parametrize("form", ["text", "json"])
def test_every_logger_of_a_process_writes_that_form(form) -> None:
    code = (
        "import logging; from app import logs;"
        f"logs.configure('debug', {form!r});"
        "logs.REQUEST_ID.set('abc');"
        "[logging.getLogger(name).warning('hello') for name in ('app.x', 'uvicorn.error')];"
        "logging.getLogger('websockets.server').debug('< authorization: Bearer secret')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    lines = done.stderr.splitlines()
    assert len(lines) == 2, lines
    for line, name in zip(lines, ("app.x", "uvicorn.error"), strict=True):
        if form == "json":
            told = json.loads(line)
            assert (told["logger"], told["request_id"]) == (name, "abc")
        else:
            assert line.endswith(f"WARNING {name} [abc]: hello")


def test_errors_of_accept_are_a_line_a_second_without_a_traceback() -> None:
    stream = io.StringIO()
    handler = logs.handler("text", stream)
    log = logging.getLogger("asyncio")
    log.addHandler(handler)
    try:
        for _ in range(100):
            try:
                raise OSError(24, "Too many open files")
            except OSError:
                log.exception("socket.accept() out of system resource\nsocket: %s", "x")
        log.error("something else")
    finally:
        log.removeHandler(handler)
    lines = stream.getvalue().splitlines()
    assert len(lines) == 2, lines
    assert "too many files are open" in lines[0]
