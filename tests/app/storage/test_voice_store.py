"""What is kept stays, is apart, and is whole or not there: in a folder, and in an object store.

A folder stands in for the object store; `test_s3` has a server.
"""

import json
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from app.storage.files import FolderFiles
from app.storage.voice_store import (
    EVERYBODY,
    FilesDamaged,
    NameTaken,
    StoreFull,
    VoiceStore,
    open_voice_store,
)
from models.voices.recording import Recording, read_recording
from models.voices.voice import Voice, VoiceCard
from tests.fixtures import full_disk
from tests.speech_like import packed, speech_like

CARD = VoiceCard(title="Anna", language="en", transcript="Good morning.")
BAD_NAMES = [
    "",
    ".",
    "..",
    "../anna",
    "/etc/passwd",
    "anna/ben",
    "anna\\ben",
    "anna.json",
    "anna\0",
    "anna\n",
    "anna\r\nX-Evil: 1",
    "Anna",
    "ä",
    "-anna",
    "*",
    "a" * 65,
]


def recording(seed: int = 0) -> Recording:
    return read_recording(packed(speech_like(1.2, seed=seed)))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "data" / "voices"


@pytest.fixture(params=["{}", "file://{}"], ids=["folder", "objects"])
def place(request: pytest.FixtureRequest, folder: Path) -> str:
    """What the setting names."""
    named: str = request.param.format(folder)
    return named


@pytest.fixture
def store(place: str) -> VoiceStore:
    return open_voice_store(place, 3)


@pytest.fixture
def other(place: str) -> VoiceStore:
    """The same, of another process."""
    return open_voice_store(place, 3)


@pytest.fixture
def on_disk(folder: Path) -> VoiceStore:
    return open_voice_store(str(folder), 3)


def sound_of(store: VoiceStore, voice: Voice) -> object:
    """Return the audio of a voice that is there."""
    found = store.opened(voice)
    assert found is not None
    return found.recording


def files(folder: Path) -> list[str]:
    """Return what lies in a folder, but for the locks."""
    found = (path for path in folder.rglob("*") if path.is_file() and path.name != ".lock")
    return sorted(str(path.relative_to(folder)) for path in found)


def test_a_voice_is_there_for_another_process_with_all_that_was_said_of_it(store, other) -> None:
    added = store.add("anna", "me", CARD, recording())
    found = other.find("anna", "me")
    assert found == added
    assert found is not None
    assert (found.title, found.transcript, found.owner) == ("Anna", "Good morning.", "me")
    assert found.audio_s == pytest.approx(1.2, abs=0.02)
    assert sound_of(other, found) == recording().flac()
    assert [one.name for one in other.of("me")] == ["anna"]
    assert (other.owners(), other.count(), other.has("anna", "me")) == (["me"], 1, True)
    assert store.remove("anna", "me")
    assert other.find("anna", "me") is None
    assert not other.remove("anna", "me")


def test_nobody_else_on_the_machine_reads_the_folder(folder, on_disk) -> None:
    on_disk.add("anna", "me", CARD, recording())
    assert (folder / "owner-me").stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("name", BAD_NAMES)
def test_a_name_that_is_not_plain_reaches_no_file(folder, store, name) -> None:
    store.add("anna", EVERYBODY, CARD, recording())
    before = files(folder.parent)
    with pytest.raises(ValueError, match="lower-case letters"):
        store.add(name, EVERYBODY, CARD, recording())
    assert store.find(name, EVERYBODY) is None
    assert not store.remove(name, EVERYBODY)
    assert files(folder.parent) == before


@pytest.mark.parametrize("owner", ["../me", "me/you", ".", "a\0", "me\n", "x" * 65])
def test_an_owner_that_is_not_plain_reaches_no_file(folder, store, owner) -> None:
    for ask in (
        lambda: store.add("anna", owner, CARD, recording()),
        lambda: store.of(owner),
        lambda: store.find("anna", owner),
        lambda: store.remove("anna", owner),
    ):
        with pytest.raises(ValueError, match="an owner"):
            ask()
    assert files(folder) == []


def test_owners_are_apart(store) -> None:
    mine = store.add("anna", "me", CARD, recording(1))
    yours = store.add("anna", "you", CARD, recording(2))
    everybodys = store.add("anna", EVERYBODY, CARD, recording(3))
    assert len({mine.digest, yours.digest, everybodys.digest}) == 3
    assert store.find("anna", "others") is None
    assert store.remove("anna", "you")
    assert store.of("you") == []
    assert store.of("me") == [mine]
    assert store.of(EVERYBODY) == [everybodys]
    assert store.owners() == [EVERYBODY, "me", "you"]


