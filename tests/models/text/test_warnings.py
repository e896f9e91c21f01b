"""What is read otherwise than its author may mean is noticed, and plain English is not."""

import pytest

from models.text.warnings import warnings_of

FOREIGN = [
    ("schöne Grüße aus Köln", "German"),
    ("Guten Morgen, wie geht es Ihnen?", "German"),
    ("Das ist ein Test, der nicht auf Englisch ist.", "German"),
    ("Je ne sais pas ce que vous dites.", "French"),
    ("El perro está en la casa con los niños.", "Spanish"),
    ("Questo non è molto bello, grazie.", "Italian"),
    ("Não sei o que é isso, obrigado.", "Portuguese"),
    ("Ik weet het niet, maar dat is een huis.", "Dutch"),
    ("Jag vet inte vad det är.", "Swedish"),
    ("Dzień dobry, jak się masz?", "Polish"),
]
ENGLISH = [
    "Hello there.",
    "I was in Köln and Zürich with José and Zoë.",
    "The phrase je ne sais quoi is French.",
    "A naïve café façade.",
    "José García, Núñez y Hijos",
    "Die hard; war is hell. He was so bad, man!",
    "La La Land, El Paso, Los Angeles and Las Vegas.",
    "GET /v1/audio/speech",
    "[pause for effect] (see below) *important* he laughs.",
]


@pytest.mark.parametrize(("text", "language"), FOREIGN)
def test_another_language_in_latin_letters_is_named(text: str, language: str) -> None:
    (warning,) = warnings_of(text, "en")
    assert f"looks {language} and is read as English" in warning
    assert warnings_of(text, "de") == []  # only what is read as English


@pytest.mark.parametrize("text", ENGLISH)
def test_english_with_foreign_names_is_english(text: str) -> None:
    assert warnings_of(text, "en") == []


@pytest.mark.parametrize(
    "sound", ["[laughs]", "(sighs)", "*coughs*", "[clears throat]", "(Laughing)"]
)
def test_a_sound_in_brackets_is_named(sound: str) -> None:
    (warning,) = warnings_of(f"Well, {sound} I think so.", "en")
    assert warning.startswith(sound)
