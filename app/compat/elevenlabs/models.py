"""The list of models in ElevenLabs' shape, for clients with its header."""

from typing import Final

from pydantic import BaseModel, Field

from app.api.models import ModelListing
from app.api.services import Services

KEY_HEADER: Final = "xi-api-key"
"""Header in which ElevenLabs' clients send a key."""


class TheirLanguage(BaseModel):
    """A language of a model, in ElevenLabs' shape."""

    language_id: str
    name: str


class ElevenLabsModel(BaseModel):
    """A model, in ElevenLabs' shape."""

    model_id: str = Field(description="What `model_id` takes.")
    name: str
    description: str = ""
    can_do_text_to_speech: bool = True
    can_do_voice_conversion: bool = False
    can_be_finetuned: bool = False
    can_use_style: bool = False
    can_use_speaker_boost: bool = False
    serves_pro_voices: bool = False
    requires_alpha_access: bool = False
    token_cost_factor: float = 0.0
    maximum_text_length_per_request: int
    languages: list[TheirLanguage]


def _described(name: str, services: Services) -> ElevenLabsModel:
    languages = services.engine.info.languages
    return ElevenLabsModel(
        model_id=name,
        name=name,
        maximum_text_length_per_request=services.settings.max_text_chars,
        languages=[TheirLanguage(language_id=language, name=language) for language in languages],
    )


ELEVENLABS_MODELS: Final = ModelListing(KEY_HEADER, ElevenLabsModel, _described)
