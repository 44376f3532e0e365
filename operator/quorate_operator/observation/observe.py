"""Observes one Quorum: its Kubernetes objects, and the state that its nodes and leader report.

Reads only. An object that has the name of one of the Quorum's objects but is not its own counts as
missing and is reported in `Observed.conflicts`. The observer reads Kubernetes first, then requests
NodeStatus from every pod that has an address, then the leader's view from the quorum. A node that
answers with another node id counts as not answering.
"""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from quorate.metadata.requests import Acl, DescribeAcls
from quorate.raft.messages import ReplicaStatus
from quorate.raft.types import ReplicaKey
from quorate.rpc.client.quorum_client import ClientError, QuorumClient, UnreachableError
from quorate.rpc.metadata_client import MetadataClient
from quorate.rpc.tls import TlsConfig
from quorate.rpc.wire.limits import ChannelLimits, format_address
from quorate.rpc.wire.values import NodeStatus, QuorumDescription

from quorate_operator import naming
from quorate_operator.crd.external import ExternalAddress
from quorate_operator.kube.api import Kube
from quorate_operator.kube.job_state import JobRun
from quorate_operator.kube.ownership import controller_of, is_controlled_by
from quorate_operator.kube.pod_state import (
    is_outdated,
    is_pending,
    is_ready,
    keeps_volumes,
    outlives_set,
    pod_failure,
    pod_ip,
    pod_problem,
    update_revision,
    wrong_ensemble,
)
from quorate_operator.naming import Object
from quorate_operator.objects import broker_rights, budget, manifests, recovery
from quorate_operator.objects.authority import (
    Authority,
    Phase,
    authority_of,
    is_step_due,
    secret_files,
)
from quorate_operator.objects.certificates import Issuer, has_other_names, lack_names
from quorate_operator.objects.claim_state import observed_claim
from quorate_operator.objects.made import as_made, claims_of, class_of, fenced_by, fenced_in
from quorate_operator.objects.resource import QuorumResource
from quorate_operator.observation.given_secrets import (
    Secrets,
    expired,
    operator_files,
    read_secrets,
    unlabelled,
)
from quorate_operator.observation.owned import Owned, by_ordinal
from quorate_operator.observation.pod_creation import rejected_pods
from quorate_operator.observation.progress import MigrationProgress, read_progress
from quorate_operator.observation.settings import problem_of_config
from quorate_operator.planning.plan import BootstrapRecord, LeaderView, Observed, ObservedNode
from quorate_operator.planning.values import CLAIM_DELETED
from quorate_operator.planning.windows import closed

CAUGHT_UP_MS = 3_000
"""A replica that reached the leader's log end within this time, by its clock, is caught up."""
STATUS_TIMEOUT_S = 2.0
CALL_TIMEOUT_MS = 10_000
DESCRIBE_TIMEOUT_MS = 3_000
"""The timeout of `_describe`: a quorum whose nodes all hang does not hold up the others longer."""
Locate = Callable[[str, str, int], tuple[str, int]]
"""Returns a node's host and port, given its Quorum's name and namespace and its ordinal."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """`observed` is the plan's input; the other fields are for actions and the status."""

    observed: Observed
    stateful_set: Object | None = None
    pods: dict[int, Object] = field(default_factory=dict)
    """By ordinal, as are `claims` and `statuses`."""
    claims: dict[int, Object] = field(default_factory=dict)
    statuses: dict[int, NodeStatus] = field(default_factory=dict)
    description: QuorumDescription | None = None
    authority: Authority | None = None
    keys_created: str = ""
    """When the operator's Secret of the nodes' keys was created; "" if there is none. Timestamps
    compare as text.
    """
    given: Mapping[str, str] = field(default_factory=dict)
    """The operator's certificate files from another issuer (cert-manager); empty without one."""
    progress: MigrationProgress | None = None
    """The migration's progress; None without a migration, or if the leader does not answer."""
    external: Mapping[int, ExternalAddress] = field(default_factory=dict)
    """The outside address of each node that has a Service for it, by ordinal."""
    budget: Object | None = None
    """The PodDisruptionBudget of that name, whoever owns it."""
    is_asked: bool = True
    """Whether the nodes were asked; with TLS, not before the operator has a certificate."""

    @property
    def ready_count(self) -> int:
        return sum(node.ready for node in self.observed.nodes)


