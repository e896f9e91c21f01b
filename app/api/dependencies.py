"""FastAPI dependencies that several routers share."""

from typing import Annotated

from fastapi import Depends, Request

from app.engine.engine import SpeechEngine


def get_engine(request: Request) -> SpeechEngine:
    """Return the application's engine."""
    engine: SpeechEngine = request.app.state.engine
    return engine


EngineDep = Annotated[SpeechEngine, Depends(get_engine)]
