"""The operator's certificates in use: a node that serves with them, its clients, an authority that
is replaced.
"""

from __future__ import annotations

import base64
import datetime as dt
from pathlib import Path
from typing import Any

import pytest
from quorate.controller.config_reader import load_config
from quorate.controller.unformatted import UnformattedNode
from quorate.rpc.client.quorum_client import QuorumClient, UnreachableError
from quorate.rpc.server.grpc_server import RpcServer, start_server
from quorate.rpc.tls import TlsConfig
from quorate_operator import naming, pod
from quorate_operator.control.identity import GivenIdentity, Identity
from quorate_operator.objects import certificates as c
from quorate_operator.objects.authority import Authority

from tests.processes import free_ports
from tests.unit.operator.fake_api import created
from tests.unit.operator.stepping import Lab

ENVIRONMENT = {
    "QUORATE_POD_NAME": "q-1",
    "QUORATE_POD_NAMESPACE": "lab",
    "QUORATE_POD_TLS": "true",
}


def write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).write_text(text)


def node_files(authority: Authority, known: dict[str, str] | None = None) -> dict[str, str]:
    return c.Issuer(authority.signer, authority.trusted, 90).node_files("q", "lab", known)


@pytest.fixture
def authority(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Authority:
    """The files of all nodes where a pod has them, and a port that is free."""
    monkeypatch.setattr(naming, "TLS_PATH", str(tmp_path))
    (port,) = free_ports(1)
    monkeypatch.setattr(naming, "PORT", port)
    made = Authority(c.new_authority("q authority"))
    write(tmp_path, node_files(made))
    return made


async def serve() -> RpcServer:
    config = load_config(None, pod.settings(ENVIRONMENT))
    assert config.tls is not None
    tls = TlsConfig(config.tls.certificate, config.tls.key, config.tls.ca)
    return await start_server([f"localhost:{naming.PORT}"], UnformattedNode(config), tls)


async def is_let_in(identity: Identity | GivenIdentity, *, as_probe: bool = False) -> bool:
    tls = identity.probe if as_probe else identity.tls
    assert tls is not None
    address = f"localhost:{naming.PORT}"
    async with QuorumClient([address], tls=tls) as client:
        try:
            return (await client.node_status(address)).node_id == 1
        except UnreachableError:
            return False


async def test_the_operator_is_let_in_and_strangers_are_not(authority: Authority) -> None:
    server = await serve()
    try:
        assert await is_let_in(Identity(authority))
        assert not await is_let_in(Identity(Authority(c.new_authority("q authority"))))
    finally:
        await server.stop()


async def test_a_certificate_from_elsewhere_does_as_well(authority: Authority) -> None:
    server = await serve()
    files = c.Issuer(authority.signer, authority.trusted, 90).client_files()
    try:
        assert await is_let_in(GivenIdentity(files))
    finally:
        await server.stop()


async def test_renewed_files_are_used_without_a_restart(
    authority: Authority, tmp_path: Path
) -> None:
    server = await serve()
    identity = Identity(authority)
    try:
        assert await is_let_in(identity)
        write(tmp_path, node_files(authority))
        assert await is_let_in(identity)
        assert not identity.is_due
    finally:
        await server.stop()


async def test_the_probe_tells_when_a_node_has_taken_the_next_step(
    authority: Authority, tmp_path: Path
) -> None:
    """Each phase's probe fails before the node has the phase's files, and passes then; the
    operator is let in all the time.
    """
    server = await serve()
    successor = c.new_authority("q authority")
    files = node_files(authority)
    phases = [
        Authority(authority.signer, successor),
        Authority(successor, predecessor=authority.signer.certificate),
    ]
    try:
        assert Identity(authority).probe is None
        for phase in phases:
            identity = Identity(phase)
            assert await is_let_in(identity)
            assert not await is_let_in(identity, as_probe=True)
            files = node_files(phase, files)
            write(tmp_path, files)
            assert await is_let_in(identity, as_probe=True)
            assert await is_let_in(identity)
        stable = Authority(successor)
        write(tmp_path, node_files(stable, files))
        assert await is_let_in(Identity(stable))
        assert not await is_let_in(Identity(authority))
    finally:
        await server.stop()


# --- certificates of another issuer that have expired ---------------------------------------------

GIVEN: dict[str, Any] = {"certManager": {"enabled": True}}
LONG_AGO = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


def give(lab: Lab, name: str, days: int) -> None:
    """Make or renew a Secret as cert-manager does. days: how long it is valid since LONG_AGO."""
    authority = c.new_authority("theirs", days=9000, now=LONG_AGO)
    pair = c.issue(authority, "operator", (), days, now=LONG_AGO)
    files = {"tls.crt": pair.certificate, "tls.key": pair.key, "ca.crt": authority.certificate}
    labels = {naming.USABLE_LABEL: "q"}
    data = {key: base64.b64encode(text.encode()).decode() for key, text in files.items()}
    body = {"kind": "Secret", "metadata": {"name": name, "labels": labels}, "data": data}
    if lab.kube.get("Secret", "lab", name) is None:
        lab.kube.create("Secret", "lab", body, "cert-manager")
    else:
        lab.kube.merge("Secret", "lab", name, {"data": data})
    lab.worker.is_changed = True


@pytest.mark.parametrize("secret", ["q-operator-tls", "q-node-1-tls"])
async def test_a_given_certificate_that_has_expired_is_named(lab: Lab, secret: str) -> None:
    quorum = created(lab.kube, tls={"enabled": True, **GIVEN})
    for name in quorum.given_secrets:
        give(lab, name, 8000)
    await lab.settle()
    assert lab.condition("Quorate")[1] == "NoLeader"
    give(lab, secret, 31)
    await lab.step()
    text = f"Secret/{secret}: its certificate expired at 2026-02-01T00:00:00Z: have it renewed"
    assert lab.condition("Quorate")[:2] == ("Unknown", "CertificateExpired")
    for name in ("Quorate", "Ready", "Progressing"):
        assert text in lab.condition(name)[2]
    assert lab.condition("Ready")[:2] == ("False", "CertificateExpired")
    assert [event["type"] for event in lab.events("CertificateExpired")] == ["Warning"]
    give(lab, secret, 8000)
    await lab.step()
    assert lab.condition("Quorate")[1] == "NoLeader"


async def test_an_expired_certificate_of_no_pod_is_not_reported(lab: Lab) -> None:
    quorum = created(lab.kube, tls={"enabled": True, **GIVEN})
    for name in quorum.given_secrets:
        give(lab, name, 31 if name == "q-node-8-tls" else 8000)
    await lab.settle()
    assert not lab.events("CertificateExpired")
