"""Which replica gets a request: the one with the fewest, of all of them.

Ray's own router compares two at random. Where a replica has few rows, some replica then has more
requests than rows while a row of another is free, and who waits there waits for a whole speech.
"""

import random

from ray.serve.request_router import (
    FIFOMixin,
    PendingRequest,
    RequestRouter,
    RunningReplica,
)


class LeastRequestsRouter(FIFOMixin, RequestRouter):  # type: ignore[misc]  # Ray has no types
    """Sends each request, in the order of arrival, to the replica with the fewest under way.

    Requests are counted by the proxy, and corrected by what a replica tells with each that it
    takes, so that several proxies agree. WebSockets count for as long as they are open.
    """

    async def choose_replicas(
        self,
        candidate_replicas: list[RunningReplica],
        pending_request: PendingRequest | None = None,
    ) -> list[list[RunningReplica]]:
        """Return all replicas as one rank, of which Ray takes that with the fewest requests.

        Args:
            pending_request: The request; that it has been tried is noted in it.
        """
        if pending_request is not None:
            pending_request.routing_context.should_backoff = True
        # Among equal ones the first is taken.
        return [random.sample(candidate_replicas, len(candidate_replicas))]
