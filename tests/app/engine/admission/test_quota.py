"""What one client may have of a pool of places."""

from contextlib import ExitStack

from app.engine.admission.quota import ClientQuota, share


def test_a_share_of_places_is_held_and_given_back():
    places = ClientQuota(5)
    with ExitStack() as held:
        for _ in range(share(5)):
            assert places.free("greedy")
            held.enter_context(places.held("greedy"))
        assert not places.free("greedy")
        assert places.free("stranger")
        with places.held("stranger"):
            assert not places.free("another")
        assert places.taken == share(5)
    assert places.taken == 0
    assert places.free("greedy")
