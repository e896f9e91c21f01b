"""The order in which texts are read: fair between askers, the shortest first within one."""

from random import Random

import pytest

from app.engine.serving.turns import Turn, Turns

LONG = 4096


def filled(*texts: tuple[str, int]) -> Turns[str]:
    turns = Turns[str]()
    for asker, length in texts:
        turns.add(asker, length, f"{asker}{length}")
    return turns


def taken(turns: Turns[str], during: Turn[str] | None = None) -> list[str]:
    order = []
    while (turn := turns.next(during)) is not None:
        order.append(turn.item)
    return order


def test_one_askers_shortest_text_comes_first_and_of_equals_the_oldest() -> None:
    turns = Turns[str]()
    for item in ("three", "of", "by", "a"):
        turns.add("", len(item), item)
    assert taken(turns) == ["a", "of", "by", "three"]


@pytest.mark.parametrize("length", [1, 12, LONG])
def test_a_stranger_waits_for_one_text_of_another_asker_however_many_and_short_those_are(
    length: int,
) -> None:
    """The attacker asks again before each answer, so that it always has texts that wait."""
    turns = Turns[str]()
    for number in range(9):
        turns.add("attacker", length, f"attack {number}")
    for number in range(50):
        assert turns.next() is not None
        turns.add("attacker", length, f"again {number}")
    turns.add("stranger", 12, "Hello there.")
    first, second = turns.next(), turns.next()
    assert first is not None
    assert second is not None
    assert "Hello there." in (first.item, second.item)


def test_who_asks_for_nothing_for_long_saves_nothing_up() -> None:
    """Somebody who comes after 100 texts of another does not get as many before the next one."""
    turns = filled(*[("busy", 100)] * 100)
    for _ in range(90):
        turns.next()
    for _ in range(10):
        turns.add("new", 100, "new100")
    assert taken(turns)[:4] in (
        ["new100", "busy100", "new100", "busy100"],
        ["busy100", "new100", "busy100", "new100"],
    )


def test_while_a_text_is_read_only_what_comes_before_its_rest_is_next() -> None:
    turns = filled(("attacker", LONG))
    during = turns.next()
    assert during is not None
    turns.add("attacker", LONG, "as long")
    turns.add("attacker", 9, "shorter")
    turns.add("stranger", 12, "Hello there.")
    turns.add("stranger", LONG - 13, "the stranger's book")
    turns.add("stranger", 14, "more than its share")
    during_it = ["Hello there.", "more than its share", "the stranger's book", "shorter"]
    assert taken(turns, during) == during_it
    assert taken(turns) == ["as long"]


def test_characters_read_are_shared_equally_by_all_that_wait() -> None:
    random = Random(7)
    turns, read = Turns[int](), dict.fromkeys("abc", 0)
    for asker in read:
        for _ in range(2000):
            length = random.randint(1, 50) if asker == "a" else random.randint(1, LONG)
            turns.add(asker, length, length)
    for _ in range(1500):
        turn = turns.next()
        assert turn is not None
        read[turn.asker] += turn.length
    assert max(read.values()) - min(read.values()) <= LONG


def test_nothing_is_remembered_of_askers_who_left() -> None:
    turns = Turns[int]()
    for number in range(1000):
        turns.add(f"asker {number}", 5, number)
        assert turns.next() is not None
    assert len(turns._tags) <= 2


def test_what_is_cleared_is_returned_and_comes_no_more() -> None:
    turns = filled(("a", 1), ("b", 2))
    assert sorted(turns.clear()) == ["a1", "b2"]
    assert turns.next() is None
