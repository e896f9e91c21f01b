"""The replica with the fewest requests of all.

Ray's own router compares two at random: where replicas have few rows, requests then wait for a row
at one replica while a row of another is free.
"""

import random

from ray.serve.request_router import FIFOMixin, PendingRequest, RequestRouter, RunningReplica


class LeastRequestsRouter(FIFOMixin, RequestRouter):  # type: ignore[misc]  # Ray has no types
    """Sends each request, in order of arrival, to the replica with the fewest in progress."""

    async def choose_replicas(
        self,
        candidate_replicas: list[RunningReplica],
        pending_request: PendingRequest | None = None,
    ) -> list[list[RunningReplica]]:
        """Return all replicas as one rank, of which Ray takes the one with the fewest requests."""
        if pending_request is not None:
            pending_request.routing_context.should_backoff = True
        # Among equal ones Ray takes the first.
        return [random.sample(candidate_replicas, len(candidate_replicas))]
