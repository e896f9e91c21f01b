"""Clients for any number of the listeners of `app.commands.bench.listeners`."""

import httpx2

from app.commands.bench.listeners import ReceivedSpeech

TIMEOUT_S = 120.0


def open_client(url: str) -> httpx2.AsyncClient:
    """Return a client without a limit of concurrent connections."""
    limits = httpx2.Limits(max_connections=None, max_keepalive_connections=None)
    return httpx2.AsyncClient(base_url=url, timeout=TIMEOUT_S, limits=limits, trust_env=False)


async def codes_sha256(client: httpx2.AsyncClient, received: ReceivedSpeech) -> str:
    """Return the hash of a response's codes, from its headers or, if streamed, its report."""
    if (whole := received.headers.get("x-codes-sha256")) is not None:
        return whole
    report = await client.get(f"/v1/audio/speech/{received.id}")
    return str(report.raise_for_status().json()["codes_sha256"])
