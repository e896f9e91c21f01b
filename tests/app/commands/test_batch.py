"""Every line of a batch is spoken and written once, whatever happens meanwhile."""

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from app.cli import main
from app.commands.batch import BatchLine, Output, read_lines
from app.commands.errors import CommandError
from app.settings import Settings
from lab.benchmarks.cluster.card import fast_app
from tests.app.tools.serving import served


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with served(fast_app(Settings())) as client:
        yield str(client.base_url)


def batch_file(folder: Path, number: int = 12, **body) -> Path:
    path = folder / "batch.jsonl"
    fields = {"response_format": "pcm"} | body
    lines = [
        {"custom_id": f"line-{one}", "url": "/tts", "body": {"input": f"Line {one}."} | fields}
        for one in range(number)
    ]
    path.write_text("\n".join(map(json.dumps, lines)) + "\n")
    return path


def hashes(out: Path) -> dict[str, str]:
    return {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in (out / "audio").iterdir()
    }


def run(file: Path, out: Path, url: str) -> int:
    return main(["batch", str(file), str(out), "--url", url])


def test_every_line_has_a_file_and_a_report(tmp_path, capsys, url) -> None:
    out = tmp_path / "out"
    assert run(batch_file(tmp_path), out, url) == 0
    assert json.loads(capsys.readouterr().out) == {"completed": 12, "failed": 0, "total": 12}
    reports = [json.loads(line) for line in (out / "output.jsonl").read_text().splitlines()]
    assert [one["custom_id"] for one in reports] == [f"line-{number}" for number in range(12)]
    for report in reports:
        response = report["response"]
        assert response["status_code"] == 200
        content = (out / response["body"]["file"]).read_bytes()
        assert hashlib.sha256(content).hexdigest() == response["body"]["sha256"]
        assert len(content) > 1000
    assert json.loads((out / "progress.json").read_text()) == {"completed": 12, "total": 12}


def test_what_was_done_is_not_spoken_again(tmp_path, url) -> None:
    file, out = batch_file(tmp_path), tmp_path / "out"
    assert run(file, out, url) == 0
    before, lines = hashes(out), read_lines(file)
    reports = {line.name: out / "reports" / f"{line.name}.json" for line in lines}
    for line in lines[3:7]:
        reports[line.name].unlink()
        next((out / "audio").glob(f"{line.name}.*")).unlink()
    kept = {name: path.stat().st_mtime_ns for name, path in reports.items() if path.exists()}
    assert run(file, out, url) == 0
    assert {name: reports[name].stat().st_mtime_ns for name in kept} == kept
    assert hashes(out) == before  # a seed follows from the id


@pytest.mark.slow
def test_a_batch_in_this_process_is_the_same_speech(tmp_path, monkeypatch, toy) -> None:
    monkeypatch.setenv("TTS_MODEL", str(toy))
    monkeypatch.setenv("TTS_DEVICE", "cpu")
    file, out = batch_file(tmp_path, 3, max_duration_s=0.2), tmp_path / "out"
    assert main(["batch", str(file), str(out), "--at-once", "1"]) == 0
    before = hashes(out)
    assert len(before) == 3
    assert main(["batch", str(file), str(tmp_path / "again")]) == 0
    assert hashes(tmp_path / "again") == before


def test_a_line_that_cannot_be_spoken_is_told_and_the_others_are(tmp_path, capsys, url) -> None:
    file, out = batch_file(tmp_path, 3), tmp_path / "out"
    wrong = {"custom_id": "wrong", "url": "/tts", "body": {"input": "Hi.", "no_such_knob": 1}}
    file.write_text(file.read_text() + json.dumps(wrong) + "\n")
    assert run(file, out, url) == 1
    assert json.loads(capsys.readouterr().out) == {"completed": 3, "failed": 1, "total": 4}
    (report,) = (json.loads(one) for one in (out / "errors.jsonl").read_text().splitlines())
    assert (report["custom_id"], report["response"]["status_code"]) == ("wrong", 422)
    assert report["error"]["param"] == "no_such_knob"


@pytest.mark.parametrize(
    ("second", "why"),
    [
        ("{", "line 2: it is not JSON"),
        ('{"custom_id": "line-0", "body": {}}', "twice"),
        ('{"custom_id": "b", "url": "/metrics", "body": {}}', "line 2: url"),
        ('{"custom_id": "b"}', "line 2: body"),
    ],
)
def test_a_file_that_is_no_batch_is_refused_before_any_work(tmp_path, second, why) -> None:
    file = batch_file(tmp_path, 1)
    file.write_text(file.read_text() + second + "\n")
    with pytest.raises(CommandError, match=why):
        read_lines(file)
    assert main(["batch", str(file), str(tmp_path / "out")]) == 2


def test_an_id_is_no_path(tmp_path) -> None:
    line = BatchLine(custom_id="../../etc/passwd \0", body={}, number=3)
    output = Output(tmp_path / "out")
    output.write(
        line, httpx2.Response(200, headers={"content-type": "audio/wav"}, content=b"sound")
    )
    assert [path.name for path in (tmp_path / "out" / "audio").iterdir()] == [
        "000003-_etc_passwd_.wav"
    ]
    assert not line.request["stream"]


def test_a_seed_of_the_request_is_kept() -> None:
    assert BatchLine(custom_id="a", body={"seed": 5}).request["seed"] == 5
    other = BatchLine(custom_id="b", body={}).request["seed"]
    assert BatchLine(custom_id="a", body={}).request["seed"] != other
    assert 0 <= other < 2**31
