"""What others in the namespace can do: keys, clients without rights, objects of the same names."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.cluster.conftest import namespace
from tests.cluster.lab import KEY, Images, Lab

pytestmark = pytest.mark.timeout(600)

CLIENT = "app"
FOREIGN = """
apiVersion: v1
kind: List
items:
  - apiVersion: v1
    kind: Service
    metadata: {name: meta-0, labels: {app: shop}}
    spec: {selector: {app: shop}, ports: [{port: 80}]}
  - apiVersion: networking.k8s.io/v1
    kind: NetworkPolicy
    metadata: {name: meta, labels: {app: shop}}
    spec: {podSelector: {matchLabels: {app: shop}}, policyTypes: [Ingress]}
  - apiVersion: policy/v1
    kind: PodDisruptionBudget
    metadata: {name: meta, labels: {app: shop}}
    spec: {maxUnavailable: 0, selector: {matchLabels: {app: shop}}}
  - apiVersion: v1
    kind: Secret
    metadata: {name: meta-ca, labels: {app: shop}}
    stringData: {tls.crt: theirs, tls.key: theirs}
  - apiVersion: v1
    kind: PersistentVolumeClaim
    metadata: {name: data-meta-1, labels: {app: shop}}
    spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Mi}}}
"""
KINDS = "service,networkpolicy,pdb,secret,pvc"
DENIED = """
import asyncio, sys
from pathlib import Path
from quorate.metadata import requests as r
from quorate.raft.types import ReplicaKey
from quorate.rpc.client.quorum_client import ClientError, QuorumClient
from quorate.rpc.metadata_client import MetadataClient
from quorate.rpc.tls import TlsConfig
from quorate.rpc.wire.values import FormatMode, FormatRequest

server, voter, directory = sys.argv[1:4]
root = Path("/tmp/app")
tls = TlsConfig(root / "tls.crt", root / "tls.key", root / "ca.crt")
acl = r.Acl(4, "kafka-cluster", 3, "User:CN=client-app", "*", 2, 3)
asked = {
    "CreateAcls": r.CreateAcls((acl,)),
    "DeleteAcls": r.DeleteAcls((r.AclFilter(),)),
    "CreateTopics": r.CreateTopics((r.NewTopic("t", 1, 1),)),
    "UnregisterBroker": r.UnregisterBroker(1000),
}


async def main():
    key = ReplicaKey(int(voter), directory)
    async with QuorumClient([server], tls=tls) as quorum, MetadataClient([server], tls=tls) as meta:
        calls = {
            "Append": quorum.append_value(b"x"),
            "AddVoter": quorum.add_voter(ReplicaKey(8, directory), []),
            "RemoveVoter": quorum.remove_voter(key),
            "TransferLeadership": quorum.transfer_leadership(key),
            "Format": quorum.format_node(
                server, FormatRequest("AAAAAAAAAAAAAAAAAAAAAA", FormatMode.STANDALONE)
            ),
            **{name: meta.ask(request) for name, request in asked.items()},
        }
        for name, call in calls.items():
            try:
                print(name, await call)
            except ClientError as error:
                print(name, error)


asyncio.run(main())
"""


@pytest.fixture(scope="module")
def tended(images: Images) -> Iterator[Lab]:
    """A quorum with a client that has a certificate and no rights."""
    with namespace(images) as made:
        made.install(f"quorum.clients[0].name={CLIENT}")
        made.until_ready(3)
        yield made


def test_no_pod_has_the_key_of_another(tended: Lab) -> None:
    lab = tended
    nodes = lab.secret(f"{lab.name}-node-tls")
    for ordinal in range(3):
        assert lab.kubectl_exec(ordinal, "cat", KEY) == nodes[f"node-{ordinal}.key"]
        find = "find / -xdev -name '*.key' 2>/dev/null; find /etc/quorate /tmp -name '*.key'"
        found = set(lab.kubectl_exec(ordinal, "sh", "-c", find).split())
        assert found == {KEY}
        grep = "grep -rl 'PRIVATE KEY' /etc/quorate /var/lib/quorate /tmp"
        assert lab.kubectl_exec(ordinal, "sh", "-c", grep).split() == [KEY]


def test_a_client_without_rights_changes_nothing(tended: Lab) -> None:
    lab = tended
    leader, directories = lab.leader, lab.directories()
    pod = f"{lab.name}-{leader}"
    files = lab.secret(f"{lab.name}-client-{CLIENT}-tls")
    lab.kubectl("exec", pod, "--", "mkdir", "-p", "/tmp/app")
    for name, text in files.items():
        write = ("exec", "-i", pod, "--", "sh", "-c", f"cat > /tmp/app/{name}")
        lab.kubectl(*write, text=text)
    voter = (leader + 1) % 3
    server = f"{lab.name}-{leader}.{lab.namespace}.svc:9093"
    arguments = (server, str(voter), directories[voter])
    said = lab.kubectl("exec", pod, "--", "python", "-c", DENIED, *arguments)
    print(said)
    lines = said.strip().splitlines()
    assert len(lines) == 9, said
    for line in lines:
        assert "AUTHORIZATION_FAILED" in line or "may not" in line, line
    assert lab.leader == leader
    assert lab.status["voters"] == 3


def test_objects_of_others_stay_and_are_named(lab: Lab) -> None:
    """Until they are gone nothing is made; then the quorum is."""
    lab.kubectl("apply", "-f", "-", text=FOREIGN)

    def theirs() -> dict[str, object]:
        items = lab.get(KINDS, "-l", "app=shop")["items"]
        return {
            f"{i['kind']}/{i['metadata']['name']}": (
                i["metadata"]["uid"],
                i["metadata"].get("ownerReferences"),
                i["metadata"]["labels"],
                json.dumps(i.get("spec", {}).get("selector")),
                i.get("data"),
            )
            for i in items
        }

    before = theirs()
    assert len(before) == 5
    lab.install()
    told = lab.until(
        "the conflict is told",
        lambda: [lab.condition("Conflict")] if lab.condition("Conflict") else None,
    )[0]
    assert told["status"] == "True"
    assert all(name in told["message"] for name in before), told
    assert theirs() == before
    assert not lab.exists("statefulset", lab.name)
    lab.kubectl("delete", "quorum", lab.name)
    assert theirs() == before
    lab.kubectl("delete", KINDS, "-l", "app=shop")
    lab.install()
    lab.until_ready(3)
