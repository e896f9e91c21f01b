"""Who an owner can speak as, and what may be uploaded; over HTTP: `tests/app/api/test_voices`."""

from pathlib import Path

import pytest

from app.engine.errors import (
    Unavailable,
    UnknownVoice,
    VoiceLimit,
)
from app.engine.voices import OPENAI_VOICES, Voices
from app.storage.voice_store import EVERYBODY, VoiceStore, open_voice_store
from models.voices.recording import read_recording
from models.voices.voice import BuiltinVoices, VoiceCard
from tests.speech_like import packed, speech_like

CARD = VoiceCard()
RECORDING = read_recording(packed(speech_like(1.2)))


@pytest.fixture
def builtin(tmp_path: Path) -> BuiltinVoices:
    folder = tmp_path / "model" / "voices"
    folder.mkdir(parents=True)
    for name in ("heart", "adam"):
        (folder / f"{name}.flac").write_bytes(packed(speech_like(), format="FLAC"))
    return BuiltinVoices(folder)


@pytest.fixture
def store(tmp_path: Path) -> VoiceStore:
    return open_voice_store(str(tmp_path / "voices"), 2)


@pytest.fixture
def voices(builtin: BuiltinVoices, store: VoiceStore) -> Voices:
    return Voices(builtin, store, prompt_s=3.0)


def names(voices: Voices, owner: str) -> list[str]:
    return [voice.name for voice in voices.of(owner)]


def test_a_model_that_comes_with_the_same_name_does_not_change_who_speaks(voices, tmp_path) -> None:
    voices.add("anna", CARD, RECORDING, "me")
    (tmp_path / "model" / "voices" / "anna.flac").write_bytes(packed(speech_like(), format="FLAC"))
    builtin = BuiltinVoices(tmp_path / "model" / "voices")
    later = Voices(builtin, open_voice_store(str(tmp_path / "voices"), 2), prompt_s=3.0)
    assert later.find("anna", "me").owner == "me"
    assert later.find("anna", "you").owner is None
    assert names(later, "me") == ["adam", "anna", "heart"]


def test_where_none_may_be_kept_none_is_taken(builtin) -> None:
    for closed in (
        Voices(builtin, prompt_s=3.0),
        Voices(builtin, open_voice_store(str(Path("/nonexistent")), 0), prompt_s=3.0),
    ):
        with pytest.raises(VoiceLimit, match="takes no uploads"):
            closed.add("c", CARD, RECORDING, "me")


def test_a_folder_that_cannot_be_written_is_unavailable_and_not_told(builtin, tmp_path) -> None:
    (tmp_path / "voices").write_text("a file, no folder")
    voices = Voices(builtin, open_voice_store(str(tmp_path / "voices"), 2), prompt_s=3.0)
    with pytest.raises(Unavailable, match="the folder of voices: ") as refusal:
        voices.add("anna", CARD, RECORDING, "me")
    assert str(tmp_path) not in refusal.value.message


def test_what_a_stranger_calls_a_voice_is_told_harmlessly(voices) -> None:
    with pytest.raises(UnknownVoice) as refusal:
        voices.find("x\r\n\x1b[31m" + "y" * 500, "me")
    assert refusal.value.message.isprintable()
    assert len(refusal.value.message) < 200


@pytest.mark.parametrize("count", [1, 3, 8])
def test_openai_s_names_are_shared_out_among_the_built_in_voices(tmp_path: Path, count: int):
    names = [f"voice-{number}" for number in range(count)]
    for name in reversed(names):
        (tmp_path / f"{name}.flac").touch()
    voices = Voices(BuiltinVoices(tmp_path))
    assert list(voices.aliases) == list(OPENAI_VOICES)
    for number, (alias, voice) in enumerate(voices.aliases.items()):
        assert voice.name == names[number % count]
        assert voices.find(alias, EVERYBODY) == voices.speaker(alias, EVERYBODY) == voice


def test_a_built_in_voice_of_such_a_name_keeps_it(tmp_path: Path):
    for name in ("heart", "nova"):
        (tmp_path / f"{name}.flac").touch()
    voices = Voices(BuiltinVoices(tmp_path))
    assert voices.find("nova", EVERYBODY).name == "nova"
    assert set(voices.aliases) == set(OPENAI_VOICES) - {"nova"}


def test_a_voice_is_likely_as_loud_as_was_measured_and_an_upload_as_the_models_own(
    tmp_path: Path, store: VoiceStore
) -> None:
    for name, card in (
        ("ann", '{"speech_lufs": -24}'),
        ("ben", '{"speech_lufs": -28}'),
        ("cy", "{}"),
    ):
        (tmp_path / f"{name}.flac").write_bytes(packed(speech_like(), format="FLAC"))
        (tmp_path / f"{name}.json").write_text(card)
    voices = Voices(BuiltinVoices(tmp_path), store, prompt_s=3.0)
    voices.add("dora", CARD, RECORDING, "me")
    likely = [voices.likely_lufs(voices.find(name, "me")) for name in ("ann", "ben", "cy", "dora")]
    assert likely == [-24, -28, -26, -26]


def test_where_nobody_has_measured_nothing_is_likely(voices) -> None:
    assert voices.likely_lufs(voices.default) is None
