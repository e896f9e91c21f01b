"""Follow one request in a debugger through all threads.

    .venv/bin/python -m scripts.follow

A service with the model of TTS_MODEL, its sound generated in this process, answers one ``POST
/tts``. At the first call of each function in `STOPS` its thread stops in pdb; `c` continues to the
next. docs/tour.md says what to look at.
"""

import json
import pdb
import sys
import threading
from collections.abc import Callable
from importlib import import_module
from time import sleep
from types import CodeType, FrameType
from typing import Any, NamedTuple
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import uvicorn

from app.main import create_app
from app.server import server_config
from app.settings import Settings

STOPS = (
    ("app/api/middleware/gate.py", "GateMiddleware.__call__"),
    ("app/api/speech/route.py", "create_tts"),
    ("app/engine/engine.py", "SpeechEngine.submit"),
    ("app/engine/backend/planner.py", "Planner.plan"),
    ("app/engine/ar/stage.py", "ArStage.begin"),
    ("samplers/ar/sampler.py", "ArSampler.advance"),
    ("samplers/ops/filters.py", "top_p_floor"),
    ("app/engine/ar/job.py", "ArJob.emit_finished_blocks"),
    ("app/engine/nar/utterance_decoder.py", "UtteranceDecoder._sound"),
    ("app/engine/serving/running.py", "JobHandle.send"),
    ("app/engine/join/joiner.py", "Joiner.finish"),
    ("app/api/speech/headers.py", "result_headers"),
)
"""File and qualified name of each function, in the order in which a request reaches them."""

_POLL_S = 0.1

BODY = {"input": "Hello there.", "seed": 7, "top_p": 0.5, "trace": True}


class Stop(NamedTuple):
    """A function to stop at."""

    number: int
    file: str
    name: str


class Debugger(pdb.Pdb):
    """pdb in the thread that reached a stop; when it continues, the other stops stay set."""

    def __init__(self, resume: Callable[[], None]) -> None:
        super().__init__(nosigint=True)
        self._resume = resume

    def set_continue(self) -> None:
        """Run on to the next stop."""
        super().set_continue()
        self._resume()


class Follower:
    """Traces all threads, and opens the debugger at the first call of each stop."""

    def __init__(self) -> None:
        self._left = {
            _code(file, name): Stop(number, file, name)
            for number, (file, name) in enumerate(STOPS, 1)
        }
        self._one = threading.Lock()
        self.armed = False

    def install(self) -> None:
        """Trace this thread and those that start from now on."""
        threading.settrace(self._trace)
        self._resume()

    def _resume(self) -> None:
        sys.settrace(self._trace)

    def _trace(self, frame: FrameType, event: str, _: Any) -> None:
        if not self.armed or event != "call" or frame.f_code not in self._left:
            return
        with self._one:
            stop = self._left.pop(frame.f_code, None)
            if stop is None:
                return
            thread = threading.current_thread().name
            print(f"stop {stop.number} of {len(STOPS)}: {stop.file} {stop.name}, thread {thread}")
            Debugger(self._resume).set_trace(frame)


def _code(file: str, name: str) -> CodeType:
    """Return the code of a function, below its decorators."""
    found: Any = import_module(file.removesuffix(".py").replace("/", "."))
    for part in name.split("."):
        found = getattr(found, part)
    while hasattr(found, "__wrapped__"):
        found = found.__wrapped__
    code: CodeType = found.__code__
    return code


def _speak(settings: Settings, follower: Follower) -> None:
    """Serve, send the request when the model is loaded, and print what came back."""
    server = uvicorn.Server(server_config(create_app(settings), settings))
    serving = threading.Thread(target=server.run, name="event-loop")
    serving.start()
    try:
        while not server.started:
            if not serving.is_alive():
                sys.exit("the server did not start")
            sleep(_POLL_S)
        address = f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
        print("loading the model", flush=True)
        while not _is_ready(address):
            sleep(_POLL_S)
        follower.armed = True
        body = json.dumps(BODY).encode()
        request = Request(f"{address}/tts", body, {"content-type": "application/json"})
        with urlopen(request) as answer:
            print(f"{answer.status}: {len(answer.read())} bytes, {answer.headers['content-type']}")
    finally:
        follower.armed = False
        server.should_exit = True
        serving.join()


def _is_ready(address: str) -> bool:
    try:
        with urlopen(f"{address}/ready"):
            return True
    except HTTPError:
        return False


if __name__ == "__main__":
    tracer = Follower()
    tracer.install()
    # No limit on the time that somebody looks around.
    here = {
        "port": 0,
        "voice_process": False,
        "text_process": False,
        "request_timeout_s": 1e6,
        "log_level": "warning",
    }
    _speak(Settings().model_copy(update=here), tracer)
