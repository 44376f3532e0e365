"""Executes one action of the plan.

Rules:
1. The actor confirms the lease before each mutation (`is_leading`), so an operator that lost it
   changes nothing. After each mutation, the actor calls `mutated`.
2. The actor retries idempotent calls after transient errors of the API server. A conflict (409)
   with another writer ends the action; the next observation shows the new state.
3. Pods and StatefulSets are deleted by UID, and StatefulSets are resized, all in the observed
   version only: a pod that has become ready in the meantime is not the one that the plan wanted to
   restart. No pod goes whose volume claim has been deleted since the plan saw it. A node is
   formatted only if its pod still has the observed UID.
4. Objects are created, which fails if they exist, or changed and deleted by the UID of an object
   that is this Quorum's own. `ownership` defines whose an object is.
5. A voter set change that timed out may still take effect. The actor assumes neither outcome; the
   next observation shows it.

Each action is an OpenTelemetry span.
"""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import Awaitable, Callable, Collection, Coroutine
from dataclasses import replace
from functools import partial
from typing import Any

from opentelemetry import trace
from quorate.common.endpoints import Endpoint
from quorate.common.error_codes import ErrorCode
from quorate.common.identifiers import uuid_from_bytes
from quorate.metadata.requests import CreateAcls
from quorate.raft.types import ReplicaKey
from quorate.rpc.client.quorum_client import AdminError, ClientError
from quorate.rpc.tls import TlsConfig
from quorate.rpc.wire.limits import parse_address
from quorate.rpc.wire.values import FormatMode, FormatRequest

from quorate_operator import naming
from quorate_operator.kube.api import Kube, KubeError
from quorate_operator.kube.writer import MANAGER, ActionFailedError, LeaseLostError, ObjectWriter
from quorate_operator.naming import Object
from quorate_operator.objects import certificates, manifests, recovery
from quorate_operator.objects.authority import (
    REVISION_ANNOTATION,
    Authority,
    authority_of,
    next_step,
    secret_files,
)
from quorate_operator.objects.broker_rights import rights
from quorate_operator.objects.budget import with_voters
from quorate_operator.objects.made import as_made, claims_of, class_of, fenced_by
from quorate_operator.objects.resource import QuorumResource
from quorate_operator.observation.observe import (
    Locate,
    Snapshot,
    address_of,
    dial,
    issuer_of,
    metadata_client,
)
from quorate_operator.observation.owned import labels_of
from quorate_operator.planning import plan as p

LOGGER = logging.getLogger(__name__)
TRACER = trace.get_tracer("quorate.operator")

ORPHANED_S = 20.0
"""How long a StatefulSet that is deleted may take to release its pods."""
ORPHANED_POLL_S = 0.2
MEMBERSHIP_TIMEOUT_MS = 8_000
"""The timeout of voter set changes and leadership transfers; shorter than a lease."""


