"""Every line of a batch is spoken and written once, whatever happens meanwhile."""

import hashlib
import json
from pathlib import Path

import pytest

from app.cli import main
from app.cluster.batch import BatchError, Line, OneProcess, Output, Spoken, read_lines, run_batch

CARD = "benchmarks.cluster.card:fast_engine"


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


def run(file: Path, out: Path) -> int:
    return main(["batch", str(file), str(out), "--engine", CARD])


def test_every_line_has_a_file_and_a_report(tmp_path, capsys) -> None:
    out = tmp_path / "out"
    assert run(batch_file(tmp_path), out) == 0
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


def test_what_was_done_is_not_spoken_again(tmp_path) -> None:
    file, out = batch_file(tmp_path), tmp_path / "out"
    assert run(file, out) == 0
    before = hashes(out)
    lines = read_lines(file)
    for line in lines[3:7]:
        (out / "reports" / f"{line.name}.json").unlink()
        next((out / "audio").glob(f"{line.name}.*")).unlink()
    spoken: list[str] = []

    class Counting(OneProcess):
        def run(self, missing):
            spoken.extend(line.custom_id for line in missing)
            return super().run(missing)

    assert run_batch(lines, Output(out), Counting(CARD)) == (12, 0)
    assert spoken == [f"line-{number}" for number in range(3, 7)]
    assert hashes(out) == before  # a seed follows from the id


def test_a_line_that_cannot_be_spoken_is_told_and_the_others_are(tmp_path, capsys) -> None:
    file, out = batch_file(tmp_path, 3), tmp_path / "out"
    wrong = {"custom_id": "wrong", "url": "/tts", "body": {"input": "Hi.", "no_such_knob": 1}}
    file.write_text(file.read_text() + json.dumps(wrong) + "\n")
    assert run(file, out) == 1
    assert json.loads(capsys.readouterr().out) == {"completed": 3, "failed": 1, "total": 4}
    (report,) = (json.loads(one) for one in (out / "errors.jsonl").read_text().splitlines())
    assert (report["custom_id"], report["response"]["status_code"]) == ("wrong", 422)
    assert report["error"]["param"] == "no_such_knob"


@pytest.mark.parametrize(
    ("second", "why"),
    [
        ("{", "line 2"),
        ('{"custom_id": "line-0", "body": {}}', "twice"),
        ('{"custom_id": "b", "url": "/metrics", "body": {}}', "line 2: url"),
        ('{"custom_id": "b"}', "line 2: body"),
    ],
)
def test_a_file_that_is_no_batch_is_refused_before_any_work(tmp_path, second, why) -> None:
    file = batch_file(tmp_path, 1)
    file.write_text(file.read_text() + second + "\n")
    with pytest.raises(BatchError, match=why):
        read_lines(file)
    assert run(file, tmp_path / "out") == 2


def test_an_id_is_no_path(tmp_path) -> None:
    line = Line(custom_id="../../etc/passwd \0", body={}, number=3)
    output = Output(tmp_path / "out")
    output.write(line, Spoken(200, {"content-type": "audio/wav"}, b"sound"))
    assert [path.name for path in (tmp_path / "out" / "audio").iterdir()] == [
        "000003-_etc_passwd_.wav"
    ]
    assert not line.request["stream"]


def test_a_seed_of_the_request_is_kept() -> None:
    assert Line(custom_id="a", body={"seed": 5}).request["seed"] == 5
    other = Line(custom_id="b", body={}).request["seed"]
    assert Line(custom_id="a", body={}).request["seed"] != other
    assert 0 <= other < 2**31
