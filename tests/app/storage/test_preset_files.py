"""Presets that an operator adds: what is taken, what is refused at start, what a request gets."""

import json
from pathlib import Path
from typing import Any

import pytest

from app.main import create_app
from app.settings import Settings
from app.storage.preset_files import PresetError, read_presets
from samplers.knobs.params import SamplingParams
from samplers.knobs.presets import PRESETS
from tests.app.tools.serving import served

CALM: dict[str, Any] = {"temperature": 0.6, "min_p": 0.05}


def write(path: Path, presets: object, **more: object) -> Path:
    path.write_text(json.dumps({"presets": presets, **more}))
    return path


def test_without_a_source_there_are_those_built_in() -> None:
    assert read_presets(None) == PRESETS


def test_a_file_adds_names_and_changes_none(tmp_path: Path) -> None:
    file = write(tmp_path / "a.json", {"calm": CALM}, about={"by": "hand"})
    presets = read_presets(file)
    assert {name: presets[name] for name in PRESETS} == PRESETS
    assert presets["calm"] == CALM
    assert presets.keys() == {*PRESETS, "calm"}


def test_a_folder_adds_the_presets_of_all_its_json_files(tmp_path: Path) -> None:
    write(tmp_path / "b.json", {"two": {"top_k": 2}})
    write(tmp_path / "a.json", {"one": {"top_k": 1}})
    (tmp_path / "notes.txt").write_text("not JSON")
    assert list(read_presets(str(tmp_path)))[-2:] == ["one", "two"]


def test_values_have_the_types_of_the_declaration(tmp_path: Path) -> None:
    file = write(tmp_path / "a.json", {"calm": {"ban_tokens": [1, 2], "logit_bias": {"3": 1.0}}})
    assert read_presets(file)["calm"] == {"ban_tokens": (1, 2), "logit_bias": {3: 1.0}}


@pytest.mark.parametrize("name", [*PRESETS, "auto"])
def test_a_name_that_is_taken_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(PresetError, match=f"there is a preset '{name}' already"):
        read_presets(write(tmp_path / "a.json", {name: CALM}))


def test_a_name_in_two_files_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "a.json", {"calm": CALM})
    write(tmp_path / "b.json", {"calm": CALM})
    with pytest.raises(PresetError, match=r"b\.json: there is a preset 'calm' already"):
        read_presets(tmp_path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "Expecting value"),
        ("[]", "Input should be"),
        ("{}", "presets: Field required"),
        ("[" * 100_000, "recursion"),
        ('{"presets": {}}', "presets: Dictionary should have at least 1 item"),
        ('{"presets": {"a": {}}, "extra": 1}', "extra: Extra inputs are not permitted"),
        ('{"presets": {"Loud!": {}}}', "presets.Loud!"),
        ('{"presets": {"a": {}, "a": {}}}', "key 'a' occurs twice"),
        ('{"presets": {"a": {"top_k": 1, "top_k": 2}}}', "key 'top_k' occurs twice"),
        ('{"presets": {"a": {"top_q": 1}}}', "a.top_q: Extra inputs"),
        ('{"presets": {"a": {"top_p": 2}}}', "a.top_p: Input should be less"),
        ('{"presets": {"a": {"top_p": "0.5"}}}', "a.top_p: Input should be a valid number"),
        ('{"presets": {"a": {"top_p": NaN}}}', "a.top_p: Input should be a finite number"),
        ('{"presets": {"a": {"preset": "stable"}}}', "a.preset: belongs to a request"),
        ('{"presets": {"a": {"seed": 1}}}', "a.seed: belongs to a request"),
        ('{"presets": {"a": {"mirostat_mode": 2, "top_k": 5}}}', "mirostat_mode and top_k"),
    ],
)
def test_what_is_no_preset_is_refused_with_file_and_knob(
    tmp_path: Path, text: str, message: str
) -> None:
    file = tmp_path / "a.json"
    file.write_text(text)
    with pytest.raises(PresetError) as refusal:
        read_presets(file)
    assert str(refusal.value).startswith(f"presets: {file}: ")
    assert message in str(refusal.value)


def test_what_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PresetError, match="No such file"):
        read_presets(tmp_path / "missing.json")
    with pytest.raises(PresetError, match=r"has no \*\.json"):
        read_presets(tmp_path)
    (tmp_path / "a.json").write_bytes(b"\xff")
    with pytest.raises(PresetError, match="utf-8"):
        read_presets(tmp_path)


def test_an_application_with_a_wrong_file_does_not_start(tmp_path: Path) -> None:
    with pytest.raises(PresetError):
        create_app(Settings(presets=str(tmp_path / "missing.json")))


def test_a_request_may_name_it_and_is_told_what_there_is(toy: Path, tmp_path: Path) -> None:
    file = write(tmp_path / "a.json", {"calm": CALM})
    settings = Settings(model=str(toy), device="cpu", presets=str(file))
    with served(create_app(settings)) as client:
        body = {"input": "Hello.", "max_duration_s": 0.2, "preset": "calm", "min_p": 0.1}
        answer = client.post("/tts", json=body)
        assert (answer.status_code, answer.headers["x-preset"]) == (200, "calm")
        report = client.get(f"/v1/audio/speech/{answer.headers['x-request-id']}").json()
        params = SamplingParams.model_validate(report["request"]["params"])
        assert (params.temperature, params.min_p) == (0.6, 0.1)
        refused = client.post("/tts", json={**body, "preset": "loud"})
        assert refused.status_code == 422
        error = refused.json()["error"]
        assert error["param"] == "preset"
        assert error["message"].endswith(", ".join(["known: auto", *PRESETS, "calm"]))