class Actor(ObjectWriter):
    """Executes actions."""

    def __init__(
        self,
        kube: Kube,
        is_leading: Callable[[], Awaitable[bool]],
        locate: Locate = naming.place,
        mutated: Callable[[str], None] = lambda _what: None,
    ) -> None:
        super().__init__(kube, is_leading, mutated)
        self._locate = locate

    async def act(
        self, action: p.Action, quorum: QuorumResource, seen: Snapshot, tls: TlsConfig | None
    ) -> None:
        """Execute an action. Raises ActionFailedError, LeaseLostError."""
        name = type(action).__name__
        with TRACER.start_as_current_span(f"quorate.operator.{name}") as span:
            span.set_attribute("quorate.quorum", f"{quorum.namespace}/{quorum.name}")
            span.set_attribute("quorate.action", str(action))
            try:
                await self._execute(action, quorum, seen, tls)
            except (KubeError, ClientError, certificates.CertificateError) as error:
                raise ActionFailedError(f"{name}: {error}") from error

    async def _execute(
        self, action: p.Action, quorum: QuorumResource, seen: Snapshot, tls: TlsConfig | None
    ) -> None:
        match action:
            case p.CreateStatefulSet(replicas):
                await self._create_stateful_set(quorum, seen, replicas)
            case p.RecreateStatefulSet():
                await self._recreate(quorum, seen)
            case p.ApplyObjects(names):
                await self._apply(quorum, seen, names)
            case p.CreateRecord(cluster_id, adopted):
                cluster_id = cluster_id or new_cluster_id()
                made = manifests.record(quorum, cluster_id, adopted=adopted)
                await self.create_once(quorum, made)
            case p.VerifyBackup():
                await self.create_once(quorum, recovery.verification(quorum))
            case p.StartRestore(cluster_id):
                await self._start_restore(quorum, cluster_id)
            case p.MarkBootstrapped(cluster_id):
                await self.create_once(quorum, manifests.marker(quorum, cluster_id))
            case p.Resize(replicas, before):
                await self._resize(quorum, seen, replicas, before)
            case p.RestartPod(ordinal, uid):
                await self._keep_volumes(quorum, seen, {ordinal})
                name = naming.pod(quorum.name, ordinal)
                version = seen.pods[ordinal]["metadata"]["resourceVersion"]
                await self.mutate(
                    f"delete Pod/{name} {uid}",
                    self.again(self._kube.delete, "Pod", quorum.namespace, name, uid, version),
                )
            case p.SetFenced():
                await self._fence(quorum, seen, frozenset(action.ordinals))
            case p.ExpandVolume(ordinal, size):
                await self._expand(quorum, seen, ordinal, size)
            case p.FormatNode():
                await self._format(quorum, action, tls)
            case p.AddVoter() | p.RemoveVoter() | p.TransferLeadership():
                await self._change(quorum, action, seen, tls)
            case p.GrantBrokers(principals):
                await self._grant(quorum, principals, seen, tls)

    # --- Kubernetes -------------------------------------------------------------------------------

    async def _start_restore(self, quorum: QuorumResource, cluster_id: str) -> None:
        claim = recovery.claim(quorum)
        kind, name = claim["kind"], claim["metadata"]["name"]
        try:
            created = self.again(self._kube.create, kind, quorum.namespace, claim, MANAGER)
            await self.mutate(f"create {kind}/{name}", created)
        except KubeError as error:
            if not error.is_conflict:
                raise
            found = await self.again(self._kube.get, kind, quorum.namespace, name)
            labels = naming.selector(quorum.name).items()
            if found is None or not labels <= labels_of(found).items():
                raise ActionFailedError(f"{kind}/{name} exists and is not the Quorum's") from None
        await self.create_once(quorum, recovery.job(quorum, cluster_id))

    async def _create_stateful_set(
        self, quorum: QuorumResource, seen: Snapshot, replicas: int
    ) -> None:
        # Pods may outlive a StatefulSet, and those that were fenced stay fenced.
        fenced = frozenset(node.ordinal for node in seen.observed.nodes if node.is_fenced)
        await self.create_once(quorum, _stateful_set(replace(quorum, fenced=fenced), replicas))

    async def _recreate(self, quorum: QuorumResource, seen: Snapshot) -> None:
        assert seen.stateful_set is not None
        assert seen.observed.size is not None
        kind, name, metadata = "StatefulSet", quorum.name, seen.stateful_set["metadata"]
        fenced = fenced_by(seen.stateful_set, name)
        made = _stateful_set(replace(quorum, fenced=fenced), seen.observed.size)
        await self._admit(quorum, made)
        delete = partial(self._kube.delete, orphan=True)
        where = (kind, quorum.namespace, name)
        gone = self.again(delete, *where, metadata["uid"], metadata["resourceVersion"])
        await self.mutate(f"delete {kind}/{name} {metadata['uid']} without its pods", gone)
        deadline = time.monotonic() + ORPHANED_S
        while await self.again(self._kube.get, *where) is not None:
            if time.monotonic() > deadline:
                raise ActionFailedError(f"{kind}/{name} has not released its pods in time")
            await asyncio.sleep(ORPHANED_POLL_S)
        await self.create_once(quorum, made)

    async def _admit(self, quorum: QuorumResource, made: Object) -> None:
        """Let the API server admit a StatefulSet under another name, without creating it."""
        body = {**made, "metadata": {**made["metadata"], "name": f"{quorum.name}-dry-run"}}
        admit = partial(self._kube.create, dry_run=True)
        found = await self.again(admit, made["kind"], quorum.namespace, body, MANAGER)
        admitted, wanted = class_of(claims_of(found)), quorum.volume_class
        if admitted != wanted:
            text = f"the API server changes the StorageClass {wanted!r} to {admitted!r}"
            raise ActionFailedError(text)

    async def _keep_volumes(
        self, quorum: QuorumResource, seen: Snapshot, ordinals: Collection[int]
    ) -> None:
        """Check that no volume has come to go with its pod since the plan saw its claim."""
        for ordinal in ordinals:
            known = (seen.claims.get(ordinal) or {}).get("metadata", {})
            if not known or known.get("deletionTimestamp"):
                continue
            name = naming.claim(quorum.name, ordinal)
            where = ("PersistentVolumeClaim", quorum.namespace, name)
            found = await self.again(self._kube.get, *where)
            if found is not None and found["metadata"].get("deletionTimestamp"):
                raise ActionFailedError(f"PersistentVolumeClaim/{name} has been deleted meanwhile")

    async def _resize(
        self, quorum: QuorumResource, seen: Snapshot, replicas: int, before: int
    ) -> None:
        assert seen.stateful_set is not None
        assert seen.observed.size == before, "the plan is based on this observation"
        await self._keep_volumes(quorum, seen, set(range(replicas, before)))
        version = seen.stateful_set["metadata"]["resourceVersion"]
        body = {"metadata": {"resourceVersion": version}, "spec": {"replicas": replicas}}
        await self.mutate(
            f"resize StatefulSet/{quorum.name} from {before} to {replicas}, version {version}",
            asyncio.to_thread(self._kube.merge, "StatefulSet", quorum.namespace, quorum.name, body),
        )

    async def _fence(
        self, quorum: QuorumResource, seen: Snapshot, ordinals: frozenset[int]
    ) -> None:
        fenced = replace(as_made(quorum, seen.stateful_set), fenced=ordinals)
        made = manifests.objects(fenced)[f"StatefulSet/{quorum.name}"]
        await self.put(quorum, made, manifests.stamp_of(made))

    async def _expand(
        self, quorum: QuorumResource, seen: Snapshot, ordinal: int, size: str
    ) -> None:
        name = naming.claim(quorum.name, ordinal)
        metadata = seen.claims[ordinal]["metadata"]
        version = metadata["resourceVersion"]
        kind = "PersistentVolumeClaim"
        body = {
            "metadata": {"uid": metadata["uid"], "resourceVersion": version},
            "spec": {"resources": {"requests": {"storage": size}}},
        }
        await self.mutate(
            f"expand {kind}/{name} to {size}, version {version}",
            asyncio.to_thread(self._kube.merge, kind, quorum.namespace, name, body),
        )

    async def _apply(self, quorum: QuorumResource, seen: Snapshot, names: tuple[str, ...]) -> None:
        """Apply each object: one that is rejected does not keep the others from being applied."""
        wanted = manifests.objects(with_voters(quorum, seen.stateful_set, seen.observed))
        failures: dict[str, str] = {}
        untried: tuple[str, ...] = ()
        for number, name in enumerate(names, 1):
            try:
                await self._apply_one(quorum, seen, name, wanted.get(name))
            except (KubeError, certificates.CertificateError, ActionFailedError) as error:
                failures[name] = str(error)
                if isinstance(error, KubeError) and error.may_pass:
                    untried = names[number:]  # the server does not answer: they would fail, too
                    break
        if failures:
            shown = "; ".join(f"{name}: {text}" for name, text in failures.items())
            raise ActionFailedError(f"ApplyObjects: {shown}", failures, untried)

    async def _apply_one(
        self, quorum: QuorumResource, seen: Snapshot, name: str, wanted: Object | None
    ) -> None:
        """Apply an object. wanted: None for a Secret, and for an object that must not exist."""
        kind, _, title = name.partition("/")
        if kind == "Secret":
            await self._issue(quorum, seen, title)
        elif wanted is not None:
            await self.put(quorum, wanted, manifests.stamp_of(wanted))
        else:
            await self.delete(quorum, kind, title)

    # --- certificates -----------------------------------------------------------------------------

    async def _authority(self, quorum: QuorumResource, seen: Snapshot) -> Authority:
        """Return the authority, or create it. One that another writer created first wins."""
        if seen.authority is not None:
            return seen.authority
        name = naming.authority_secret(quorum.name)
        found = authority_of(await self.own(quorum, "Secret", name))
        if found is None:
            pair = await asyncio.to_thread(
                certificates.new_authority, _authority_name(quorum), days=quorum.authority_days
            )
            data = {"tls.crt": pair.certificate, "tls.key": pair.key}
            revision = {REVISION_ANNOTATION: str(quorum.authority_revision)}
            made = manifests.secret(quorum, name, data, "kubernetes.io/tls", revision)
            await self.create_once(quorum, made)
            found = authority_of(await self.own(quorum, "Secret", name))
        if found is None:
            raise certificates.CertificateError(
                f"the Secret {name} holds no certificate authority: delete it to have a new one "
                "created"
            )
        return found

    async def _issue(self, quorum: QuorumResource, seen: Snapshot, name: str) -> None:
        authority = await self._authority(quorum, seen)
        if name == naming.authority_secret(quorum.name):
            await self._rotate(quorum, authority, name)
            return
        issuer = issuer_of(quorum, authority)
        known = secret_files(await self.own(quorum, "Secret", name))
        kind = "Opaque"
        if name == naming.node_secret(quorum.name):
            external = {ordinal: each.names for ordinal, each in seen.external.items()}
            where = (quorum.name, quorum.namespace)
            files = await asyncio.to_thread(issuer.node_files, *where, known, quorum.ids, external)
        elif name == naming.broker_secret(quorum.name):
            count = quorum.broker_certificates
            files = await asyncio.to_thread(
                issuer.broker_files, quorum.name, quorum.namespace, count, known
            )
        else:
            kind = "kubernetes.io/tls"
            called = quorum.client_secrets[name]
            hosts = quorum.client_hosts(name)
            files = await asyncio.to_thread(issuer.client_files, known, called, hosts)
        made = manifests.secret(quorum, name, files, kind)
        await self.put(quorum, made, manifests.digest(made))

    async def _rotate(self, quorum: QuorumResource, authority: Authority, name: str) -> None:
        """Take the next step of the authority's rotation, from the observed version."""
        patch = await asyncio.to_thread(
            next_step,
            authority,
            _authority_name(quorum),
            quorum.authority_revision,
            quorum.authority_days,
        )
        LOGGER.info(
            "%s/%s: rotating the %s authority from phase %s",
            quorum.namespace,
            name,
            "expired" if authority.is_expired() else "valid",
            authority.phase.value,
        )
        await self.mutate(
            f"step Secret/{name} {authority.phase.value}, version {authority.version}",
            asyncio.to_thread(self._kube.merge, "Secret", quorum.namespace, name, patch),
        )

    # --- the quorum -------------------------------------------------------------------------------

    async def _format(
        self, quorum: QuorumResource, action: p.FormatNode, tls: TlsConfig | None
    ) -> None:
        name = naming.pod(quorum.name, action.ordinal)
        pod = await self.again(self._kube.get, "Pod", quorum.namespace, name)
        if pod is None or pod["metadata"]["uid"] != action.uid:
            raise ActionFailedError(f"FormatNode: pod {name} was replaced in the meantime")
        mode = FormatMode.STANDALONE if action.standalone else FormatMode.NO_INITIAL_CONTROLLERS
        address = address_of(quorum, action.ordinal, self._locate)
        async with dial(quorum, [action.ordinal], tls, self._locate) as client:
            await self.mutate(
                f"format {action.ordinal} {action.uid} {mode.name}",
                client.format_node(address, FormatRequest(action.cluster_id, mode)),
            )

    async def _change(
        self,
        quorum: QuorumResource,
        action: p.AddVoter | p.RemoveVoter | p.TransferLeadership,
        seen: Snapshot,
        tls: TlsConfig | None,
    ) -> None:
        known = [n.ordinal for n in seen.observed.nodes if n.answers and n.is_formatted]
        async with dial(quorum, known, tls, self._locate) as client:
            call: Coroutine[Any, Any, None]
            match action:
                case p.AddVoter(voter):
                    endpoints = self._endpoints(quorum, voter)
                    what = f"add voter {voter}"
                    call = client.add_voter(voter, endpoints, timeout_ms=MEMBERSHIP_TIMEOUT_MS)
                case p.RemoveVoter(voter):
                    what = f"remove voter {voter}"
                    call = client.remove_voter(voter, timeout_ms=MEMBERSHIP_TIMEOUT_MS)
                case p.TransferLeadership(target):
                    epoch = seen.observed.view.epoch if seen.observed.view else -1
                    what = f"transfer leadership of epoch {epoch} to {target}"
                    call = client.transfer_leadership(target, timeout_ms=MEMBERSHIP_TIMEOUT_MS)
            try:
                await self.mutate(what, call)
            except AdminError as error:
                is_gone = error.code is ErrorCode.VOTER_NOT_FOUND
                if not (is_gone and isinstance(action, p.RemoveVoter)):
                    raise

    async def _grant(
        self,
        quorum: QuorumResource,
        principals: tuple[str, ...],
        seen: Snapshot,
        tls: TlsConfig | None,
    ) -> None:
        known = [n.ordinal for n in seen.observed.nodes if n.answers and n.is_formatted]
        is_kafka = quorum.has_kafka_listener
        acls = tuple(acl for each in principals for acl in rights(each, is_kafka=is_kafka))
        async with metadata_client(quorum, known, tls, self._locate) as client:
            what = f"grant the rights of brokers to {', '.join(principals)}"
            answer = await self.mutate(what, client.ask(CreateAcls(acls)))
        for result in answer.results:
            if result.error is not ErrorCode.NONE:
                text = result.message or result.error.name
                raise ActionFailedError(f"creating the brokers' ACLs: {text}")

    def _endpoints(self, quorum: QuorumResource, voter: ReplicaKey) -> list[Endpoint]:
        """Return a voter's endpoints; the node advertises the same ones."""
        kafkas = quorum.kafka_controllers.get(voter.id)
        if kafkas is not None:
            return [Endpoint(quorum.kafka_listener, *parse_address(kafkas))]
        ordinal = quorum.ids.ordinal(voter.id)
        assert ordinal is not None, "only pods and controllers of Kafka become voters"
        host, port = self._locate(quorum.name, quorum.namespace, ordinal)
        found = [Endpoint(quorum.raft_listener, host, port)]
        if quorum.has_kafka_listener:
            found.append(Endpoint(quorum.kafka_listener, host, naming.KAFKA_PORT))
        return found


def _stateful_set(quorum: QuorumResource, replicas: int) -> Object:
    made = manifests.objects(replace(quorum, size=replicas))[f"StatefulSet/{quorum.name}"]
    made["spec"]["replicas"] = replicas
    return made


def _authority_name(quorum: QuorumResource) -> str:
    return f"{quorum.name} authority"


def new_cluster_id() -> str:
    """Return a random UUID in Kafka's text form that no command line parses as an option."""
    while True:
        text = uuid_from_bytes(uuid.uuid4().bytes)
        if not text.startswith("-"):
            return text


__all__ = ["ActionFailedError", "Actor", "LeaseLostError", "new_cluster_id"]