class Observer:
    """Observes Quorums. images: the allowed image repositories of pods; empty: any."""

    def __init__(
        self, kube: Kube, locate: Locate = naming.place, images: Collection[str] = ()
    ) -> None:
        self._kube = kube
        self._locate = locate
        self._images = images

    async def observe(
        self, quorum: QuorumResource, tls: TlsConfig | None, probe: TlsConfig | None = None
    ) -> Snapshot:
        """Observe one Quorum. Raises KubeError, CertificateError. For the arguments, see `poll`."""
        return await self.poll(quorum, await self.read(quorum), tls, probe)

    async def read(self, quorum: QuorumResource) -> Snapshot:
        """Read the Kubernetes objects. Raises KubeError, CertificateError."""
        return await asyncio.to_thread(self._read, quorum)

    async def poll(
        self,
        quorum: QuorumResource,
        seen: Snapshot,
        tls: TlsConfig | None,
        probe: TlsConfig | None = None,
    ) -> Snapshot:
        """Ask the nodes and their leader, without a request to the API server.

        seen: the Kubernetes objects, from `read`. tls: the configuration for connections to nodes;
        None without TLS, and before the operator has a certificate. probe: see `Identity.probe`.
        """
        statuses: dict[int, NodeStatus] = {}
        problems: dict[int, str] = {}
        description = None
        is_asked = tls is not None or not quorum.is_tls
        stale = seen.observed.stale
        # Nodes and clients must have the certificates of one step before the next one.
        has_secrets = not any(name.startswith("Secret/") for name in stale)
        if has_secrets and await self._is_authority_due(quorum, seen, probe):
            stale = (f"Secret/{naming.authority_secret(quorum.name)}", *stale)
        if is_asked:
            statuses, problems = await self._ask_nodes(quorum, seen.pods, tls)
            formatted = [ordinal for ordinal, status in statuses.items() if status.formatted]
            if formatted:
                description = await _describe(quorum, formatted, tls, self._locate)
        nodes = tuple(
            _node(ordinal, pod, seen, statuses.get(ordinal), problems.get(ordinal, ""))
            for ordinal, pod in sorted(seen.pods.items())
        )
        view = leader_view(description)
        observed = replace(
            seen.observed,
            closed_window=closed(
                quorum.part("rollout").get("windows") or (), dt.datetime.now(dt.UTC)
            ),
            nodes=nodes,
            view=view,
            known_voters=_known_voters(quorum, description),
            brokers_without_rights=await _without_rights(quorum, view, tls, self._locate),
        )
        late = budget.stale_budget(quorum, seen.budget, seen.stateful_set, observed)
        observed = replace(observed, stale=(*stale, *late))
        return replace(
            seen,
            observed=observed,
            statuses=statuses,
            description=description,
            progress=await _progress(quorum, seen.pods, view),
            is_asked=is_asked,
        )

    async def _is_authority_due(
        self, quorum: QuorumResource, seen: Snapshot, probe: TlsConfig | None
    ) -> bool:
        """Whether the next step of the authority's rotation is due (`authority.py`)."""
        authority = seen.authority
        if authority is None or not quorum.has_own_authority:
            return False
        confirmed: set[int] = set()
        if authority.phase is not Phase.STABLE:
            if probe is None:
                return False
            statuses, _ = await self._ask_nodes(quorum, seen.pods, probe)
            confirmed = set(statuses)
        # A fenced member reads its files when its controller starts again.
        running = {n for n, pod in seen.pods.items() if n not in _fenced(pod)}
        return is_step_due(
            authority,
            quorum.authority_revision,
            quorum.rotation_wait_s,
            running,
            confirmed,
        )

    async def _ask_nodes(
        self, quorum: QuorumResource, pods: Mapping[int, Object], tls: TlsConfig | None
    ) -> tuple[dict[int, NodeStatus], dict[int, str]]:
        """Request NodeStatus from all pods with an address; return statuses, errors by ordinal."""
        statuses: dict[int, NodeStatus] = {}
        problems: dict[int, str] = {}

        async def ask(client: QuorumClient, ordinal: int) -> None:
            address = address_of(quorum, ordinal, self._locate)
            try:
                async with asyncio.timeout(STATUS_TIMEOUT_S):
                    status = await client.node_status(address)
            except TimeoutError:
                problems[ordinal] = f"no answer within {STATUS_TIMEOUT_S} s"
            except UnreachableError as error:
                problems[ordinal] = next(iter(error.attempts.values()), str(error))
            else:
                if status.node_id == quorum.ids.of(ordinal):
                    statuses[ordinal] = status
                else:
                    problems[ordinal] = f"it answers as node {status.node_id}"

        async with dial(quorum, [0], tls, self._locate) as client:
            await asyncio.gather(*(ask(client, n) for n, pod in pods.items() if pod_ip(pod)))
        return statuses, problems

    # --- Kubernetes -------------------------------------------------------------------------------

    def _read(self, quorum: QuorumResource) -> Snapshot:
        """Return the Quorum's Kubernetes objects, and what follows from them alone."""
        kube, namespace = self._kube, quorum.namespace
        owned = Owned(kube, quorum)
        secrets = read_secrets(kube, quorum)
        forbidden = tuple(self._forbidden(quorum, secrets))
        stateful_set = owned.get("StatefulSet", quorum.name)
        authority, unusable = self._authority(quorum, owned)
        record = _record(owned.get("ConfigMap", naming.record(quorum.name)))
        is_marked = owned.get("ConfigMap", naming.marker(quorum.name)) is not None
        verification: JobRun | None = None
        restore: JobRun | None = None
        if quorum.recovery is not None and stateful_set is None and not is_marked:
            for kind, name in quorum.recovery.objects:
                found = {name: kube.get(kind, namespace, name)}
                forbidden += tuple(unlabelled(quorum, kind, found))
            jobs = (naming.verify_job(quorum.name), naming.restore_job(quorum.name))
            runs = recovery.restore_runs(kube, quorum, [owned.get("Job", job) for job in jobs])
            verification, restore = runs
        external = owned.external_addresses(as_made(quorum, stateful_set))
        pods = kube.list("Pod", namespace, naming.selector_text(quorum.name))
        claims, foreign_volumes = owned.claims()
        size = None if stateful_set is None else int(stateful_set["spec"].get("replicas", 1))
        observed = Observed(
            ids=quorum.ids,
            kafka_ids=frozenset(quorum.kafka_controllers),
            size=size,
            record=record,
            is_template_pending=is_pending(stateful_set),
            revision=update_revision(stateful_set),
            keeps_volumes=keeps_volumes(stateful_set),
            outlives_set=outlives_set(stateful_set),
            made_class=class_of(claims_of(stateful_set)),
            is_marked=is_marked,
            stale=(
                *(() if unusable else self._stale_secrets(quorum, owned, authority, external)),
                *self._stale(quorum, owned, stateful_set),
            ),
            known_cluster_id=quorum.known_cluster_id,
            inherited=frozenset(n for n, claim in claims.items() if _is_older(claim, quorum)),
            volumes=frozenset(claims),
            fenced=fenced_by(stateful_set, quorum.name),
            # All objects have been read: the dict has every conflict.
            conflicts=tuple(text for _, text in sorted(owned.conflicts.items())),
            foreign_volumes=foreign_volumes,
            forbidden=forbidden,
            invalid_config=problem_of_config(quorum),
            unusable_authority=unusable,
            expired_certificates=expired(quorum, secrets, size or 0),
            verification=verification,
            restore=restore,
            pending_balancers=tuple(
                naming.external_service(quorum.name, ordinal)
                for ordinal, each in external.items()
                if each.is_pending and ordinal < quorum.replicas
            ),
        )
        mine = by_ordinal(quorum.name, (pod for pod in pods if _is_pod_of(pod, stateful_set)))
        if stateful_set is not None:
            ordinals = range(observed.size or 0)
            missing = {naming.pod(quorum.name, n): n for n in ordinals if n not in mine}
            rejected = rejected_pods(kube, stateful_set, missing)
            observed = replace(observed, rejected_pods=rejected)
        volumes = (observed_claim(n, claim, mine.get(n)) for n, claim in sorted(claims.items()))
        observed = replace(observed, claims=tuple(each for each in volumes if each is not None))
        keys_created = ""
        if quorum.has_own_authority:
            keys_created = _created(owned.get("Secret", naming.node_secret(quorum.name)))
        return Snapshot(
            observed,
            stateful_set,
            mine,
            claims,
            authority=authority,
            keys_created=keys_created,
            given=operator_files(quorum, secrets),
            external=external,
            budget=owned.find(budget.KIND, quorum.name),
        )

    def _authority(self, quorum: QuorumResource, owned: Owned) -> tuple[Authority | None, str]:
        """Return the Quorum's own authority, and why it cannot be used.

        It is never replaced unless it has expired: its certificates may be in use.
        """
        if not quorum.has_own_authority:
            return None, ""
        name = naming.authority_secret(quorum.name)
        found = owned.get("Secret", name)
        authority = authority_of(found)
        if found is None:
            return None, ""
        problem = "it holds no certificate authority" if authority is None else authority.problem
        if not problem:
            return authority, ""
        return None, (
            f"Secret/{name}: {problem}: no certificate is issued or renewed; restore the Secret, "
            "or delete it to have a new authority created"
        )

    def _forbidden(self, quorum: QuorumResource, secrets: Secrets) -> Iterable[str]:
        """Yield messages about images and Secrets in the spec that the Quorum may not use.
        Without this check, a user with permission to create Quorums could read any Secret of the
        namespace through an image or a mount of their choice.
        """
        if not naming.is_allowed(quorum.image, self._images):
            allowed = ", ".join(self._images)
            yield f"spec.image {quorum.image} is not from an allowed repository: {allowed}"
        yield from unlabelled(quorum, "Secret", secrets)

    def _stale_secrets(
        self,
        quorum: QuorumResource,
        owned: Owned,
        authority: Authority | None,
        external: Mapping[int, ExternalAddress],
    ) -> Iterable[str]:
        """Yield the missing and outdated Secrets of certificates; only the authority's own if it
        has expired, because nothing can be issued before it is replaced.
        """
        authority_name = f"Secret/{naming.authority_secret(quorum.name)}"
        if not quorum.has_own_authority or authority_name in owned.conflicts:
            return
        if authority is not None and authority.is_expired():
            yield authority_name
            return
        counts = {
            naming.node_secret(quorum.name): naming.NODES_MAX,
            **dict.fromkeys(quorum.client_secrets, 1),
        }
        if quorum.broker_certificates:
            counts[naming.broker_secret(quorum.name)] = quorum.broker_certificates
        needed = {quorum.ids.of(ordinal): each.names for ordinal, each in external.items()}
        for name, count in counts.items():
            files = secret_files(owned.get("Secret", name))
            if f"Secret/{name}" in owned.conflicts:
                continue
            called = quorum.client_secrets.get(name)
            hosts = quorum.client_hosts(name)
            if (
                authority is None
                or issuer_of(quorum, authority).are_due(files, count)
                or (name == naming.node_secret(quorum.name) and lack_names(files, needed))
                or (called and has_other_names(files.get("tls.crt", ""), called, hosts))
            ):
                yield f"Secret/{name}"

    def _stale(
        self, quorum: QuorumResource, owned: Owned, stateful_set: Object | None
    ) -> Iterable[str]:
        """Yield the missing, outdated and unwanted objects that neither are Secrets nor follow
        the voters (`budget`).
        """
        wanted = manifests.objects(as_made(quorum, stateful_set))
        for name, manifest in wanted.items():
            kind, _, title = name.partition("/")
            is_set = kind == "StatefulSet"
            found = stateful_set if is_set else owned.get(kind, title)
            if name in owned.conflicts or (is_set and found is None):
                continue  # the plan creates the StatefulSet, with its size, after all others
            if kind == budget.KIND:
                continue
            if found is None or manifests.stamp_of(found) != manifests.stamp_of(manifest):
                yield name
        for name in manifests.optional(quorum):
            kind, _, title = name.partition("/")
            if kind == budget.KIND:
                continue
            if name not in wanted and owned.has_unwanted(kind, title):
                yield name


