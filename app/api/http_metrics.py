"""What the wire counts, beside what the engine does; and all of it as Prometheus reads it."""

import platform
from importlib.metadata import version

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info
from prometheus_client.process_collector import ProcessCollector

_LATENCIES_S = (0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0, 300.0)
_METHODS = frozenset({"GET", "HEAD", "POST", "DELETE", "OPTIONS", "WS"})
_NO_ROUTE = "none"  # unknown, or refused before anybody asked where it leads
_OTHER = "other"


class HttpMetrics:
    """Counters of one application; its labels are few, whatever callers send.

    Attributes:
        registry: Where they are, with those of the process.
        requests: Requests that are over, by ``method``, ``route`` (a template) and ``status``.
        seconds: How long requests took to the last byte, by ``route``; WebSockets are left out.
        sessions: WebSocket sessions that are open.
        working: Pieces of work that were let in and are not over.
        voices: Voices that were uploaded, of all owners; set by whoever reads them.
    """

    def __init__(self) -> None:
        """Begin with zeros, in a registry of their own."""
        self.registry = registry = CollectorRegistry()
        self.requests = Counter(
            "tts_http_requests",
            "Requests that are over.",
            ["method", "route", "status"],
            registry=registry,
        )
        self.seconds = Histogram(
            "tts_http_request_seconds",
            "Request to last byte.",
            ["route"],
            buckets=_LATENCIES_S,
            registry=registry,
        )
        self.sessions = Gauge("tts_live_sessions", "Open WebSocket sessions.", registry=registry)
        self.working = Gauge("tts_http_working", "Work that is not over.", registry=registry)
        self.voices = Gauge(
            "tts_uploaded_voices", "Uploaded voices, of all owners.", registry=registry
        )
        build = Info("tts_build", "What runs here.", registry=registry)
        build.info({"version": version("valle-serve"), "python": platform.python_version()})
        ProcessCollector(registry=registry)

    def count(self, method: str, route: str | None, status: int, seconds: float) -> None:
        """Count a request that is over.

        Args:
            method: Of HTTP, or WS.
            route: The template of its path, where it came to one.
            status: As it was sent.
            seconds: To the last byte.
        """
        route = route or _NO_ROUTE
        self.requests.labels(method if method in _METHODS else _OTHER, route, str(status)).inc()
        if method != "WS":
            self.seconds.labels(route).observe(seconds)
