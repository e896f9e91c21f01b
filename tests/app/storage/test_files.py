"""Files that are whole or not there."""

import pytest

from app.storage.files import write_atomically


def test_a_file_is_replaced_and_no_other_is_left(tmp_path) -> None:
    path = tmp_path / "one.json"
    path.write_bytes(b"before")
    write_atomically(path, b"after")
    assert path.read_bytes() == b"after"
    assert list(tmp_path.iterdir()) == [path]


def test_what_cannot_be_written_leaves_the_file_that_was_there(tmp_path) -> None:
    path = tmp_path / "one.json"
    path.write_bytes(b"before")
    (tmp_path / "one.json.partial").mkdir()  # where it would be written first
    with pytest.raises(OSError, match="partial"):
        write_atomically(path, b"after")
    assert path.read_bytes() == b"before"
