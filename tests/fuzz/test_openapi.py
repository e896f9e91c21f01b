"""Whatever is sent to whichever operation of the OpenAPI document: an answer that it announces.

Real requests to a real server with toy weights: made to the document by schemathesis, then broken
in every way it knows. `FUZZ_HTTP_CASES` says how many; CI takes 300, the same every time.
"""

import io
import json
import sys
from collections import Counter
from collections.abc import Iterator
from typing import Any

import httpx
import numpy as np
import pytest
import schemathesis
import soundfile
from hypothesis import given
from hypothesis import strategies as st
from schemathesis import Case, GenerationMode
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_schema_conformance,
    status_code_conformance,
)

from app.main import create_app
from app.settings import Settings
from lab.benchmarks.harness.loop_lag import MOST_S, Watchdog, watched
from tests.app.tools.serving import served
from tests.fuzz.settings import cases_of, fuzzed
from tests.toy.make_toy import make

CI_CASES = 300
CASES = cases_of("FUZZ_HTTP_CASES", CI_CASES)
pytestmark = [pytest.mark.slow, pytest.mark.timeout(300 * -(-CASES // CI_CASES))]
SHARES = {"POST /v1/audio/speech": 12, "POST /tts": 8, "POST /v1/audio/voices": 6}
"""How many times as many cases an operation gets as one that is not named."""
CHECKS = [
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
    negative_data_rejection,  # nothing that is sent is ignored
]
SHORT_S = 0.5
NAMES = {"model", "voice", "language", "preset", "instructions", "pronunciations"}
"""Fields that take no random word."""


@schemathesis.serializer("audio/*")
def audio_bytes(_: schemathesis.SerializationContext, value: Any) -> bytes:
    """Send what was generated for a recording as it is: bytes, or else its text."""
    return value if isinstance(value, bytes) else str(value).encode()


@pytest.fixture(scope="module")
def watchdog() -> Iterator[Watchdog]:
    with watched() as watchdog:
        yield watchdog


@pytest.fixture(scope="module")
def server(watchdog: Watchdog, tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    folder = tmp_path_factory.mktemp("fuzz")
    options = Settings(
        model=str(make(folder / "toy")),
        voices=str(folder / "voices"),
        device="cpu",
        text_process=True,
        request_timeout_s=20,
        max_text_chars=200,
        keep=CASES + 10,  # so that what is asked about is still known
    )
    with served(create_app(options)) as client:
        watchdog.forget()  # the start, for which no client waits
        yield client


@pytest.fixture(scope="module")
def known(server: httpx.Client) -> list[str]:
    """Ids that exist: of speeches, whole and failed, a voice and the model."""
    spoken = [
        server.post("/tts", json={"input": "Hello.", "max_duration_s": SHORT_S, "trace": trace})
        for trace in (False, True)
    ]
    assert all(answer.status_code == 200 for answer in spoken)
    voice = {"name": "known", "consent": "true"}
    server.post("/v1/audio/voices", data=voice, files={"file": recording()}).raise_for_status()
    model = server.get("/v1/models").json()["data"][0]["id"]
    return [*(answer.headers["x-request-id"] for answer in spoken), "known", "toy", model]


def recording() -> bytes:
    """Two seconds that are taken for a voice."""
    times_s = np.arange(48_000) / 24_000
    sound = 0.2 * np.sin(2 * np.pi * 200 * times_s) * np.sin(2 * np.pi * 3 * times_s) ** 2
    file = io.BytesIO()
    soundfile.write(file, sound, 24_000, format="wav")
    return file.getvalue()


def shares(labels: list[str], cases: int) -> dict[str, int]:
    """Return how many cases each operation gets, at least one and together at least so many."""
    weights = {label: SHARES.get(label, 1) for label in labels}
    return {label: -(-cases * weight // sum(weights.values())) for label, weight in weights.items()}


def test_every_answer_is_one_that_the_document_announces(
    server: httpx.Client, known: list[str], watchdog: Watchdog
) -> None:
    schema = schemathesis.openapi.from_url(f"{str(server.base_url).rstrip('/')}/openapi.json")
    operations = {}
    for one in schema.get_all_operations():
        assert isinstance(one, Ok), one
        operations[one.ok().label] = one.ok()
    seen: Counter[tuple[str, int]] = Counter()
    for label, cases in shares(list(operations), CASES).items():
        modes = [operations[label].as_strategy(generation_mode=mode) for mode in GenerationMode]
        ids = st.none() | st.sampled_from(known)

        @given(modes[0] | modes[1], ids, st.none() | st.integers(0, 5))
        @fuzzed(cases, derandomize=CASES == CI_CASES)
        def fuzz(case: Case[Any], known_id: str | None, knobs: int | None) -> None:
            seen[case.operation.label, ask(case, known_id, knobs)] += 1

        fuzz()
    report(seen)
    sys.stdout.write(f"most of one callback of the event loop: {watchdog}\n")
    assert watchdog.most_s < MOST_S, watchdog.worst[0]
    health = server.get("/health").json()
    assert (health["running"], health["queued"]) == (0, 0)
    assert server.post("/tts", json={"input": "Hello."}).status_code == 200


def ask(case: Case[Any], known_id: str | None, knobs: int | None) -> int:
    """Send a case and return the status of an answer that is good.

    Args:
        case: As it was made.
        known_id: What the path names instead, if it names anything.
        knobs: How many fields of a valid speech are left, so that it can be spoken; None leaves it.
    """
    if known_id is not None and "id" in case.path_parameters:
        case.path_parameters["id"] = known_id
    checks = list(CHECKS)
    valid = case.meta is not None and case.meta.generation.mode.is_positive
    if valid and knobs is not None and isinstance(case.body, dict) and "input" in case.body:
        left = [one for one in case.body.items() if one[0] not in NAMES][:knobs]
        case.body = dict(left) | {"input": "Hello there. One.", "max_duration_s": SHORT_S}
    answer = case.call(timeout=60)
    if isinstance(case.body, dict) and None in case.body.values():
        # `null` is the default of every field; the document leaves that out of a hundred types.
        checks.remove(negative_data_rejection)
    case.validate_response(answer, checks=checks)
    status = int(answer.status_code)
    if status >= 400:
        assert_refused(status, answer)
    return status


def assert_refused(status: int, answer: Any) -> None:
    """See that an error is in the one shape, and that the server did not break."""
    assert status < 500 or status == 503, answer.text
    if status == 503:
        assert int(answer.headers["retry-after"][0]) >= 1
    error = json.loads(answer.content)["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["message"]
    assert error["type"] == ("server_error" if status >= 500 else "invalid_request_error")


def report(seen: Counter[tuple[str, int]]) -> None:
    """Tell how often each operation gave each status; `scripts/fuzz` shows it."""
    rows = [f"{label:<40} {status} {count:5}" for (label, status), count in sorted(seen.items())]
    sys.stdout.write("\n".join(["", f"{seen.total()} requests", *rows, ""]))