def _is_pod_of(pod: Object, stateful_set: Object | None) -> bool:
    """Whether the StatefulSet controls a pod or, because no controller does, adopts it."""
    if controller_of(pod) is None:
        return True
    return stateful_set is not None and is_controlled_by(pod, stateful_set["metadata"]["uid"])


def _record(found: Object | None) -> BootstrapRecord | None:
    if found is None:
        return None
    data = found.get("data") or {}
    return BootstrapRecord(str(data.get("clusterId", "")), data.get("adopted") == "true")


def _created(found: Object | None) -> str:
    return "" if found is None else str(found["metadata"].get("creationTimestamp", ""))


def _is_older(claim: Object, quorum: QuorumResource) -> bool:
    """Whether a claim is older than the Quorum."""
    return _created(claim) < quorum.created


def issuer_of(quorum: QuorumResource, authority: Authority) -> Issuer:
    return Issuer(authority.signer, authority.trusted, quorum.certificate_days)


# --- pods -----------------------------------------------------------------------------------------


def _node(
    ordinal: int, pod: Object, seen: Snapshot, status: NodeStatus | None, problem: str
) -> ObservedNode:
    metadata = pod["metadata"]
    claim = seen.claims.get(ordinal) or {}
    loses_volume = bool(claim.get("metadata", {}).get("deletionTimestamp"))
    if loses_volume:
        problem = CLAIM_DELETED
    found = pod_problem(pod)
    is_fenced = ordinal in _fenced(pod)
    if is_fenced:
        problem = "it is fenced"
    return ObservedNode(
        ordinal,
        seen.observed.ids.of(ordinal),
        uid=metadata["uid"],
        answers=status is not None,
        directory_id=status.directory_id if status is not None and status.formatted else None,
        cluster_id=status.cluster_id if status is not None else "",
        ready=is_ready(pod),
        # A pod keeps the key that it was started with, and certificates for it are not renewed.
        outdated=is_outdated(pod, seen.stateful_set) or _created(pod) < seen.keys_created,
        terminating=bool(metadata.get("deletionTimestamp")),
        problem=f"pod {metadata['name']}: {found}" if found else problem,
        is_failing=bool(pod_failure(pod)),
        wrong_ensemble=wrong_ensemble(pod),
        is_fenced=is_fenced,
        grows_at_restart=any(
            each.ordinal == ordinal and each.needs_restart for each in seen.observed.claims
        ),
        loses_volume=loses_volume,
    )


