"""Names of the loaded model: its own, and those of OpenAI's models."""

import re
from typing import Final

from app.api.schemas import ModelItem
from app.engine.errors import UnknownModel

OPENAI_MODELS: Final = ("tts-1", "tts-1-hd", "gpt-4o-mini-tts")
"""Model names that OpenAI's clients send; each is an alias of the loaded model."""

_DATED = re.compile(rf"({'|'.join(OPENAI_MODELS)})(-\d{{4}}(-\d\d-\d\d)?)?")


def check_model(wanted: str | None, loaded: str) -> None:
    """Check that a name means the loaded model.

    Args:
        wanted: The requested name; None is the loaded model. OpenAI's names may carry a date, as in
            `gpt-4o-mini-tts-2025-12-15`.
        loaded: The loaded model's name.

    Raises:
        UnknownModel: It is another model.
    """
    if wanted not in {None, loaded} and not _DATED.fullmatch(str(wanted)):
        raise UnknownModel(f"the loaded model is {loaded!r}, not {str(wanted)[:64]!r}")


def model_item(name: str, loaded: str) -> ModelItem:
    """Return the description of a model under one of its names.

    Raises:
        UnknownModel: It is not the loaded model.
    """
    check_model(name, loaded)
    return ModelItem(id=name, alias_of=None if name == loaded else loaded)


def model_items(loaded: str) -> list[ModelItem]:
    """Return the descriptions of the loaded model under all its names, its own first."""
    return [model_item(name, loaded) for name in dict.fromkeys((loaded, *OPENAI_MODELS))]
