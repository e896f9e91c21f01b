"""The application factory: settings to an ASGI application with its engine.

Run it with `uvicorn --factory app.main:create_app` or any other host of ASGI factories.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import cache, partial

from fastapi import FastAPI
from starlette.middleware.gzip import GZipMiddleware

from app.api import errors
from app.api.document import BEARER_KEY, GATE_RESPONSES, Service, operation_id
from app.api.health import health_router
from app.api.history.recent import RecentSpeeches
from app.api.history.writer import ReportWriter
from app.api.metrics import metrics_router
from app.api.middleware.access.keys import Keyring
from app.api.middleware.gate import GateMiddleware
from app.api.middleware.limits import Admission
from app.api.middleware.metrics import HttpMetrics
from app.api.middleware.rules import METRICS_PATH, GateRules
from app.api.models import models_router
from app.api.presets import presets_router
from app.api.realtime.route import live_router, unknown_router
from app.api.services import ClientLimits, Services
from app.api.speech.codes_route import codes_router
from app.api.speech.route import speech_router
from app.api.voices import voices_router
from app.audio.render_pool import RenderPool
from app.compat import COMPAT_APIS
from app.engine.backend.planner import Catalog
from app.engine.backend.synthesizer import Synthesizer
from app.engine.child_process import ModelWorkers
from app.engine.engine import SpeechEngine
from app.settings import Settings
from app.storage.dictionary_files import read_dictionaries
from app.storage.preset_files import read_presets
from app.storage.voice_store import VoiceStore, open_voice_store
from app.studio.route import OPEN_PATHS, studio_router
from app.version import VERSION
from samplers.knobs.presets import Presets

# Imported here, or the first request that needs it would hold up the event loop for 0.1 s. Only
# WAV and PCM are made where it is not installed, as where torch is alone
# (lab.benchmarks.card.ticket).
with suppress(ModuleNotFoundError):
    import av as _av  # noqa: F401

_LEAST_COMPRESSED_BYTES = 1024
_COMPRESSION = 6  # of 9: zlib's own choice


def catalog_of(settings: Settings, presets: Presets | None = None) -> Catalog:
    """Return what requests may name by the settings, with their presets or those given."""
    return Catalog(
        read_presets(settings.presets or None) if presets is None else presets,
        voice_store(settings),
        read_dictionaries(settings.pronunciations),
    )


def load_synthesizer(settings: Settings, presets: Presets | None = None) -> Synthesizer:
    """Load the model that the settings name, with no process of its own; see `catalog_of`."""
    return Synthesizer.load(settings, catalog_of(settings, presets))


@cache
def voice_store(settings: Settings) -> VoiceStore:
    """Return the store of uploaded voices, one for all who ask."""
    return open_voice_store(settings.voices, settings.max_voices, earlier=settings.earlier_voices)


def model_loader(
    settings: Settings, started: ModelWorkers | None = None
) -> Callable[[], Synthesizer]:
    """Return what loads the settings' model with processes of its own, if not ``started``."""
    return partial(Synthesizer.load, settings, catalog_of(settings), started or ModelWorkers())


def create_engine(settings: Settings, started: ModelWorkers | None = None) -> SpeechEngine:
    """Return an engine that loads the settings' model when it is started."""
    return SpeechEngine(model_loader(settings, started), settings)


