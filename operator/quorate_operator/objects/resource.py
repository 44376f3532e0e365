"""The Quorum resource as the API server returns it, and the CRD's defaults."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from quorate.rpc.wire.limits import parse_address

from quorate_operator import naming
from quorate_operator.crd.destination import Destination
from quorate_operator.crd.external import ExternalAccess
from quorate_operator.naming import (
    API_VERSION,
    APPROVED_ANNOTATION,
    CLIENT,
    KAFKA_SSL,
    KIND,
    NODES_MAX,
    VOLUME_SIZE,
    NodeIds,
    Object,
    client_name,
    client_secret,
    given_node_secret,
    named_client_secret,
    node_name,
    operator_secret,
    problem_of_annotation,
    problem_of_setting,
)
from quorate_operator.objects.claim_state import bytes_of
from quorate_operator.planning.plan import Desired


@dataclass(frozen=True, slots=True)
class QuorumResource:
    """One Quorum resource. The properties interpret `spec` and `status`."""

    name: str
    namespace: str
    uid: str = ""
    generation: int = 0
    created: str = ""
    deleted: bool = False
    fenced: frozenset[int] = frozenset()
    """The ordinals of the pods that the template fences (`made`); others are only to be fenced."""
    size: int = 0
    """The number of replicas of the StatefulSet (`made`), 0 without one."""
    voters: int | None = None
    """The number of committed voters (`budget`), None if it does not matter."""
    annotations: Mapping[str, str] = field(default_factory=dict)
    spec: Object = field(default_factory=dict)
    """The JSON object of the spec."""
    status: Object = field(default_factory=dict)
    """The JSON object of the status."""

    @classmethod
    def parse(cls, found: Object) -> QuorumResource:
        metadata = found["metadata"]
        return cls(
            name=metadata["name"],
            namespace=metadata["namespace"],
            uid=metadata.get("uid", ""),
            generation=metadata.get("generation", 0),
            created=metadata.get("creationTimestamp") or "",
            deleted=bool(metadata.get("deletionTimestamp")),
            annotations=metadata.get("annotations") or {},
            spec=found.get("spec") or {},
            status=found.get("status") or {},
        )

    @property
    def kind(self) -> str:
        return KIND

    def part(self, name: str) -> Object:
        """An object of the spec, empty if it is not set."""
        found: Object = self.spec.get(name) or {}
        return found

    @property
    def common_labels(self) -> dict[str, str]:
        """The labels of all of its objects and pods, besides the operator's."""
        return {**self.part("commonLabels")}

    @property
    def replicas(self) -> int:
        return int(self.spec.get("replicas", 3))

    @property
    def ids(self) -> NodeIds:
        return NodeIds(int(self.spec.get("firstNodeId", 0)))

    @property
    def known_cluster_id(self) -> str:
        """The id that the operator has reported, empty until it has."""
        return str(self.status.get("clusterId") or "")

    @property
    def cluster_id(self) -> str:
        """The cluster id that the Quorum must have; "" for any."""
        return str(self.spec.get("clusterId") or "")

    @property
    def is_migration(self) -> bool:
        """Whether the Quorum migrates, or has migrated, a cluster from ZooKeeper."""
        return bool(self.part("migration"))

    @property
    def is_migrating(self) -> bool:
        return self.is_migration and bool(self.part("migration").get("enabled", True))

    @property
    def zookeeper_secret(self) -> str:
        """The Secret with the files for TLS to ZooKeeper; "" if no connection uses TLS."""
        tls = self.part("migration").get("tls") or {}
        return str(tls.get("secretName") or "") if self.is_migrating else ""

    @property
    def image(self) -> str:
        return str(self.spec.get("image") or "")

    @property
    def given_secrets(self) -> tuple[str, ...]:
        """The Secrets that its pods mount or the operator reads, but that are not its own."""
        names = [self.zookeeper_secret] if self.zookeeper_secret else []
        if self.is_tls and not self.has_own_authority:
            nodes = map(self.ids.of, range(NODES_MAX))
            names += [given_node_secret(self.name, node) for node in nodes]
            names += [client_secret(self.name), operator_secret(self.name)]
        return tuple(names)

    @property
    def recovery_part(self) -> Object:
        """`spec.bootstrap.recovery`, empty without one."""
        found: Object = self.part("bootstrap").get("recovery") or {}
        return found

    @property
    def recovery(self) -> Destination | None:
        """The backup with which the Quorum begins; None to begin empty."""
        found = self.recovery_part
        return Destination(found.get("source") or {}, self.name) if found else None

    @property
    def is_takeover(self) -> bool:
        """Whether the Quorum takes over the quorum of Kafka's controllers."""
        return bool(self.part("takeover"))

    @property
    def kafka_controllers(self) -> dict[int, str]:
        """The addresses of the controllers of Kafka that the Quorum takes over, by node id."""
        found = self.part("takeover").get("controllers") or ()
        return {int(each["id"]): str(each["address"]) for each in found}

    @property
    def kafka_listener(self) -> str:
        """The name of the listener for Kafka's protocol."""
        return str(self.part("kafkaListener").get("name") or naming.KAFKA_LISTENER)

    @property
    def raft_listener(self) -> str:
        """The name of the listener for gRPC."""
        return naming.raft_listener(self.kafka_listener)

    @property
    def has_kafka_listener(self) -> bool:
        """Whether nodes have the Kafka listener. Migrated brokers keep it after the migration."""
        return self.is_migration or bool(self.part("kafkaListener").get("enabled", False))

    @property
    def kafka_listener_is_encrypted(self) -> bool:
        """Whether that listener is SSL. If the spec does not say so it is PLAINTEXT: that is what
        the brokers of a Quorum without the field use.
        """
        wanted = self.part("kafkaListener").get("protocol") == KAFKA_SSL
        return self.has_kafka_listener and wanted and self.is_tls

    @property
    def external(self) -> ExternalAccess | None:
        """`spec.external`; None without TLS, too, because only certificates protect it."""
        found = self.part("external")
        return ExternalAccess.parse(found) if found and self.is_tls else None

    @property
    def external_ordinals(self) -> range:
        """The ordinals of the nodes that are reached from outside.

        A surplus node, which may still lead, is reached until its pod is deleted.
        """
        count = 0 if self.external is None else max(self.replicas, self.size)
        return range(min(count, NODES_MAX))

    @property
    def is_tls(self) -> bool:
        return bool(self.part("tls").get("enabled", True))

    @property
    def has_own_authority(self) -> bool:
        """Whether the operator issues the certificates; else cert-manager does."""
        given = self.part("tls").get("certManager") or {}
        return self.is_tls and not given.get("enabled", False)

    @property
    def is_authorizing(self) -> bool:
        """Whether controllers have an authorizer.

        The operator knows the subjects only of certificates that it issues itself, and brokers
        have no certificate on a PLAINTEXT listener. In a takeover, brokers cannot be given their
        rights before a node leads: Kafka's leader may store no ACLs.
        """
        enabled = bool(self.part("authorization").get("enabled", True))
        has_anonymous = self.has_kafka_listener and not self.kafka_listener_is_encrypted
        may_grant = self.has_own_authority and not has_anonymous and not self.is_takeover
        return enabled and may_grant

    @property
    def clients(self) -> dict[str, bool]:
        """The named clients, and whether each is a super user."""
        found = self.spec.get("clients") or ()
        return {each["name"]: bool(each.get("superUser", False)) for each in found}

    @property
    def kafka_brokers(self) -> dict[str, int]:
        """The clients that are Kafka brokers, and the node id of each."""
        found = self.spec.get("clients") or ()
        return {each["name"]: int(each["brokerId"]) for each in found if "brokerId" in each}

    def client_hosts(self, secret: str) -> tuple[str, ...]:
        """The further names of a client's certificate. Controllers identify all nodes by `node-N`,
        and each other also by the host that they dial.
        """
        brokers = self.kafka_brokers
        named = {named_client_secret(self.name, name): node for name, node in brokers.items()}
        node = named.get(secret)
        if node is None:
            return ()
        address = self.kafka_controllers.get(node)
        return (node_name(node), *(() if address is None else (parse_address(address)[0],)))

    @property
    def client_secrets(self) -> dict[str, str]:
        """The Secrets of clients, and the common name of the certificate in each."""
        made = {client_secret(self.name): CLIENT}
        return made | {
            named_client_secret(self.name, name): client_name(name) for name in self.clients
        }

    @property
    def certificate_days(self) -> int:
        return int(self.part("tls").get("certificateDays", 90))

    @property
    def broker_certificates(self) -> int:
        return int(self.part("tls").get("brokerCertificates", 0))

    @property
    def authority_days(self) -> int:
        return int(self.part("tls").get("authorityDays", 3650))

    @property
    def authority_revision(self) -> int:
        return int(self.part("tls").get("authorityRevision", 1))

    @property
    def rotation_wait_s(self) -> float:
        return float(self.part("tls").get("rotationWaitSeconds", 300))

    @property
    def desired(self) -> Desired:
        return Desired(
            replicas=min(max(self.replicas, 1), NODES_MAX),
            cluster_id=self.cluster_id,
            paused=bool(self.spec.get("paused", False)),
            hibernated=bool(self.spec.get("hibernated", False)),
            deleted=self.deleted,
            replace_disks=self.spec.get("diskReplacement", "Automatic") == "Automatic",
            is_supervised=self.part("rollout").get("approval", "Automatic") == "Manual",
            approved_rollout=self.annotations.get(APPROVED_ANNOTATION, ""),
            invalid=self._invalid(),
            invalid_template=self._invalid_template(),
            recovers=self.recovery is not None,
            is_takeover=self.is_takeover,
            rolls_back=bool(self.part("takeover").get("rollBack", False)),
            fenced=naming.ordinals_of(self.name, self._to_fence),
            unknown_members=tuple(
                name
                for name, ordinal in naming.members(self.name, self._to_fence).items()
                if ordinal is None
            ),
            volume_size=self.volume_size,
            volume_bytes=bytes_of(self.volume_size),
            volume_class=self.volume_class,
        )

    @property
    def _to_fence(self) -> str:
        return str(self.annotations.get(naming.FENCED_ANNOTATION, ""))

    @property
    def volume_size(self) -> str:
        return str(self.part("storage").get("size") or VOLUME_SIZE)

    @property
    def volume_class(self) -> str:
        """The StorageClass of new volumes, "" for the cluster's default."""
        return str(self.part("storage").get("storageClassName") or "")

    def _invalid(self) -> str:
        """Why the spec is invalid, "" if it is not; an older CRD may not have rejected it."""
        if not 1 <= self.replicas <= NODES_MAX:
            return f"replicas is {self.replicas}: expected 1 to {NODES_MAX}"
        for name, node in self.kafka_brokers.items():
            if self.ids.ordinal(node) is not None:
                return f"the client {name} has brokerId {node}, which is a controller's id"
        if self.recovery is not None and self.recovery.problem:
            return f"bootstrap.recovery.source: {self.recovery.problem}"
        if self.recovery is not None and self.is_migration:
            return "a migration cannot begin with a backup"
        if self.is_migration and not (self.cluster_id and self.ids.first):
            return "a migration needs clusterId and firstNodeId"
        return self._invalid_takeover() if self.is_takeover else ""

    def _invalid_takeover(self) -> str:
        if self.is_migration or self.recovery is not None:
            return "a takeover can begin neither with a backup nor with a migration"
        if not (self.cluster_id and self.ids.first):
            return "a takeover needs clusterId and firstNodeId"
        if not (self.has_kafka_listener and self.part("kafkaListener").get("name")):
            return "a takeover needs kafkaListener.enabled and kafkaListener.name"
        if self.is_tls and not self.kafka_listener_is_encrypted:
            return f"a takeover needs kafkaListener.protocol {KAFKA_SSL}, or tls.enabled false"
        if self.spec.get("hibernated", False):
            return "a quorum cannot hibernate during a takeover"
        for node in self.kafka_controllers:
            if self.ids.ordinal(node) is not None:
                return f"takeover.controllers has id {node}, which is that of a pod"
        return ""

    def _invalid_template(self) -> str:
        """Why no pods may be made from the spec, "" if they may."""
        for name in sorted(self.part("config")):
            problem = problem_of_setting(name)
            if problem:
                return problem
        for name, value in sorted((self.part("podTemplate").get("annotations") or {}).items()):
            problem = problem_of_annotation(name, value)
            if problem:
                return problem
        return ""

    @property
    def owner(self) -> Object:
        """The owner reference, by which Kubernetes deletes an object with its Quorum."""
        return {
            "apiVersion": API_VERSION,
            "kind": KIND,
            "name": self.name,
            "uid": self.uid,
            "controller": True,
            "blockOwnerDeletion": False,
        }
