"""Which replica is chosen by Ray's selection from what our router gives it."""

from types import SimpleNamespace

import pytest

pytest.importorskip("ray", reason="needs the package ray")
pytestmark = [pytest.mark.anyio, pytest.mark.filterwarnings("ignore")]


def router_of(lengths: dict[str, int], most: int = 100):
    """A router that knows how many requests each replica has."""
    from ray.serve._private.request_router.common import ReplicaQueueLengthCache

    from app.cluster.router import LeastRequestsRouter

    router = LeastRequestsRouter.__new__(LeastRequestsRouter)
    router._use_replica_queue_len_cache = True
    router._replica_queue_len_cache = ReplicaQueueLengthCache()
    router._replicas = {
        name: SimpleNamespace(replica_id=name, max_ongoing_requests=most) for name in lengths
    }
    for name, length in lengths.items():
        router._replica_queue_len_cache.update(name, length)
    return router


async def chosen(router) -> str:
    (rank,) = await router.choose_replicas(list(router._replicas.values()))
    replica = await router._select_from_candidate_replicas(rank, 0)
    return str(replica.replica_id)


async def test_the_replica_with_the_fewest_requests_of_all_is_chosen() -> None:
    router = router_of({"a": 4, "b": 5, "c": 3, "d": 4, "e": 9})
    assert {await chosen(router) for _ in range(20)} == {"c"}


async def test_equal_ones_take_turns_by_chance() -> None:
    router = router_of({"a": 2, "b": 2, "c": 2, "d": 3})
    assert {await chosen(router) for _ in range(100)} == {"a", "b", "c"}


async def test_as_many_requests_as_rows_leave_no_row_free() -> None:
    router = router_of(dict.fromkeys("abcd", 0))
    for _ in range(16):
        name = await chosen(router)
        length = router._replica_queue_len_cache.get(name)
        router._replica_queue_len_cache.update(name, length + 1)
    assert [router._replica_queue_len_cache.get(name) for name in "abcd"] == [4] * 4


async def test_a_request_that_no_replica_takes_waits_between_attempts() -> None:
    request = SimpleNamespace(routing_context=SimpleNamespace(should_backoff=False))
    await router_of({"a": 1}).choose_replicas([], request)
    assert request.routing_context.should_backoff
