"""What an author may not expect of how a text is read: another language, sounds in brackets."""

import re
from collections.abc import Sequence
from typing import Final

from models.text.characters import described
from models.text.published.tags import name_of

LEFT_OUT: Final = "left out, "
"""How a sentence about what was not spoken begins."""

_READ_CHARS: Final = 4000
_FEWEST = 2  # words of another language before it is named
_SHARE = 0.25

# Frequent words, and letters: of other languages those that English lacks.
_LANGUAGES: Final = {
    "English": ("the and of to is in that it for was on with as are be this you at by not have from"
                " but they his her he she we i my your what there can would so if all about me do"
                " did had has will no an or one who when how our out up", ""),
    "German": ("der das und ist nicht ein eine ich sie wir mit auf für von zu dem auch aus bei nach"
               " wie oder aber wird sind haben mein dein sehr guten gibt heute geht", "äöüß"),
    "French": ("le la les est une des dans pour que qui pas vous nous je avec sur ce cette mais et"
               " bonjour merci du au ne tout très être", "éèêàçùœîôû"),
    "Spanish": ("el los las una es y en por para con que pero muy como está hola gracias del se su"
                " lo más qué", "ñáíóúé¿¡"),
    "Italian": ("il lo gli una di che per con non sono della questo molto ciao grazie è e nel si"
                " anche", "àèìòù"),
    "Portuguese": ("os as uma de que para com não por mas muito obrigado é e em um do da são você",
                   "ãõçáéíóúâê"),
    "Dutch": ("het een en van ik niet dat op met voor zijn maar ook aan wij naar deze dit heeft",
              "ëï"),
    "Swedish": ("och att det som en är inte på jag för med av till har om vi den ett", "åäö"),
    "Polish": ("jest nie się na do że to jak tak dzień proszę dziękuję i w z jestem", "ąęłńśźżć"),
    "Turkish": ("bir ve bu da de için çok ne var merhaba teşekkür ben sen", "ğışçöü"),
}  # fmt: skip
_KNOWN: Final = {
    name: (frozenset(words.split()), frozenset(letters))
    for name, (words, letters) in _LANGUAGES.items()
}
_ENGLISH: Final = _KNOWN.pop("English")[0]
_SOUND: Final = re.compile(
    r"([\[(*])\s*(?:laugh|chuckl|giggl|sigh|cough|gasp|yawn|sniff|groan|sob|cry|cries|scream|snort"
    r"|gulp|inhal|exhal|breath|clears? throat|applau|whisper)[a-z ]{0,20}[\])*]",
    re.IGNORECASE,
)


def warnings_of(text: str, language: str, unread: Sequence[str] = ()) -> list[str]:
    """Return a sentence for each thing in a text that is not read as its author may mean it.

    ``unread`` is what was left out of it.
    """
    text = text[:_READ_CHARS]
    found = []
    letters = [part for part in unread if part[0].isalpha()]
    signs = [part for part in unread if not part[0].isalpha()]
    if letters:
        reads = f"this voice reads {name_of(language)} only"
        found.append(f"{LEFT_OUT}as {reads}: {described(letters)}")
    if signs:
        found.append(f"{LEFT_OUT}as there are no words for it: {described(signs)}")
    other = _other_language(text) if language == "en" else None
    if other is not None:
        found.append(
            f"the text looks {other} and is read as English;"
            " docs/public-checkpoints.md has models of other languages"
        )
    if (sound := _SOUND.search(text)) is not None:
        found.append(f"{sound[0]} is read as words: there is no markup for such sounds")
    return found


def _other_language(text: str) -> str | None:
    """Return the name of the language that a text seems to be in; None for English."""
    words = re.findall(r"[^\W\d_]+", text)
    least = max(_FEWEST, _SHARE * len(words), 1 + sum(one.lower() in _ENGLISH for one in words))
    small = [word for word in words if word.islower()]  # names are of any language
    hits = {
        name: sum(one in of or not letters.isdisjoint(one) for one in small)
        for name, (of, letters) in _KNOWN.items()
        if not of.isdisjoint(small)  # English has borrowed letters: naïve, café
    }
    name = max(hits, key=lambda one: hits[one], default=None)
    return name if name is not None and hits[name] >= least else None
