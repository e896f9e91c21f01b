"""The application: settings and an engine in, something that answers HTTP out.

`uvicorn --factory app.main:create_app` works, and so does any host that takes an ASGI factory.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import version
from pathlib import Path

from fastapi import FastAPI

from app.api import errors
from app.api.health import health_router
from app.api.live import LiveSessions, live_router
from app.api.recent import RecentSpeeches
from app.api.request_id import RequestIdMiddleware
from app.api.routes import list_router
from app.api.speech import speech_router
from app.engine.engine import SpeechEngine
from app.engine.synthesis import Synthesizer
from app.preset_files import read_presets
from app.settings import Settings
from app.voice_store import VoiceStore
from samplers.presets import Presets


def load_synthesizer(settings: Settings, presets: Presets) -> Synthesizer:
    """Load the model that the settings name, in the thread that will speak.

    Args:
        settings: Which model, and how it runs.
        presets: Those that a request may name.

    Raises:
        CheckpointError: The model is missing, damaged or not what its description says.
    """
    return Synthesizer.load(
        settings.model,
        settings.device,
        weights=settings.weights,
        decoder=settings.decoder,
        threads=settings.threads,
        max_text_chars=settings.max_text_chars,
        presets=presets,
        uploads=VoiceStore(Path(settings.voices), max_voices=settings.max_voices),
        cache=settings.cache,
        offline=settings.offline,
    )


def create_engine(settings: Settings) -> SpeechEngine:
    """Return an engine that will load the model that the settings name.

    Raises:
        PresetError: The files of presets are not valid.
    """
    presets = read_presets(settings.presets or None)
    return SpeechEngine(
        lambda: load_synthesizer(settings, presets),
        max_queue=settings.max_queue,
        request_timeout_s=settings.request_timeout_s,
        stall_timeout_s=settings.stall_timeout_s,
    )


def create_app(settings: Settings | None = None, engine: SpeechEngine | None = None) -> FastAPI:
    """Return the application; the engine starts and stops with it.

    Args:
        settings: None reads the environment.
        engine: None makes one as the settings say.

    Raises:
        PresetError: The files of presets are not valid.
    """
    settings = settings or Settings()
    engine = engine or create_engine(settings)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        # Loading goes on while /ready already tells what it waits for.
        engine.start()
        try:
            yield
        finally:
            await engine.drain(settings.drain_timeout_s)
            await engine.stop()

    app = FastAPI(
        title="valle-serve",
        version=version("valle-serve"),
        description="Speech from text, with every knob of the sampler in the request.",
        lifespan=lifespan,
    )
    app.state.engine = engine
    app.state.settings = settings
    app.state.live_sessions = LiveSessions(settings.max_sessions)
    app.state.recent = RecentSpeeches(settings.keep)
    app.add_middleware(RequestIdMiddleware)
    errors.install(app)
    app.include_router(live_router)  # its path looks like the id of a speech
    app.include_router(speech_router)
    app.include_router(list_router)
    app.include_router(health_router)
    return app
