import re

import pytest

from app.api.middleware.access.keys import Keyring
from app.cli import main
from app.settings import Settings


def test_a_new_key_is_let_in_by_its_line_and_told_by_nothing_else(tmp_path, capsys) -> None:
    assert main(["keys", "new", "alice"]) == 0
    said = capsys.readouterr().out
    found = re.fullmatch(r"key   (\S+)\nline  (\S+)\n", said)
    assert found is not None
    key, line = found.groups()
    assert key not in line
    file = tmp_path / "keys"
    file.write_text(line)
    ring = Keyring.of(Settings(api_keys_file=str(file)))
    assert ring.owner(key) == "alice"
    assert ring.owner(line.partition(":")[2]) is None  # who reads the file has no key


@pytest.mark.parametrize("name", ["", "Alice", "a b", "../a", "a:b", "a" * 33, "-a"])
def test_a_name_that_cannot_be_one_is_refused(name, capsys) -> None:
    assert main(["keys", "new", "--", name] if name.startswith("-") else ["keys", "new", name]) == 2
    assert "name" in capsys.readouterr().err
