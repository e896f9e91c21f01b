"""Metrics of HTTP and of the process; those of the engine are its own."""

import platform

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info
from prometheus_client.process_collector import ProcessCollector

from app.version import VERSION

_LATENCIES_S = (0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0, 300.0)
_COUNTED_METHODS = frozenset({"GET", "HEAD", "POST", "DELETE", "OPTIONS", "WS"})
_NO_ROUTE = "none"  # unknown path, or refused before routing
_OTHER = "other"


class HttpMetrics:
    """Metrics of one application and its process; labels are bounded, whatever clients send."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        self.requests = Counter(
            "tts_http_requests",
            "Completed HTTP requests and WebSocket sessions.",
            ["method", "route", "status"],
            registry=registry,
        )
        self.seconds = Histogram(
            "tts_http_request_seconds",
            "Seconds from an HTTP request to the last byte of its response.",
            ["route"],
            buckets=_LATENCIES_S,
            registry=registry,
        )
        self.sessions = Gauge("tts_live_sessions", "Open WebSocket sessions.", registry=registry)
        self.working = Gauge(
            "tts_http_working", "Speeches and uploads in progress.", registry=registry
        )
        self.voices = Gauge(
            "tts_uploaded_voices", "Uploaded voices, of all owners.", registry=registry
        )
        build = Info("tts_build", "Versions of the service and of Python.", registry=registry)
        build.info({"version": VERSION, "python": platform.python_version()})
        ProcessCollector(registry=registry)

    def count(self, method: str, route: str | None, status: int, seconds: float) -> None:
        """Count a completed request by its route's path template; None if it reached none."""
        route = route or _NO_ROUTE
        self.requests.labels(
            method if method in _COUNTED_METHODS else _OTHER, route, str(status)
        ).inc()
        if method != "WS":
            self.seconds.labels(route).observe(seconds)
