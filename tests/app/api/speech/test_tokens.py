"""The trace of a speech as rows: those of the report, in three forms."""

import csv
import importlib.util
import io
import json
from collections.abc import Callable
from typing import Any

import httpx
import pyarrow.parquet
import pytest

from tests.app.tools.answers import asked, path_of, refusal


@pytest.fixture(scope="module")
def report(toy_server: Any) -> dict[str, Any]:
    body = {"input": "Hi. You.", "seed": 1, "trace": True, "max_duration_s": 0.6}
    return asked(toy_server, body)[0]


def rows_of(report: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {"utterance": number, **token}
        for number, one in enumerate(report["utterances"])
        for token in one["tokens"]
    ]


FORMS: dict[str, tuple[str, Callable[[bytes], list[dict[str, Any]]]]] = {
    "jsonl": ("application/x-ndjson", lambda file: [*map(json.loads, file.splitlines())]),
    "csv": ("text/csv", lambda file: [*csv.DictReader(io.StringIO(file.decode()))]),
    "parquet": (
        "application/vnd.apache.parquet",
        lambda file: pyarrow.parquet.read_table(io.BytesIO(file)).to_pylist(),
    ),
}


def told_in(client: httpx.Client, report: dict[str, Any], form: str) -> list[dict[str, Any]]:
    """Return the rows of a report in a form."""
    answer = client.get(f"/v1/audio/speech/{report['id']}?format={form}")
    media, read = FORMS[form]
    assert answer.headers["content-type"].startswith(media)
    return read(answer.content)


def as_text(row: dict[str, Any]) -> dict[str, str]:
    return {name: "" if value is None else str(value) for name, value in row.items()}


@pytest.mark.parametrize("form", FORMS)
def test_the_rows_are_the_tokens_of_the_report(toy_server, report, form) -> None:
    expected = rows_of(report)
    assert len(expected) > 2
    found = told_in(toy_server, report, form)
    assert found == ([*map(as_text, expected)] if form == "csv" else expected)


def test_parquet_without_its_library_is_refused_with_the_extra_that_has_it(
    toy_server, report, monkeypatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    answer = toy_server.get(f"/v1/audio/speech/{report['id']}?format=parquet")
    assert refusal(answer) == (422, "format")
    assert "scripts/install parquet" in answer.json()["error"]["message"]


def test_the_likeliest_codes_are_told_where_asked_for(toy_server, report) -> None:
    body = {"input": "Hi. You.", "seed": 1, "top_logprobs": 3, "max_duration_s": 0.6}
    told, _ = asked(toy_server, body)
    for before, token in zip(rows_of(report), rows_of(told), strict=True):
        assert [len(token.pop(name)) for name in ("top_logprobs", "top_scores")] == [3, 3]
        assert token == before
    expected = [row["top_scores"] for row in told_in(toy_server, told, "jsonl")]
    for form in ("csv", "parquet"):
        cells = [json.loads(row["top_scores"]) for row in told_in(toy_server, told, form)]
        assert cells == expected


def test_a_speech_without_a_trace_has_no_rows_and_says_how_to_get_them(toy_server) -> None:
    answer = toy_server.post("/tts", json={"input": "Hi.", "max_duration_s": 0.2})
    rows = toy_server.get(path_of(answer, "?format=csv"))
    assert refusal(rows) == (422, "format")
    assert "trace" in rows.json()["error"]["message"]