def _fenced(pod: Object) -> frozenset[int]:
    """The ordinals that a pod names as fenced."""
    return fenced_in(pod.get("spec"), str(pod["metadata"]["name"]).rpartition("-")[0])


# --- nodes and quorum -----------------------------------------------------------------------------


_CLIENT: Final[dict[str, Any]] = {
    "request_timeout_ms": CALL_TIMEOUT_MS,
    "client_id": "quorate-operator",
    "limits": ChannelLimits(connect_timeout_ms=1_500),
}


def dial(
    quorum: QuorumResource, ordinals: Iterable[int], tls: TlsConfig | None, locate: Locate
) -> QuorumClient:
    """Create a client that bootstraps from the nodes of these ordinals."""
    addresses = [address_of(quorum, ordinal, locate) for ordinal in ordinals]
    return QuorumClient(addresses, tls=tls, cluster_id=quorum.known_cluster_id, **_CLIENT)


def address_of(quorum: QuorumResource, ordinal: int, locate: Locate) -> str:
    return format_address(*locate(quorum.name, quorum.namespace, ordinal))


async def _describe(
    quorum: QuorumResource, ordinals: Iterable[int], tls: TlsConfig | None, locate: Locate
) -> QuorumDescription | None:
    async with dial(quorum, ordinals, tls, locate) as client:
        client.request_timeout_ms = DESCRIBE_TIMEOUT_MS
        try:
            return await client.describe_quorum()
        except ClientError:
            return None


