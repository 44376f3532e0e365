"""The part of the plan that enlarges volumes: one claim at a time, and nothing is ever deleted.

Whether a volume can grow is decided by the API server, which knows the StorageClass, the quotas and
the operator's permissions; its message is reported. The size in the StatefulSet cannot be changed,
so new volumes begin with that size, and grow once they exist.

It needs no leader: a full disk may be the reason why there is none.
"""

from __future__ import annotations

from collections.abc import Iterator

from quorate_operator.planning.values import (
    Desired,
    ExpandVolume,
    Observed,
    ObservedClaim,
    OperatorPlan,
    PlanRefusal,
    Reason,
)


def expand(desired: Desired, observed: Observed) -> OperatorPlan:
    """Enlarge the first volume that is too small, unless another one is still growing."""
    wanted = desired.volume_bytes
    claims = [each for each in observed.claims if _is_used(desired, observed, each)]
    refusals = [*_too_large(desired, observed, claims)]
    growing = [each for each in claims if each.capacity < wanted == each.requested]
    if growing:
        return OperatorPlan(refusals=(*refusals, *(_growing(desired, observed, growing))))
    for claim in claims:
        if claim.capacity >= wanted:
            continue
        action = ExpandVolume(claim.ordinal, desired.volume_size)
        node = observed.ids.of(claim.ordinal)
        text = f"expand the volume of node {node} from {claim.size} to {desired.volume_size}"
        failure = observed.failure_of(action)
        if not failure:
            return OperatorPlan(action, text, tuple(refusals))
        refusals.append(PlanRefusal(Reason.EXPANSION_REFUSED, f"cannot {text}: {failure}"))
    return OperatorPlan(refusals=tuple(refusals))


def _is_used(desired: Desired, observed: Observed, claim: ObservedClaim) -> bool:
    """Whether a wanted node has the volume: the others are kept as they are."""
    is_wanted = claim.ordinal < desired.replicas
    return is_wanted and claim.capacity > 0 and observed.node(claim.ordinal) is not None


def _too_large(
    desired: Desired, observed: Observed, claims: list[ObservedClaim]
) -> Iterator[PlanRefusal]:
    wanted = desired.volume_bytes
    for claim in claims:
        if wanted and claim.requested > wanted < claim.capacity:
            yield PlanRefusal(
                Reason.EXPANSION_REFUSED,
                f"the volume of node {observed.ids.of(claim.ordinal)} has {claim.size}, and "
                f"storage.size is {desired.volume_size}: a volume cannot become smaller",
            )


def _growing(
    desired: Desired, observed: Observed, claims: list[ObservedClaim]
) -> Iterator[PlanRefusal]:
    for claim in claims:
        node = observed.ids.of(claim.ordinal)
        text = f"the volume of node {node} grows from {claim.size} to {desired.volume_size}"
        shown = f"{text}: {claim.problem}" if claim.problem else text
        yield PlanRefusal(Reason.EXPANDING, shown)
