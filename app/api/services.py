"""The parts of a running application, which routes and protocols find in one place.

`app.state.services` is all that an application's state holds.
"""

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Final

from fastapi import Depends
from starlette.requests import HTTPConnection

from app.api.errors import TooManySessions
from app.api.history.recent import RecentSpeeches
from app.api.history.writer import ReportWriter
from app.api.middleware.connections import OpenConnections
from app.api.middleware.limits import RETRY_S, Admission
from app.api.middleware.metrics import HttpMetrics
from app.audio.render_pool import RenderPool
from app.engine.admission.quota import ClientQuota
from app.engine.engine import SpeechEngine
from app.settings import Settings
from app.storage.voice_store import VoiceStore

if TYPE_CHECKING:
    from app.storage.shared_state import SharedState

MAX_UPLOADS: Final = 5
"""Uploads that may be read at once, as each is unpacked in memory. One client may have 4."""

WHOLE_SPEECHES: Final = 5
"""Whole speeches of the greatest length whose samples may wait at once to be sent."""

_HELD_RATE_HZ: Final = 24_000  # of the samples that bound the memory of whole speeches


@dataclass(frozen=True, kw_only=True)
class ClientLimits:
    """What clients share of one process, each up to its quota."""

    connections: OpenConnections
    live_sessions: ClientQuota
    uploads: ClientQuota
    whole_samples: ClientQuota  # samples of whole speeches that wait to be sent

    @classmethod
    def of(cls, settings: Settings) -> "ClientLimits":
        """Return the limits that the settings ask for, of which nothing is taken."""
        return cls(
            connections=OpenConnections(settings.max_connections),
            live_sessions=ClientQuota(settings.max_sessions),
            uploads=ClientQuota(MAX_UPLOADS),
            whole_samples=ClientQuota(round(WHOLE_SPEECHES * settings.max_audio_s * _HELD_RATE_HZ)),
        )


@dataclass(frozen=True, kw_only=True)
class Services:
    """The parts of one application; made once, by `app.main.create_app`."""

    settings: Settings
    engine: SpeechEngine
    limits: ClientLimits
    admission: Admission
    recent: RecentSpeeches
    reports: ReportWriter
    render_pool: RenderPool
    voice_store: VoiceStore
    http_metrics: HttpMetrics
    shared: "SharedState | None" = None  # Redis; None: the state is in memory

    def live_place(self, client: str) -> AbstractContextManager[None]:
        """Return a place for a session, to be entered at once; raises TooManySessions."""
        self.admission.check_open()
        self.engine.lifecycle.check_ready()
        sessions = self.limits.live_sessions
        if not sessions.free(client):
            raise TooManySessions(
                f"{sessions.taken} sessions are open, which is the limit for all or for you",
                retry_after_s=RETRY_S,
            )
        return sessions.held(client)


def services_of(connection: HTTPConnection) -> Services:
    """Return the parts of the application that a request or WebSocket came to."""
    services: Services = connection.app.state.services
    return services


def _engine(services: Annotated[Services, Depends(services_of)]) -> SpeechEngine:
    return services.engine


ServicesDep = Annotated[Services, Depends(services_of)]
EngineDep = Annotated[SpeechEngine, Depends(_engine)]
