import hashlib
import re
from contextlib import nullcontext

import pytest
from pydantic import SecretStr

from app.api.middleware.access.keys import NAME, Keyring, KeyringError, hashed, new_key
from app.settings import Settings

ALICE, BOB = "alice-0123456789", "bob-0123456789abc"
NO_KEY = "keys has no key; `valle-serve keys new NAME`"


def test_keys_of_the_environment_and_of_the_file_are_all_known(tmp_path) -> None:
    file = tmp_path / "keys"
    file.write_text(f"# who\n\ncarol:{hashed('c' * 20)}\ncarol:{hashed('d' * 20)}\n")
    ring = Keyring.of(Settings(api_keys=f"alice:{ALICE}, {BOB},", api_keys_file=str(file)))
    assert ring.owner(ALICE) == "alice"
    assert ring.owner(BOB) == f"key-{hashlib.sha256(BOB.encode()).hexdigest()[:8]}"
    assert ring.owner("c" * 20) == ring.owner("d" * 20) == "carol"


WRONG = (
    "", " ", ALICE[:-1], ALICE + "x", ALICE.upper(), ALICE + "\n", hashed(ALICE), "\udc80",
    "é" * 20,
)  # fmt: skip


@pytest.mark.parametrize("wrong", WRONG)
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
    ("content", "mode", "message"),
    [
        (f"alice:{ALICE}", 0o600, "line 1 is not name:sha256"),
        (f"alice:{hashed(ALICE)}\nbob", 0o600, "line 2 is not name:sha256"),
        (f"../alice:{hashed(ALICE)}", 0o600, "line 1"),
        ("\udcff", 0o600, "it is not text"),
        (f"alice:{hashed(ALICE)}\n", 0o666, "everybody may write it"),
        (f"alice:{hashed(ALICE)}\n", 0o664, ""),
        (None, 0, "keys: No such file"),
        *((one, 0o600, NO_KEY) for one in ("", "# alice will have one\n", "\n \n#\n")),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_and_is_no_open_door(
    tmp_path, content, mode, message
) -> None:
    file = tmp_path / "keys"
    if content is not None:
        file.write_bytes(content.encode(errors="surrogateescape"))
        file.chmod(mode)
    for plain in ("", ","):
        settings = Settings(api_keys_file=str(file), api_keys=SecretStr(plain))
        assert settings.asks_for_keys
        with pytest.raises(KeyringError, match=message) if message else nullcontext():
            assert Keyring.of(settings).owner(ALICE) == "alice"
    if message == NO_KEY:
        assert Keyring.of(Settings(api_keys_file=str(file), api_keys=ALICE))


@pytest.mark.parametrize("plain", [",", " ", " , ,", ",,"])
def test_a_list_of_no_keys_is_no_open_door(plain) -> None:
    with pytest.raises(KeyringError, match="api_keys: it has no key"):
        Keyring.of(Settings(api_keys=plain))


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
