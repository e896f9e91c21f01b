"""What scripts/budget.py refuses in pages and comments."""

from pathlib import Path

import pytest

from scripts.budget import told_elsewhere


@pytest.mark.parametrize(
    "line",
    [
        "# As issue 12 asks.",
        "How Issue #7 stands.",
        "Nobody had a card at this workplace.",
        "Runs on a lent machine.",
        "| run | of the fifth session |",
        "Figures of earlier sessions do not count.",
    ],
)
def test_a_line_on_how_the_project_is_worked_on_is_told(line: str, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"One.\n{line}\n", "utf-8")
    (told,) = told_elsewhere([page])
    assert told.startswith(f"{page}:2: ")


@pytest.mark.parametrize(
    "line",
    [
        "A WebSocket session ends after 60 s.",
        "See https://github.com/a/b/issues/463.",
        "What is issued, silent and lent out.",
        "The first session of a client.",
    ],
)
def test_ordinary_words_are_not_told(line: str, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(line, "utf-8")
    assert list(told_elsewhere([page])) == []


def test_files_of_others_and_of_other_kinds_are_not_read(tmp_path: Path) -> None:
    sound = tmp_path / "sound.wav"
    sound.write_text("issue 12", "utf-8")
    assert list(told_elsewhere([sound, Path("app/studio/vendor/README.md")])) == []
