"""Whatever values knobs have, alone and together: a speech or a refusal, and speech afterwards.

The built-in model speaks. Values lie on the bounds of the OpenAPI document, next to them and far
from them. `FUZZ_KNOBS` says how many requests; CI takes 60, the same every time. With `-s` the test
prints how many were spoken and refused.
"""

import json
import math
import random
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, Final

import httpx
import numpy as np
import pytest

from app.main import create_app
from app.settings import Settings
from tests.app.tools.serving import served
from tests.fuzz.settings import cases_of, seed_of

pytestmark = [pytest.mark.slow, pytest.mark.weights]

CI_CASES: Final = 60
CASES: Final = cases_of("FUZZ_KNOBS", CI_CASES)
SEED: Final = seed_of(CASES, CI_CASES)
ANSWERED_WITHIN_S: Final = 25.0
SPOKEN: Final = {"input": "Hello there.", "seed": 1, "response_format": "pcm", "stream": False}
SHORT: Final = {"max_duration_s": 1.0}
FAR: Final = (
    5e-324,
    1e-40,
    1e308,
    -1e308,
    -0.0,
    -1,
    0,
    1,
    2**31,
    2**63,
    10**30,
    math.nan,
    math.inf,
)
WRONG: Final[tuple[object, ...]] = ("", "x", "1", True, None, [], [0], {}, [[1]])

Schema = Mapping[str, Any]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    options = Settings(device="cpu", voices=str(tmp_path_factory.mktemp("voices")))
    with served(create_app(options)) as client:
        client.timeout = httpx.Timeout(ANSWERED_WITHIN_S)
        yield client


@pytest.fixture(scope="module")
def knobs(server: httpx.Client) -> dict[str, Schema]:
    """The schemas of the fields of a speech, but for what is fixed here."""
    schema = server.get("/openapi.json").json()
    body = schema["paths"]["/tts"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    while "$ref" in body:
        body = schema["components"]["schemas"][body["$ref"].rsplit("/", 1)[1]]
    return {name: one for name, one in body["properties"].items() if name not in SPOKEN}


def bounds(schema: Schema) -> Iterator[float]:
    """Yield the bounds of a number, and what lies next to them."""
    for name in ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "default"):
        bound = schema.get(name)
        if isinstance(bound, int | float) and not isinstance(bound, bool):
            yield bound
            if schema.get("type") == "integer":
                yield from (bound - 1, bound + 1)
            else:
                yield from (math.nextafter(bound, -math.inf), math.nextafter(bound, math.inf))


def drawn(schema: Schema, chance: random.Random) -> object:
    """Return a value: one of three in ten is of any kind, the others are near what is allowed."""
    if chance.random() < 0.3:
        return chance.choice([*FAR, *WRONG])
    choices = schema.get("anyOf") or schema.get("oneOf") or [schema]
    one = chance.choice(choices)
    if "enum" in one:
        return chance.choice(one["enum"])
    near = [*bounds(one)]
    if near and chance.random() < 0.6:
        return chance.choice(near)
    match one.get("type"):
        case "boolean":
            return chance.random() < 0.5
        case "integer":
            return chance.randrange(one.get("minimum", 0), min(one.get("maximum", 64), 64) + 1)
        case "number":
            least = one.get("minimum", one.get("exclusiveMinimum", 0.0))
            most = one.get("maximum", one.get("exclusiveMaximum", 4.0))
            return chance.uniform(least, min(most, least + 4.0))
        case "array":
            return [drawn(one.get("items", {}), chance) for _ in range(chance.randrange(4))]
        case _:
            return chance.choice([*FAR, *WRONG])


def has_numbers(value: object) -> bool:
    """Return whether all numbers of a report are finite."""
    if isinstance(value, Mapping):
        return all(map(has_numbers, value.values()))
    if isinstance(value, list):
        return all(map(has_numbers, value))
    return not isinstance(value, float) or math.isfinite(value)


def test_any_values_of_knobs_give_speech_or_a_refusal_and_speech_afterwards(
    server: httpx.Client, knobs: dict[str, Schema]
) -> None:
    chance = random.Random(SEED)
    seen = Counter[int]()
    for _ in range(CASES):
        count = chance.choice((1, 1, 1, chance.randint(2, 8), chance.randint(15, 40)))
        body = SHORT | SPOKEN
        body |= {name: drawn(knobs[name], chance) for name in chance.sample([*knobs], count)}
        told = json.dumps(body)
        answer = server.post("/tts", content=told, headers={"content-type": "application/json"})
        seen[answer.status_code] += 1
        assert answer.status_code in {200, 400, 404, 422}, (told, answer.text)
        if answer.status_code != 200:
            assert answer.json()["error"]["message"], told
            continue
        if answer.headers["content-type"].startswith("audio/pcm") and answer.content:
            sound = np.frombuffer(answer.content, np.int16)
            assert len(sound) < 2400 or np.ptp(sound) > 0, told
        report = server.get(f"/v1/audio/speech/{answer.headers['x-request-id']}")
        assert report.status_code == 200, told
        assert has_numbers(report.json()), told
    assert min(seen[200], seen[422]) > CASES / 5
    after = server.post("/tts", json=SPOKEN)
    assert after.status_code == 200
    assert server.get("/health").json()["running"] == 0
    rows = [f"{status}: {count}" for status, count in sorted(seen.items())]
    sys.stdout.write("\n".join(["", f"seed {SEED}", *rows, ""]))
