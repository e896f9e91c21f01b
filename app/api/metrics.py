"""What is counted, as Prometheus reads it."""

import asyncio

from fastapi import APIRouter, Request, Response
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

metrics_router = APIRouter(tags=["health"])


@metrics_router.get(
    "/metrics", response_class=Response, responses={200: {"content": {"text/plain": {}}}}
)
async def get_metrics(request: Request) -> Response:
    """Tell what was counted since the start: the engine's work, requests, voices, the process."""
    state = request.app.state
    state.http_metrics.voices.set(await asyncio.to_thread(state.voice_store.count))
    both = CollectorRegistry()
    both.register(state.engine.metrics.registry)
    both.register(state.http_metrics.registry)
    try:
        encode, media_type = choose_encoder(request.headers.get("accept", ""))
        told = encode(both)
    except (TypeError, ValueError):  # it asks for a version that is none
        encode, media_type = choose_encoder("")
        told = encode(both)
    return Response(told, media_type=media_type)