def create_app(
    settings: Settings | None = None,
    engine: SpeechEngine | None = None,
    *,
    limits: ClientLimits | None = None,
) -> FastAPI:
    """Return the application, by default of the environment's settings; it starts its engine.

    ``limits`` are by default those of the settings.
    """
    settings = settings or Settings()
    keyring = Keyring.of(settings)
    services = create_services(settings, engine or create_engine(settings), limits)

    shared = services.shared

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        background = AsyncExitStack()
        async with background:
            for api in COMPAT_APIS:  # first: where a port was taken, nothing else has begun
                await background.enter_async_context(api.background(services))
            # The model loads in the background; until then /ready answers 503.
            services.engine.start()
            if shared is not None:
                await shared.start()
            try:
                yield
            finally:
                await background.aclose()
                await services.engine.drain(settings.drain_timeout_s)
                await services.engine.stop()
                if shared is not None:
                    await shared.stop()
                services.render_pool.close()
                services.limits.connections.abort()

    app = Service(
        bodies=[body for api in COMPAT_APIS for body in api.bodies],
        title="valle-serve",
        version=VERSION,
        description="Text to speech, with every sampling knob in the request.",
        lifespan=lifespan,
        generate_unique_id_function=operation_id,
        docs_url=None,  # ours needs no other host: app.studio
        redoc_url=None,
        redirect_slashes=False,  # the redirect would go to the host that the client sent
    )
    app.state.services = services
    add_middleware(app, services, keyring)
    errors.install(app)
    for api in COMPAT_APIS:
        for router in api.socket_routers:
            app.include_router(router)
    app.include_router(live_router)  # its path looks like the id of a speech
    listings = [listing for api in COMPAT_APIS for listing in api.model_listings]
    security = [BEARER_KEY] if keyring else []
    for router in (
        speech_router,
        codes_router,
        *(router for api in COMPAT_APIS for router in api.routers),
        models_router(listings),
        presets_router,
        voices_router,
    ):
        app.include_router(router, responses=GATE_RESPONSES, dependencies=security)
    app.include_router(health_router)
    app.include_router(studio_router)
    if settings.metrics != "off":
        app.include_router(metrics_router)
    app.include_router(unknown_router)
    return app


def create_services(
    settings: Settings, engine: SpeechEngine, limits: ClientLimits | None = None
) -> Services:
    """Return the parts of an application; limits and recent speeches are shared where Redis is."""
    url = settings.state_url
    rates = settings.rate_per_minute, settings.max_concurrent_per_key
    metrics = HttpMetrics()
    shared = None
    if url is None:
        admission = Admission(*rates)
        recent = RecentSpeeches(settings.keep, log_text=settings.log_text)
    else:
        from app.api.history.shared import SharedSpeeches
        from app.api.middleware.shared_limits import SharedAdmission
        from app.storage.shared_state import SharedState

        closed = settings.state_fail == "closed"
        shared = SharedState(url, closed_if_away=closed, registry=metrics.registry)
        admission = SharedAdmission(shared, url, *rates)
        recent = SharedSpeeches(
            shared,
            settings.keep,
            keep_s=settings.keep_s,
            keep_bytes=settings.keep_bytes,
            log_text=settings.log_text,
        )
    limits = limits or ClientLimits.of(settings)
    metrics.working.set_function(lambda: admission.working)
    metrics.sessions.set_function(lambda: limits.live_sessions.taken)
    return Services(
        settings=settings,
        engine=engine,
        limits=limits,
        admission=admission,
        recent=recent,
        reports=ReportWriter(),
        render_pool=RenderPool(),
        voice_store=voice_store(settings),
        http_metrics=metrics,
        shared=shared,
    )


def add_middleware(app: FastAPI, services: Services, keyring: Keyring) -> None:
    """Add the middleware that every request passes: the gate, and compression but of sound."""
    # Inside the gate, which counts what is sent. Sound, archives and events it leaves as they are.
    app.add_middleware(
        GZipMiddleware, minimum_size=_LEAST_COMPRESSED_BYTES, compresslevel=_COMPRESSION
    )
    app.add_middleware(
        GateMiddleware,
        settings=services.settings,
        keyring=keyring,
        admission=services.admission,
        metrics=services.http_metrics,
        rules=gate_rules(services.settings),
    )


def gate_rules(settings: Settings) -> GateRules:
    """Return what the gate treats otherwise than the rest."""
    open_paths = OPEN_PATHS | {"/openapi.json"}
    if settings.metrics == "open":
        open_paths |= {METRICS_PATH}
    uploads = frozenset({("POST", "/v1/audio/voices"), ("POST", "/v1/audio/codes")})
    return GateRules(
        open_paths=open_paths.union(*(api.open_paths for api in COMPAT_APIS)),
        uploads=uploads.union(*(api.uploads for api in COMPAT_APIS)),
        key_headers=tuple(header for api in COMPAT_APIS for header in api.key_headers),
    )
