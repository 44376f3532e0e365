"""What the plan waits for, besides the reasons why it holds steps back."""

from __future__ import annotations

from collections.abc import Iterator

from quorate.raft.types import ReplicaKey

from quorate_operator.planning.values import (
    Desired,
    LeaderView,
    Observed,
    ObservedNode,
    PlanRefusal,
    Reason,
)


def failing_pods(observed: Observed) -> Iterator[PlanRefusal]:
    """Yield the pods that do not run, and do not begin to by waiting."""
    for pod in observed.rejected_pods:
        text = f"node {observed.ids.of(pod.ordinal)}: its pod cannot be created: {pod.text}"
        yield PlanRefusal(Reason.POD_FAILING, text)
    for node in observed.nodes:
        if is_failing(node):
            yield PlanRefusal(Reason.POD_FAILING, f"node {node.id}: {node.problem}")


def expired_certificates(observed: Observed) -> Iterator[PlanRefusal]:
    """Yield the certificates that only their issuer can renew."""
    for text in observed.expired_certificates:
        yield PlanRefusal(Reason.CERTIFICATE_EXPIRED, text)


def pending_balancers(observed: Observed) -> Iterator[PlanRefusal]:
    """Yield the load balancers that have no address. Nothing else waits for them."""
    for name in observed.pending_balancers:
        text = f"Service/{name}: its load balancer has no address yet"
        yield PlanRefusal(Reason.LOAD_BALANCER_PENDING, text)


def missing_voters(
    desired: Desired, observed: Observed, view: LeaderView, alive: frozenset[ReplicaKey]
) -> Iterator[PlanRefusal]:
    """Yield the wanted nodes that are not live voters, and for which nothing can be done."""
    for ordinal in range(desired.replicas):
        node = observed.node(ordinal)
        node_id = observed.ids.of(ordinal)
        voter = next((v for v in view.voters if v.id == node_id), None)
        if voter is not None and voter in alive:
            continue
        if any(pod.ordinal == ordinal for pod in observed.rejected_pods):
            continue  # reported as such
        if node is None:
            problem = "it has no pod"
        elif node.terminating:
            problem = "its pod is being deleted"
        elif node.is_fenced or is_failing(node):
            continue  # reported as such
        elif not node.answers:
            problem = node.problem or "it does not answer"
        elif voter is None or node.key != voter:
            continue  # an earlier refusal has the details
        else:
            problem = "it has not caught up with the leader"
        yield PlanRefusal(Reason.WAITING_FOR_PODS, f"node {node_id}: {problem}")


def is_failing(node: ObservedNode) -> bool:
    """Whether a pod does not run, and does not begin to by waiting."""
    return node.is_failing and not node.answers and not node.terminating
