import hashlib
import re

import pytest
from pydantic import SecretStr

from app.api.gate.admission import NAME, Keyring, KeyringError, hashed, new_key
from app.settings import Settings

ALICE, BOB = "alice-0123456789", "bob-0123456789abc"


def test_keys_of_the_environment_and_of_the_file_are_all_known(tmp_path) -> None:
    file = tmp_path / "keys"
    file.write_text(f"# who\n\ncarol:{hashed('c' * 20)}\ncarol:{hashed('d' * 20)}\n")
    ring = Keyring.of(Settings(api_keys=f"alice:{ALICE}, {BOB},", api_keys_file=str(file)))
    assert ring.owner(ALICE) == "alice"
    assert ring.owner(BOB) == f"key-{hashlib.sha256(BOB.encode()).hexdigest()[:8]}"
    assert ring.owner("c" * 20) == ring.owner("d" * 20) == "carol"


@pytest.mark.parametrize(
    "wrong",
    [
        "",
        " ",
        ALICE[:-1],
        ALICE + "x",
        ALICE.upper(),
        ALICE + "\n",
        hashed(ALICE),
        "\udc80",
        "é" * 20,
    ],
)
def test_any_other_key_is_nobodys(wrong) -> None:
    assert Keyring([("alice", hashed(ALICE))]).owner(wrong) is None


@pytest.mark.parametrize(
    "bad", ["short", "alice:short", "Alice:" + ALICE, "a b" * 10, "é" * 20, "a:b:" + ALICE]
)
def test_a_key_that_cannot_be_used_is_refused_and_not_told(bad) -> None:
    with pytest.raises(KeyringError, match="entry 2") as refused:
        Keyring.of(Settings(api_keys=f"{ALICE},{bad}"))
    assert bad not in str(refused.value)
    assert ALICE not in str(refused.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (f"alice:{ALICE}", "line 1 is not name:sha256"),
        (f"alice:{hashed(ALICE)}\nbob", "line 2 is not name:sha256"),
        (f"../alice:{hashed(ALICE)}", "line 1"),
        (b"\xff", "it is not text"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused(tmp_path, content, message) -> None:
    file = tmp_path / "keys"
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(KeyringError, match=message):
        Keyring.of(Settings(api_keys_file=str(file)))


def test_a_file_that_everybody_may_write_is_refused(tmp_path) -> None:
    path = tmp_path / "keys"
    path.write_text(f"alice:{hashed('a' * 32)}\n")
    path.chmod(0o666)
    with pytest.raises(KeyringError, match="everybody may write it"):
        Keyring.of(Settings(api_keys_file=str(path)))
    path.chmod(0o664)
    assert Keyring.of(Settings(api_keys_file=str(path))).owner("a" * 32) == "alice"


def test_a_file_that_is_not_there_is_refused() -> None:
    with pytest.raises(KeyringError, match="/nowhere: No such file"):
        Keyring.of(Settings(api_keys_file="/nowhere"))


def test_one_key_has_one_owner() -> None:
    with pytest.raises(KeyringError, match="the same key"):
        Keyring([("alice", hashed(ALICE)), ("bob", hashed(ALICE))])


def test_a_new_key_can_be_a_setting_and_no_two_are_equal() -> None:
    keys = {new_key() for _ in range(50)}
    assert len(keys) == 50
    for key in keys:
        assert len(key) >= 43  # 256 bits in base 64
        assert Keyring.of(Settings(api_keys=f"new:{key}")).owner(key) == "new"


def test_settings_show_no_key() -> None:
    settings = Settings(api_keys=f"alice:{ALICE}")
    assert ALICE not in repr(settings) + str(settings) + settings.model_dump_json()


def test_a_name_is_safe_as_a_folder() -> None:
    taken = {one for one in map(chr, range(0x250)) if re.fullmatch(NAME, f"a{one}")}
    assert taken == set("abcdefghijklmnopqrstuvwxyz0123456789_-")


@pytest.mark.parametrize("configured", [",", " ", " , ,", ",,"])
def test_keys_that_are_configured_and_none_are_no_open_door(configured) -> None:
    with pytest.raises(KeyringError, match="api_keys: it has no key"):
        Keyring.of(Settings(api_keys=configured))


@pytest.mark.parametrize("content", ["", "# alice will have one\n", "\n \n#\n"])
def test_a_file_of_keys_without_a_key_is_no_open_door(tmp_path, content) -> None:
    file = tmp_path / "keys"
    file.write_text(content)
    for plain in ("", ","):
        settings = Settings(api_keys_file=str(file), api_keys=SecretStr(plain))
        with pytest.raises(KeyringError, match=f"{file} has no key; `valle-serve keys new NAME`"):
            Keyring.of(settings)
        assert settings.asks_for_keys
    assert Keyring.of(Settings(api_keys_file=str(file), api_keys=ALICE))
    file.write_text(f"alice:{hashed(ALICE)}\n")
    assert Keyring.of(Settings(api_keys_file=str(file))).owner(ALICE) == "alice"
