"""Ray's selection takes the replica with the fewest requests of the first rank."""

from types import SimpleNamespace

import pytest

pytest.importorskip("ray", reason="needs the package ray")
pytestmark = [pytest.mark.anyio, pytest.mark.filterwarnings("ignore")]


async def test_all_replicas_are_one_rank_in_an_order_by_chance() -> None:
    from deploy.ray.router import LeastRequestsRouter

    request = SimpleNamespace(routing_context=SimpleNamespace(should_backoff=False))
    router = LeastRequestsRouter.__new__(LeastRequestsRouter)
    firsts = set()
    for _ in range(100):
        (rank,) = await router.choose_replicas([*"abcd"], request)
        assert sorted(rank) == [*"abcd"]
        firsts.add(rank[0])
    assert firsts == {*"abcd"}, "equal ones take turns"
    assert request.routing_context.should_backoff, "one that no replica takes waits"
