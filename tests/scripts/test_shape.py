"""What `scripts.shape` finds, in sources made for it."""

import ast

import pytest

from scripts import shape

LARGE = "class Large:\n    def __init__(self):\n" + "".join(
    f"        self.a{n} = 0\n" for n in range(16)
)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (LARGE, {"Large": 16}),
        (LARGE.replace("        self.a15 = 0\n", ""), {}),
        (LARGE.replace("self.a15", "self.a14"), {}),
        (LARGE.replace("Large", "Settings"), {}),
    ],
    ids=["sixteen", "fifteen", "one set twice", "a declaration"],
)
def test_a_class_is_large_by_its_attributes(source, expected) -> None:
    assert shape.large_classes(ast.parse(source)) == expected


@pytest.mark.parametrize(
    ("source", "lines"),
    [("a, b = 1, 2", [1]), ("a = 1\nself.a, b = c, d", [2]), ("a, b = b, a", []), ("a, b = c", [])],
)
def test_an_assignment_is_parallel_unless_it_exchanges_or_unpacks(source, lines) -> None:
    assert shape.parallel_assignments(ast.parse(source)) == lines


def test_a_public_name_of_two_files_is_there_twice() -> None:
    trees = {
        name: ast.parse(source)
        for name, source in {
            "a.py": "class Name: ...\n_private = 1\nlog = 1",
            "b.py": "Name: int = 1\n_private = 1\nlog = 1",
            "c.py": "other = Name",
        }.items()
    }
    assert shape.defined_twice(trees) == {"Name": ["a.py", "b.py"]}


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("def f(drawn): ...", ["drawn"]),
        ("class Drawer: ...", ["Drawer"]),
        ("self._told = 1", ["_told"]),
        ("withdrawn = drawn", []),
    ],
)
def test_an_old_word_counts_where_it_names_something(source, names) -> None:
    assert [name for _, name in shape.old_words(ast.parse(source))] == names
