"""The route `/metrics`."""

import asyncio

from fastapi import APIRouter, Request, Response
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from app.api.services import ServicesDep

metrics_router = APIRouter(tags=["health"])


@metrics_router.get(
    "/metrics", response_class=Response, responses={200: {"content": {"text/plain": {}}}}
)
async def get_metrics(request: Request, services: ServicesDep) -> Response:
    """Return all metrics in Prometheus' text format or OpenMetrics."""
    services.http_metrics.voices.set(await asyncio.to_thread(services.voice_store.count))
    both = CollectorRegistry()
    both.register(services.engine.metrics.registry)
    both.register(services.http_metrics.registry)
    try:
        encode, media_type = choose_encoder(request.headers.get("accept", ""))
        content = encode(both)
    except (TypeError, ValueError):  # the Accept header names an unknown version
        encode, media_type = choose_encoder("")
        content = encode(both)
    return Response(content, media_type=media_type)