def at_once(place: str, names: Sequence[str]) -> Counter[str]:
    """Return what comes of uploads at once, by the name of the error."""
    outcomes: Counter[str] = Counter()
    start = threading.Barrier(len(names))

    def upload(seed: int, name: str) -> None:
        # Each has a store of its own, as processes have.
        own, sound = open_voice_store(place, 3), recording(seed)
        start.wait()
        try:
            own.add(name, "me", CARD, sound)
            outcomes["kept"] += 1
        except (NameTaken, StoreFull) as error:
            outcomes[type(error).__name__] += 1

    with ThreadPoolExecutor(len(names)) as threads:
        list(threads.map(upload, range(len(names)), names))
    return outcomes


def test_of_uploads_at_once_under_one_name_one_wins_whole(folder, place) -> None:
    assert at_once(place, ["anna"] * 8) == {"kept": 1, "NameTaken": 7}
    store = open_voice_store(place, 3)
    (voice,) = store.of("me")
    assert voice.audio is not None
    if place == str(folder):  # of an object store what lost stays
        assert files(folder) == [f"owner-me/{voice.audio.name}", "owner-me/anna.json"]
    assert sound_of(store, voice) in {recording(seed).flac() for seed in range(8)}


def test_of_uploads_at_once_no_more_are_kept_than_may_be(folder) -> None:
    names = [f"v{number}" for number in range(8)]
    assert at_once(str(folder), names) == {"kept": 3, "StoreFull": 5}


def test_a_link_leads_to_no_file_that_is_no_voice(folder, on_disk, tmp_path, caplog) -> None:
    """Who may write the folder, as of a share on the network, reads nothing else through it."""
    store = on_disk
    added = store.add("anna", "me", CARD, recording())
    secret = tmp_path / "secret"
    secret.write_text("a secret")
    added.audio.unlink()
    added.audio.symlink_to(secret)
    with pytest.raises(FilesDamaged):
        store.opened(added)
    assert "SHA-256" in caplog.text
    (folder / "owner-me" / "ben.json").symlink_to(secret)
    assert store.damaged("me") == ["anna", "ben"]
    assert "a secret" not in caplog.text
    assert store.remove("anna", "me")
    assert store.remove("ben", "me")
    assert secret.read_text() == "a secret"


def test_the_quota_is_an_owners_and_a_deletion_frees_a_place(store) -> None:
    for name in ("a", "b", "c"):
        store.add(name, "me", CARD, recording())
    with pytest.raises(StoreFull):
        store.add("d", "me", CARD, recording())
    with pytest.raises(NameTaken):
        store.add("a", "me", CARD, recording())
    store.add("d", "you", CARD, recording())
    assert store.remove("b", "me")
    store.add("d", "me", CARD, recording())
    assert [voice.name for voice in store.of("me")] == ["a", "c", "d"]


def test_a_deleted_voice_leaves_nothing_but_what_was_opened(folder, on_disk) -> None:
    store = on_disk
    voice = store.add("anna", "me", CARD, recording())
    opened = store.opened(voice)
    # A later version finds them by the same names.
    assert files(folder) == [f"owner-me/anna.{voice.digest[:16]}.flac", "owner-me/anna.json"]
    assert store.remove("anna", "me")
    assert not store.remove("anna", "me")
    assert files(folder) == []
    assert opened is not None
    assert opened.recording == recording().flac()
    assert store.opened(voice) is None


def test_a_name_given_again_is_another_voice_and_heard_at_once(store, other) -> None:
    found = []
    for seed in range(2):
        store.add("anna", "me", CARD, recording(seed))
        found.append(other.find("anna", "me"))
        assert sound_of(other, found[-1]) == recording(seed).flac()
        store.remove("anna", "me")
    assert len({voice.key for voice in found}) == len({voice.audio for voice in found}) == 2


def test_audio_of_another_hash_is_not_spoken(folder, store, other, caplog) -> None:
    added = store.add("anna", "me", CARD, recording())
    (folder / added.audio).write_bytes(recording(1).flac())
    with pytest.raises(FilesDamaged):
        other.opened(added)
    assert "SHA-256" in caplog.text


def replaced_by_a_folder(audio: Path) -> None:
    audio.unlink()
    audio.mkdir()


DAMAGES: dict[str, Callable[[Path], object]] = {
    "missing": Path.unlink,
    "empty": lambda audio: audio.write_bytes(b""),
    "cut": lambda audio: audio.write_bytes(audio.read_bytes()[:-1]),
    "flipped": lambda audio: audio.write_bytes(b"F" + audio.read_bytes()[1:]),
    "longer": lambda audio: audio.write_bytes(audio.read_bytes() + b"\0"),
    "a folder": replaced_by_a_folder,
}


@pytest.mark.parametrize("damage", [*DAMAGES])
@pytest.mark.parametrize("was_listed", [False, True])
def test_sound_that_is_not_as_it_was_stored_is_damage_until_it_is_back(
    folder, on_disk, damage, was_listed
) -> None:
    added = on_disk.add("anna", "me", CARD, recording())
    content = added.audio.read_bytes()
    if was_listed:
        assert on_disk.damaged("me") == []
    DAMAGES[damage](added.audio)
    assert (on_disk.damaged("me"), on_disk.of("me")) == (["anna"], [])
    for look_up in (lambda: on_disk.find("anna", "me"), lambda: on_disk.opened(added)):
        with pytest.raises(FilesDamaged):
            look_up()
    if damage == "a folder":
        added.audio.rmdir()
    added.audio.write_bytes(content)
    assert [voice.name for voice in on_disk.of("me")] == ["anna"]
    assert on_disk.remove("anna", "me")


