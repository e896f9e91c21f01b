"""The trace of a speech as rows: those of the report, in three forms."""

import csv
import importlib.util
import io
import json
from typing import Any

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


def test_lines_of_json_are_the_tokens_of_the_report(toy_server, report) -> None:
    answer = toy_server.get(f"/v1/audio/speech/{report['id']}?format=jsonl")
    assert answer.headers["content-type"] == "application/x-ndjson"
    assert [json.loads(line) for line in answer.text.splitlines()] == rows_of(report)


def test_the_rows_of_a_table_are_the_tokens_of_the_report(toy_server, report) -> None:
    answer = toy_server.get(f"/v1/audio/speech/{report['id']}?format=csv")
    assert answer.headers["content-type"].startswith("text/csv")
    rows = list(csv.DictReader(io.StringIO(answer.text)))
    expected = rows_of(report)
    assert len(rows) == len(expected) > 2
    for row, told in zip(rows, expected, strict=True):
        assert row == {name: "" if value is None else str(value) for name, value in told.items()}


def test_a_parquet_file_has_the_tokens_of_the_report(toy_server, report) -> None:
    answer = toy_server.get(f"/v1/audio/speech/{report['id']}?format=parquet")
    assert answer.headers["content-type"] == "application/vnd.apache.parquet"
    table = pyarrow.parquet.read_table(io.BytesIO(answer.content))
    assert table.to_pylist() == rows_of(report)


def test_parquet_without_its_library_is_refused_with_the_extra_that_has_it(
    toy_server, report, monkeypatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    answer = toy_server.get(f"/v1/audio/speech/{report['id']}?format=parquet")
    assert refusal(answer) == (422, "format")
    assert "scripts/install parquet" in answer.json()["error"]["message"]


def test_the_likeliest_codes_are_told_where_asked_for(toy_server, report) -> None:
    body = {"input": "Hi. You.", "seed": 1, "top_logprobs": 3, "max_duration_s": 0.6}
    told, answer = asked(toy_server, body)
    path = path_of(answer)
    for before, token in zip(rows_of(report), rows_of(told), strict=True):
        assert [len(token.pop(name)) for name in ("top_logprobs", "top_scores")] == [3, 3]
        assert token == before
    table = csv.DictReader(io.StringIO(toy_server.get(f"{path}?format=csv").text))
    lines = toy_server.get(f"{path}?format=jsonl").text.splitlines()
    expected = [json.loads(line)["top_scores"] for line in lines]
    assert [json.loads(row["top_scores"]) for row in table] == expected
    file = pyarrow.parquet.read_table(io.BytesIO(toy_server.get(f"{path}?format=parquet").content))
    assert [json.loads(cell) for cell in file["top_scores"].to_pylist()] == expected


def test_a_speech_without_a_trace_has_no_rows_and_says_how_to_get_them(toy_server) -> None:
    answer = toy_server.post("/tts", json={"input": "Hi.", "max_duration_s": 0.2})
    rows = toy_server.get(path_of(answer, "?format=csv"))
    assert refusal(rows) == (422, "format")
    assert "trace" in rows.json()["error"]["message"]
