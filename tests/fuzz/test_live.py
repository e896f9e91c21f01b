"""Whatever a client sends over the WebSocket: no crash, no job or slot left, and others are served.

A real server with toy weights. `FUZZ_LIVE_CASES` says how many clients to try; CI takes 100, the
same every time.
"""

import json
import logging
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect
from websockets.typing import Subprotocol

from app.api.realtime.valle import PROTOCOL
from app.api.services import Services
from app.engine.engine import SpeechEngine
from app.main import create_app
from app.settings import Settings
from lab.benchmarks.harness.loop_lag import MOST_S, watched
from tests.app.tools.live_client import live, url_of
from tests.app.tools.serving import served, until
from tests.fuzz.settings import cases_of, fuzzed
from tests.toy.make_toy import make

pytestmark = pytest.mark.slow

CI_CASES = 100
CASES = cases_of("FUZZ_LIVE_CASES", CI_CASES)
SLOTS = ("tts_slots", {"state": "used"})

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner),
    max_leaves=6,
)
sentences = st.sampled_from([
    "Hello. ",
    "One",
    "Two three. ",
    '"No. ',
    "[pause:1s] ",
    "[pause:99s] ",
    "[rate:2] ",
    "[rate:9] ",
    '<prosody rate="slow">',
    "</prosody> ",
    ".",
    " ",
    "",
    "é。",
])
sequences = st.integers(0, 5) | st.none() | st.just(-1)
known: st.SearchStrategy[tuple[str, dict[str, Any]]] = st.one_of(
    st.builds(
        lambda text, at: ("input_text.append", {"text": text, "sequence": at}), sentences, sequences
    ),
    st.builds(lambda at: ("input_text.flush", {"sequence": at}), sequences),
    st.builds(lambda at: ("input_text.end", {"sequence": at}), sequences),
    st.just(("response.cancel", {})),
    st.builds(
        lambda options: ("response.create", options),
        st.dictionaries(
            st.sampled_from([
                "seed",
                "top_p",
                "trace",
                "voice",
                "model",
                "input",
                "pause_s",
                "x",
                "speed",
                "best_of",
                "beam_width",
                "cfg_strength",
                "backtrack",
                "max_duration_s",
            ]),
            json_values,
            max_size=1,
        ),
    ),
)
"""A message of the protocol with fields that may be wrong; a sequence of None counts on."""

raws = st.text(max_size=30) | st.binary(max_size=30) | json_values.map(json.dumps)
scripts = st.lists(known | raws, max_size=12)


class Numbered:
    """Counts on where a script leaves the number of a message to us."""

    def __init__(self) -> None:
        self._next = 0

    def raw(self, step: Any) -> str | bytes:
        if not isinstance(step, tuple):
            raw: str | bytes = step
            return raw
        kind, fields = step
        if kind == "response.create":
            self._next = 0
        if "sequence" in fields and fields["sequence"] is None:
            fields = fields | {"sequence": self._next}
            self._next += 1
        return json.dumps({"type": kind} | fields)


def play(client: httpx.Client, script: list[Any], reads: int) -> None:
    """Send a script, read so many answers, and leave without a word."""
    numbered = Numbered()
    with (
        connect(url_of(client), subprotocols=[Subprotocol(PROTOCOL)], close_timeout=0.2) as session,
        suppress(ConnectionClosed),
    ):
        for step in script:
            session.send(numbered.raw(step))
        for _ in range(reads):
            answer = session.recv(timeout=0.05)
            assert isinstance(answer, bytes) or json.loads(answer)["type"]


def idle(engine: SpeechEngine) -> bool:
    """Whether no job is there and no slot is taken."""
    used = engine.metrics.registry.get_sample_value(*SLOTS)
    return not (engine.status.running or engine.status.queued or used)


def test_no_client_breaks_the_server(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    model = str(make(tmp_path / "toy"))
    app = create_app(Settings(model=model, device="cpu", max_text_chars=50, max_body_bytes=1024))
    services: Services = app.state.services
    engine = services.engine
    sessions = services.limits.live_sessions
    with watched() as watchdog, served(app) as client:
        watchdog.forget()  # the start, for which no client waits

        @given(scripts, st.integers(0, 12))
        @fuzzed(CASES, derandomize=CASES == CI_CASES)
        def fuzz(script: list[Any], reads: int) -> None:
            with suppress(TimeoutError):
                play(client, script, reads)
            until(lambda: not sessions.taken)
            until(lambda: idle(engine))

        with caplog.at_level(logging.ERROR):
            fuzz()
            errors = [one for one in caplog.records if one.levelno >= logging.ERROR]
            assert not errors, errors[0].getMessage()
        sys.stdout.write(f"\nmost of one callback of the event loop: {watchdog}\n")
        assert watchdog.most_s < MOST_S, watchdog.worst[0]
        with live(client) as session:
            assert session.say("Hello.")["finish_reason"] in {"stop", "length", "empty"}
        until(lambda: idle(engine))
