"""The fields of the custom resource for the takeover of Kafka's controllers, and their rules."""

from __future__ import annotations

from typing import Final

from quorate_operator.crd import schema
from quorate_operator.crd.rules import Schema, kept_as_created
from quorate_operator.naming import KAFKA_SSL, NODES_MAX, RAFT_LISTENER

ADDRESS: Final = (
    r"^([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]):"
    r"([1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])$"
)
"""A host name, an IPv4 address or one of IPv6 in brackets, and a port."""
RULES_OF_LISTENER: Final[list[Schema]] = [
    kept_as_created("name"),
    {
        "rule": f"!has(self.name) || self.name != '{RAFT_LISTENER}'",
        "message": f"the name {RAFT_LISTENER} is that of the listener for gRPC",
    },
]
"""Rules of `spec.kafkaListener`."""

KEPT_UNTIL_COMPLETE: Final[Schema] = {
    "rule": "!has(oldSelf.spec.takeover) || has(self.spec.takeover) || (has(oldSelf.status) && "
    "has(oldSelf.status.takeover) && oldSelf.status.takeover.phase == 'Complete' && "
    "!(has(oldSelf.spec.takeover.rollBack) && oldSelf.spec.takeover.rollBack))",
    "message": "spec.takeover cannot be removed before status.takeover.phase is Complete",
}
"""A rule of the resource."""


def takeover() -> Schema:
    """`spec.takeover`."""
    controller = schema.object(
        "",
        {
            "id": schema.integer("Its node.id.", minimum=0),
            "address": schema.text(
                "HOST:PORT of its listener, as the pods and Kafka's controllers reach it.",
                pattern=ADDRESS,
                maxLength=300,
            ),
        },
        required=["id", "address"],
    )
    return schema.object(
        "Takes over the quorum of Kafka's controllers (4.0 or later, kraft.version 1): the pods "
        "become voters in place of them, one at a time, while brokers keep running. Needs "
        "clusterId, firstNodeId and kafkaListener.name. It can be removed once "
        "status.takeover.phase is Complete: the pods then restart one at a time, and talk to each "
        "other by gRPC.",
        {
            "controllers": {
                "type": "array",
                "description": "All of Kafka's controllers.",
                "minItems": 1,
                "maxItems": NODES_MAX,
                "items": controller,
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["id"],
            },
            "rollBack": schema.boolean(
                "Makes Kafka's controllers, which must run, the voters again, and the pods "
                "observers.",
                default=False,
            ),
        },
        required=["controllers"],
    )


def status_of_takeover() -> Schema:
    """`status.takeover`."""
    return schema.object(
        "Progress of the takeover of Kafka's controllers, as last reported by the leader.",
        {
            "phase": schema.text("Joining, TakingOver, Complete, RollingBack or RolledBack."),
            "kafkaVoters": {
                "type": "array",
                "description": "The node ids of Kafka's controllers that are voters.",
                "items": {"type": "integer"},
            },
        },
        nullable=True,
    )


def rules_of_takeover() -> list[Schema]:
    """Rules of the spec."""
    without = "!has(self.takeover) || "
    rules = {
        "has(oldSelf.takeover) || !has(self.takeover)": "takeover cannot be added later",
        "!has(oldSelf.takeover) || has(self.takeover) || (has(self.kafkaListener) && "
        "self.kafkaListener.enabled)": (
            "kafkaListener.enabled must stay when takeover is removed: Kafka's brokers connect to "
            "that listener"
        ),
        f"{without}!has(self.bootstrap)": "a takeover cannot begin with a backup",
        f"{without}!has(self.hibernated) || !self.hibernated": (
            "a quorum cannot hibernate during a takeover: Kafka's controllers need its voters"
        ),
        f"{without}!has(self.migration)": "a takeover and a migration exclude each other",
        f"{without}has(self.clusterId)": (
            "a takeover needs clusterId, the id of the cluster of Kafka's controllers"
        ),
        f"{without}self.firstNodeId > 0": (
            "a takeover needs firstNodeId, such as 3100: no controller or broker of Kafka may "
            "have the id of a pod"
        ),
        f"{without}self.takeover.controllers.all(c, c.id < self.firstNodeId || "
        f"c.id >= self.firstNodeId + {NODES_MAX})": "takeover.controllers has an id of a pod",
        f"{without}(has(self.kafkaListener) && self.kafkaListener.enabled && "
        "has(self.kafkaListener.name))": (
            "a takeover needs kafkaListener.enabled, and the kafkaListener.name that the listener "
            "of Kafka's controllers has, such as CONTROLLER"
        ),
        f"{without}(has(self.tls) && has(self.tls.enabled) && !self.tls.enabled) || "
        "(has(self.kafkaListener) && has(self.kafkaListener.protocol) && "
        f"self.kafkaListener.protocol == '{KAFKA_SSL}')": (
            f"a takeover needs kafkaListener.protocol {KAFKA_SSL}, or tls.enabled false: nodes "
            "authenticate to each other on all listeners or on none"
        ),
    }
    return [{"rule": rule, "message": message} for rule, message in rules.items()]
