"""Real texts have what plain sentences lack, can all be spoken, and are read by every teacher."""

from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest

from lab.training.speech import corpus as sources
from lab.training.speech import reading, texts
from lab.training.speech.bends import UNBENT, Bend
from lab.training.speech.readers import Reader
from models.text import ENGLISH_SYMBOLS, phonemize

THINGS = ("apple", "lighthouse", "kettle", "berry", "box", "violin")
PLAIN = (
    "Most of our graduates are employed by the city.", "He who waits, wins in the long run!",
    "She turned the key in the lock without a sound.", "Who left the garden gate open last night?",
    "I never saw a purple cow in all my days.", "The boats came home before the storm did.",
)  # fmt: skip


@pytest.fixture(autouse=True)
def lexicon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A WordNet of a few words, and fortunes of a few lines."""
    nouns = [f"0 06 n 01 {one} 0 000 | a kind of {one} that people keep" for one in THINGS]
    nouns += [f"0 18 n 01 {name} 0 001 @i 0 n 0000 | Greek poet (850 BC); \"x\"" for name in
              ("Homer", "Marie_Curie", "Ada_Lovelace", "Ray_von_Bar")]  # fmt: skip
    nouns += [f"0 15 n 01 {name} 0 001 @i 0 n 0000 | a town" for name in ("Oslo", "Fes", "Lima")]
    for part in ("noun", "verb", "adj", "adv"):
        lines = nouns if part == "noun" else [f'0 | x; "{one}"' for one in PLAIN]
        (tmp_path / f"data.{part}").write_text("\n".join(lines))
    fortunes = tmp_path / "fortunes"
    fortunes.mkdir()
    (fortunes / "wise").write_text(
        '"Go west!" -- he said: 3 of them went...\n%\nAll is well; rest.'
    )
    monkeypatch.setattr(sources, "WORDNET", tmp_path)
    monkeypatch.setattr(sources, "FORTUNES", fortunes)
    texts.lexicon.cache_clear()
    yield
    texts.lexicon.cache_clear()


@pytest.mark.parametrize("kind", texts.SHARES)
def test_texts_of_a_kind_can_be_spoken_at_once_and_follow_from_the_seed(kind):
    count = 2 if kind == "prose" else 40
    found = list(islice(texts.texts(kind), count))
    assert len(set(found)) == len(found) == count
    for text in found:
        phonemes = phonemize(text)
        assert not set(phonemes) - set(ENGLISH_SYMBOLS)
        low, high = texts.LONG if kind == "long" else texts.PHONEMES
        assert low <= len(phonemes) <= high
        assert not set(text) & set("0123456789%$")  # read as words
    assert list(islice(texts.texts(kind), count)) == found
    assert kind == "prose" or list(islice(texts.texts(kind, 1), count)) != found


@pytest.mark.parametrize(
    ("kind", "ends"),
    [("marks", {*":.!?;,"}), ("lead_ins", {*":.!?,"}), ("quotations", {'."', ".", "?"})],
)
def test_last_marks_are_of_every_kind(kind, ends):
    found = list(islice(texts.texts(kind), 60))
    seen = {text[-2:] if text.endswith('."') else text[-1] for text in found}
    assert len(seen & ends) >= min(3, len(ends)) - 1
    if kind == "marks":
        assert ends <= seen
        assert any(text.endswith("...") for text in found)


def test_names_are_those_of_people_and_places_and_dates_are_left_out():
    found = " ".join(islice(texts.texts("names"), 40))
    assert "Marie Curie" in found
    assert "Oslo" in found
    assert "von" not in found
    assert "850" not in found


@pytest.mark.slow
def test_kinds_are_mixed_by_their_shares_and_go_on_where_one_runs_out():
    found = list(islice(texts.mixed_texts(), 300))
    assert len(found) == 300  # of prose there are two
    assert found == list(islice(texts.mixed_texts(), 300))


def test_a_missing_word_net_is_named(monkeypatch, tmp_path):
    monkeypatch.setattr(sources, "WORDNET", tmp_path / "nowhere")
    with pytest.raises(FileNotFoundError, match="apt-get install wordnet-base"):
        texts.lexicon()


@pytest.mark.slow
def test_every_teacher_reads_some_of_a_shard_and_the_first_shard_is_kept_out():
    cast = reading.cast_of(3)
    assert len(cast) == reading.SHARD_TEXTS
    kinds = Counter("teacher" if one is UNBENT else type(one).__name__ for one in cast)
    assert set(kinds) == {"teacher", "Bend", "Reader", "str"}
    assert min(kinds.values()) > 0.08 * len(cast)
    for kind in (Bend, Reader):
        names = {one.name for one in cast if isinstance(one, kind) and one is not UNBENT}
        assert 1 < len(names) <= reading.SPEAKERS_EACH
    assert cast == reading.cast_of(3) != reading.cast_of(4)
    assert [reading.part_of(number) for number in range(2)] == ["sentences", "train"]
