"""What the loaded model is called: its own name, and those that OpenAI's clients send."""

import re
from typing import Final

from app.api.schemas import ModelItem
from app.engine.errors import UnknownModel

OPENAI_MODELS: Final = ("tts-1", "tts-1-hd", "gpt-4o-mini-tts")
"""Names that OpenAI's clients send; each means the loaded model."""

_DATED = re.compile(rf"({'|'.join(OPENAI_MODELS)})(-\d{{4}}(-\d\d-\d\d)?)?")


def check_model(wanted: str | None, loaded: str) -> None:
    """Refuse a name that is neither the loaded model's nor one that OpenAI's clients send.

    Args:
        wanted: None is the loaded model; OpenAI's may have a date: `gpt-4o-mini-tts-2025-12-15`.
        loaded: The loaded model's name.

    Raises:
        UnknownModel: It is another.
    """
    if wanted not in {None, loaded} and not _DATED.fullmatch(str(wanted)):
        raise UnknownModel(f"the model loaded here is {loaded!r}, not {str(wanted)[:64]!r}")


def model_item(name: str, loaded: str) -> ModelItem:
    """Describe a model by one of its names.

    Raises:
        UnknownModel: It is another than the loaded one.
    """
    check_model(name, loaded)
    return ModelItem(id=name, alias_of=None if name == loaded else loaded)


def model_items(loaded: str) -> list[ModelItem]:
    """Describe the loaded model by all of its names, its own first."""
    return [model_item(name, loaded) for name in dict.fromkeys((loaded, *OPENAI_MODELS))]
