"""When the PodDisruptionBudget of a Quorum is to be changed: it follows the voters, too.

While a quorum grows or shrinks, and while a lost disk is replaced, there are fewer voters than
wanted or more. Without a leader nobody knows how many there are, so the budget stays as it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from quorate_operator.kube.ownership import is_controlled_by
from quorate_operator.naming import Object
from quorate_operator.objects import manifests
from quorate_operator.objects.made import as_made
from quorate_operator.objects.resource import QuorumResource
from quorate_operator.planning.values import Observed

KIND = "PodDisruptionBudget"


def with_voters(
    quorum: QuorumResource, stateful_set: Object | None, observed: Observed
) -> QuorumResource:
    """The Quorum as it is made (`made`), with the number of its voters."""
    view = observed.view
    count = len(observed.known_voters)
    if view is not None:
        count = min(len(view.voters), len(view.committed))
    return replace(as_made(quorum, stateful_set), voters=count)


def stale_budget(
    quorum: QuorumResource, found: Object | None, stateful_set: Object | None, observed: Observed
) -> Iterator[str]:
    """Yield the budget's name if it is to be created, changed or deleted. found: what exists."""
    name = f"{KIND}/{quorum.name}"
    if found is not None and not is_controlled_by(found, quorum.uid):
        return
    if found is not None and observed.view is None:
        return
    wanted = manifests.objects(with_voters(quorum, stateful_set, observed)).get(name)
    if wanted is None:
        is_stale = found is not None and not found["metadata"].get("deletionTimestamp")
    else:
        is_stale = found is None or manifests.stamp_of(found) != manifests.stamp_of(wanted)
    if is_stale:
        yield name
