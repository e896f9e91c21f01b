import pytest
from pydantic import ValidationError

from app.settings import BUILTIN_MODEL, Settings, unknown_variables


def test_the_defaults_speak_with_the_built_in_voice_to_this_machine_alone():
    settings = Settings()
    assert settings.host == "127.0.0.1"
    assert settings.port == 8000
    assert settings.model == str(BUILTIN_MODEL)
    assert BUILTIN_MODEL.name == "weights"


def test_variables_are_read(monkeypatch):
    monkeypatch.setenv("TTS_PORT", "81")
    monkeypatch.setenv("TTS_DEVICE", "cpu")
    assert (Settings().port, Settings().device) == (81, "cpu")


@pytest.mark.parametrize("name", ["TTS_DEVCE", "tts_devce", "TTS_", "TTS_DEVICE_X"])
def test_an_unknown_variable_is_refused_by_name(monkeypatch, name):
    monkeypatch.setenv(name, "cpu")
    with pytest.raises(ValidationError, match=f"{name} is not a setting"):
        Settings()


def test_a_misspelt_variable_is_answered_with_the_likeliest_one(monkeypatch):
    monkeypatch.setenv("TTS_DEVCE", "cpu")
    with pytest.raises(ValidationError, match=r"did you mean TTS_DEVICE\?"):
        Settings()


def test_the_variable_of_the_tests_is_allowed(monkeypatch):
    monkeypatch.setenv("TTS_GOLDEN", "/tmp")
    Settings()


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("port", 65536),
        ("threads", 0),
        ("max_queue", -1),
        ("request_timeout_s", 0),
        ("request_timeout_s", float("inf")),
        ("device", "tpu"),
        ("model", ""),
        ("colour", "red"),
    ],
)
def test_a_value_out_of_range_is_refused(field, value):
    with pytest.raises(ValidationError, match=field):
        Settings(**{field: value})


@pytest.mark.parametrize(
    ("host", "local"),
    [
        ("127.0.0.1", True),
        ("127.8.0.1", True),
        ("::1", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("10.0.0.7", False),
        ("gpuhost", False),
        ("::", False),
    ],
)
def test_texts_of_other_machines_are_read_in_a_process_of_their_own(host, local):
    assert Settings(host=host, text_process=True).is_local is local
    if local:
        assert not Settings(host=host, text_process=False).text_process
        return
    with pytest.raises(ValueError, match="TTS_TEXT_PROCESS"):
        Settings(host=host, text_process=False)


def test_settings_do_not_change():
    with pytest.raises(ValidationError):
        setattr(Settings(), "port", 1)  # noqa: B010


PATHS = ["model", "cache", "voices", "presets", "pronunciations", "api_keys_file", "port_file"]
LONG = [300 * "a", 3000 * "a/" + "b", "~nobody-of-this-name/a"]


@pytest.mark.parametrize("field", PATHS)
@pytest.mark.parametrize("value", LONG, ids=["name", "path", "home"])
def test_a_path_that_no_file_can_have_is_refused_in_a_line(field, value):
    with pytest.raises(ValidationError) as refused:
        Settings.model_validate({field: value})
    (error,) = refused.value.errors()
    assert error["loc"] == (field,)
    assert len(error["msg"]) < 200


@pytest.mark.parametrize("host", [64 * "a", "a..b", ".a"])
def test_a_name_that_no_host_can_have_is_refused(host):
    with pytest.raises(ValidationError, match="is no host name"):
        Settings(host=host)


@pytest.mark.parametrize("name", ["TTS_LOUDNESS", "TTS_X", "TTS_KEY"])
def test_a_variable_that_is_like_none_is_answered_without_a_guess(name):
    assert unknown_variables([name]) == [f"{name} is not a setting"]