def test_whole_sound_is_read_once_however_often_it_is_listed(folder, on_disk, monkeypatch) -> None:
    read = list[Path]()
    right = FolderFiles.read

    def noted(files: FolderFiles, path: Path, *, large: bool = False) -> bytes:
        read.append(path)
        return right(files, path, large=large)

    audio = on_disk.add("anna", "me", CARD, recording()).audio
    monkeypatch.setattr(FolderFiles, "read", noted)
    for _ in range(3):
        assert on_disk.damaged("me") == []
    assert read.count(audio) == 1


def test_an_upload_that_was_cut_off_is_no_voice_and_is_swept_away(folder, on_disk) -> None:
    store, mine = on_disk, folder / "owner-me"
    mine.mkdir(parents=True)
    for name in ("ben.0123456789abcdef.flac", "ben.json.partial", "eve.f.flac.partial"):
        (mine / name).write_bytes(b"half of")
    assert store.of("me") == []
    voice = store.add("anna", "me", CARD, recording())
    assert voice.audio is not None
    assert files(folder) == [f"owner-me/{voice.audio.name}", "owner-me/anna.json"]


def test_a_full_disk_leaves_no_voice(folder, on_disk) -> None:
    store = on_disk
    with full_disk(4_096), pytest.raises(OSError, match="too large"):
        store.add("anna", "me", CARD, recording())
    assert store.find("anna", "me") is None
    voice = store.add("anna", "me", CARD, recording())
    assert voice.audio is not None
    assert files(folder) == [f"owner-me/{voice.audio.name}", "owner-me/anna.json"]


def test_a_url_of_no_known_store_is_refused() -> None:
    for url in ("nothing://there", "s3://"):
        with pytest.raises(ValueError, match=f"^{url}: no kind of store that is known"):
            open_voice_store(url, 1)


def test_the_card_says_who_agreed_when_and_to_what(folder, store) -> None:
    store.add("anna", "me", CARD, recording())
    card = json.loads((folder / "owner-me" / "anna.json").read_bytes())
    assert card["consent"] is True
    assert card["created_at"] == pytest.approx(folder.stat().st_mtime, abs=60)
    assert len(card["sha256"]) == 64


def test_the_voices_of_all_owners_are_counted(folder, store) -> None:
    assert store.count() == 0
    store.add("anna", "me", CARD, recording())
    store.add("anna", "you", CARD, recording())
    store.add("ben", EVERYBODY, CARD, recording())
    (folder / "owner-me" / "half.0.flac.partial").write_bytes(b"")
    assert store.count() == 3
    store.remove("anna", "me")
    assert store.count() == 2


def test_voices_of_an_earlier_folder_are_there_until_they_are_deleted(tmp_path) -> None:
    earlier, folder = tmp_path / "earlier", tmp_path / "voices"
    for name, owner in (("anna", EVERYBODY), ("bert", "me")):
        open_voice_store(str(earlier), 3).add(name, owner, CARD, recording())
    store = open_voice_store(str(folder), 2, earlier=earlier)
    assert (store.owners(), store.count()) == ([EVERYBODY, "me"], 2)
    (anna,) = store.of(EVERYBODY)
    assert sound_of(store, anna) == recording().flac()
    with pytest.raises(NameTaken):
        store.add("anna", EVERYBODY, CARD, recording())
    store.add("carl", EVERYBODY, CARD, recording(1))
    with pytest.raises(StoreFull):
        store.add("dora", EVERYBODY, CARD, recording())
    assert [Path(name).name for name in files(folder) if name.endswith("json")] == ["carl.json"]
    assert store.remove("anna", EVERYBODY)
    assert not store.remove("anna", EVERYBODY)
    assert [voice.name for voice in store.of(EVERYBODY)] == ["carl"]
    assert not (earlier / "everybody" / "anna.json").exists()


def test_a_voice_in_both_folders_is_the_newer_and_is_deleted_in_both(tmp_path) -> None:
    earlier, folder = tmp_path / "earlier", tmp_path / "voices"
    for seed, place in enumerate((earlier, folder)):
        open_voice_store(str(place), 3).add("anna", EVERYBODY, CARD, recording(seed))
    store = open_voice_store(str(folder), 2, earlier=earlier)
    (anna,) = store.of(EVERYBODY)
    assert sound_of(store, anna) == recording(1).flac()
    assert store.remove("anna", EVERYBODY)
    assert not open_voice_store(str(earlier), 3).of(EVERYBODY)