def metadata_client(
    quorum: QuorumResource, ordinals: Iterable[int], tls: TlsConfig | None, locate: Locate
) -> MetadataClient:
    """Create a metadata client that bootstraps from the nodes of these ordinals."""
    addresses = [address_of(quorum, ordinal, locate) for ordinal in ordinals]
    return MetadataClient(addresses, tls=tls, cluster_id=quorum.known_cluster_id, **_CLIENT)


async def _without_rights(
    quorum: QuorumResource, view: LeaderView | None, tls: TlsConfig | None, locate: Locate
) -> tuple[str, ...]:
    """Return the principals of brokers that lack rights; none if no leader answers."""
    wanted = manifests.broker_principals(quorum)
    ordinal = None if view is None else quorum.ids.ordinal(view.leader.id)
    if not wanted or ordinal is None:
        return ()
    found: list[Acl] = []
    async with metadata_client(quorum, [ordinal], tls, locate) as client:
        try:
            for asked in broker_rights.ASKED:
                found += (await client.ask(DescribeAcls(asked))).acls
        except ClientError:
            return ()
    return broker_rights.lacking(wanted, found, is_kafka=quorum.has_kafka_listener)


async def _progress(
    quorum: QuorumResource, pods: Mapping[int, Object], view: LeaderView | None
) -> MigrationProgress | None:
    if view is None or not quorum.is_migration:
        return None
    ordinal = quorum.ids.ordinal(view.leader.id)
    pod = pods.get(-1 if ordinal is None else ordinal)
    address = "" if pod is None else pod_ip(pod)
    if not address:
        return None
    return await asyncio.to_thread(read_progress, address, naming.HTTP_PORT)


