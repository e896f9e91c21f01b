"""Voices in an object store; a folder stands in for it (`test_s3` has a server)."""

import threading
from collections import Counter
from pathlib import Path

import pytest

from app.storage.voice_store import CardDamaged, NameTaken, StoreFull, VoiceStore, open_voice_store
from models.voices.recording import Recording, read_recording
from models.voices.voice import VoiceCard
from tests.speech_like import packed, speech_like

CARD = VoiceCard(title="Anna", language="en", transcript="Good morning.")


def recording(seed: int = 0) -> Recording:
    return read_recording(packed(speech_like(1.2, seed=seed)))


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"file://{tmp_path}/voices"


@pytest.fixture
def two(url) -> tuple[VoiceStore, VoiceStore]:
    """The stores of two processes."""
    return open_voice_store(url, 3), open_voice_store(url, 3)


def test_an_upload_is_seen_by_the_other_process_at_once(two) -> None:
    here, there = two
    added = here.add("anna", "me", CARD, recording())
    assert there.find("anna", "me") == added
    assert [one.name for one in there.of("me")] == ["anna"]
    assert (there.owners(), there.count(), there.has("anna", "me")) == (["me"], 1, True)
    opened = there.opened(added)
    assert opened is not None
    assert opened.recording == recording().flac()
    assert here.remove("anna", "me")
    assert there.find("anna", "me") is None
    assert not there.remove("anna", "me")


def test_owners_are_kept_apart(two) -> None:
    here, there = two
    here.add("anna", "me", CARD, recording())
    assert there.find("anna", "you") is None
    assert not there.remove("anna", "you")
    with pytest.raises(ValueError, match="owner"):
        there.find("anna", "../me")
    with pytest.raises(ValueError, match="name"):
        here.add("../anna", "me", CARD, recording())


def test_a_new_voice_of_the_same_name_is_heard_at_once(two) -> None:
    here, there = two
    for seed in range(2):
        here.add("anna", "me", CARD, recording(seed))
        found = there.find("anna", "me")
        assert found is not None
        opened = there.opened(found)
        assert opened is not None
        assert opened.recording == recording(seed).flac()
        here.remove("anna", "me")


def test_so_many_voices_and_no_more(two) -> None:
    here, there = two
    for name in ("a", "b", "c"):
        here.add(name, "me", CARD, recording())
    with pytest.raises(StoreFull):
        there.add("d", "me", CARD, recording())
    with pytest.raises(NameTaken):
        there.add("a", "me", CARD, recording())


def test_of_several_uploads_of_a_name_one_succeeds(url) -> None:
    outcomes: Counter[str] = Counter()
    ready = threading.Barrier(6)

    def add(seed: int) -> None:
        store, sound = open_voice_store(url, 9), recording(seed)
        ready.wait()
        try:
            store.add("anna", "me", CARD, sound)
        except NameTaken:
            outcomes["taken"] += 1
        else:
            outcomes["added"] += 1

    threads = [threading.Thread(target=add, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert outcomes == {"added": 1, "taken": 5}
    store = open_voice_store(url, 9)
    found = store.find("anna", "me")
    assert found is not None
    assert store.opened(found) is not None


def test_audio_of_another_hash_is_not_spoken(two, tmp_path, caplog) -> None:
    here, there = two
    added = here.add("anna", "me", CARD, recording())
    (tmp_path / "voices" / added.audio).write_bytes(recording(1).flac())
    assert there.opened(added) is None
    assert "SHA-256" in caplog.text


def test_a_damaged_card_is_told_and_can_be_deleted(two, tmp_path) -> None:
    here, there = two
    added = here.add("anna", "me", CARD, recording())
    (tmp_path / "voices" / added.audio.parent / "anna.json").write_bytes(b"{")
    with pytest.raises(CardDamaged):
        there.find("anna", "me")
    assert there.damaged("me") == ["anna"]
    assert there.remove("anna", "me")
    assert there.damaged("me") == []


def test_a_url_of_no_known_store_is_refused() -> None:
    for url in ("nothing://there", "s3://"):
        with pytest.raises(ValueError, match=f"^{url}: no kind of store that is known"):
            open_voice_store(url, 1)
