"""What a client knows about the addresses of the nodes and of their leader."""

from __future__ import annotations

from quorate.common.endpoints import Endpoint
from quorate.raft.messages import CurrentLeader
from quorate.rpc.client.routing import Route


def test_old_news_of_a_leader_are_not_followed() -> None:
    route = Route([("a", 1)])
    new, old = Endpoint("C", "b", 2), Endpoint("C", "c", 3)
    assert route.learn(CurrentLeader(5, 2, (new,))) == (("b", 2),)
    assert route.learn(CurrentLeader(4, 3, (old,))) == ()
    assert route.order()[0] == ("b", 2)
    route.lost(("b", 2))
    assert route.order() == [("a", 1), ("b", 2)]


def test_a_leader_that_is_reached_elsewhere_stays_known() -> None:
    """Outside of a cluster, nodes name the leader by an address that cannot be reached."""
    route = Route([("a", 1), ("b", 1)])
    inside = Endpoint("C", "inside", 2)
    named = CurrentLeader(5, 2, (inside,))
    assert route.learn(named) == (("inside", 2),)
    route.lost(("inside", 2))
    assert route.learn(named) == ()
    route.confirm(("b", 1), 5)
    route.learn(named)
    assert route.order() == [("b", 1), ("a", 1), ("inside", 2)]
    # If it answers no more, or in the next epoch, the address that is named is worth a try.
    route.lost(("b", 1))
    assert route.order()[0] == ("a", 1)
    assert route.learn(CurrentLeader(6, 2, (inside,))) == (("inside", 2),)
    assert route.order()[0] == ("inside", 2)