def leader_view(description: QuorumDescription | None) -> LeaderView | None:
    """Convert a description to the plan's input; None unless the leader itself sent it."""
    if description is None or not description.is_leaders_view:
        return None
    response, known = description.response, replicas_of(description)
    leader = next((s for s in known if s.replica.id == response.leader.id), None)
    if leader is None:
        return None
    return LeaderView(
        leader.replica,
        response.leader.epoch,
        frozenset(voter.key for voter in response.voter_set),
        frozenset(voter.key for voter in response.committed_voters),
        frozenset(s.replica for s in known if _is_caught_up(s, leader)),
    )


def replicas_of(description: QuorumDescription) -> list[ReplicaStatus]:
    """Return the statuses of all voters and observers."""
    return [*description.response.voters, *description.response.observers]


def _is_caught_up(status: ReplicaStatus, leader: ReplicaStatus) -> bool:
    """Whether a replica is caught up. The leader's own timestamp is its current time."""
    at_ms = status.last_caught_up_ms
    return at_ms >= 0 and leader.last_caught_up_ms - at_ms <= CAUGHT_UP_MS


def _known_voters(
    quorum: QuorumResource, description: QuorumDescription | None
) -> frozenset[ReplicaKey]:
    """Return the last known voter set: the described one, unless the status has a later epoch."""
    leader: Any = quorum.status.get("leader") or {}
    written = frozenset(parse_key(text) for text in quorum.status.get("voterSet") or ())
    if description is None or not len(description.response.voter_set):
        return written
    if description.response.leader.epoch < int(leader.get("epoch") or 0) and written:
        return written
    return frozenset(voter.key for voter in description.response.voter_set)


def parse_key(text: str) -> ReplicaKey:
    """Parse a replica key from its text form, ID-DIRECTORYID."""
    number, _, directory = text.partition("-")
    return ReplicaKey(int(number), directory or None)
