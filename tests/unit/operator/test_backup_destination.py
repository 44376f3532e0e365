"""Where archives are: what the pods get of Secrets and service accounts, and what must allow it."""

from __future__ import annotations

import pytest
from quorate_operator import naming
from quorate_operator.backups.manifests import drill, workload
from quorate_operator.crd.destination import Destination
from quorate_operator.kube.api import Kube, path
from quorate_operator.objects import recovery

from tests.unit.operator.fake_api import Object, Store
from tests.unit.operator.test_operator_objects import resource as quorum
from tests.unit.operator.test_quorum_backup import QUORUM, Lab, resource

PLACE = {
    "s3": {
        "url": "s3://bucket/q?region=us-east-1",
        "caSecretName": "store-ca",
        "serviceAccountName": "backups",
    },
    "encryption": {"secretName": "backup-key"},
}
URL = "s3://bucket/q?region=us-east-1&tls_ca_file_path=/etc/quorate/backup-ca/ca.crt"
KEY = "--key-file=/etc/quorate/backup-key/keyset.json"


def pods() -> dict[str, Object]:
    """The specs of all pods that use an archive."""
    backup = resource(destination=PLACE, drill={"schedule": "@daily"})
    scheduled = resource(destination=PLACE, schedule="@daily")
    restoring = recovery.job(quorum(bootstrap={"recovery": {"source": PLACE}}), "A" * 22)
    jobs = {
        "scheduled": workload(scheduled, QUORUM)["spec"]["jobTemplate"],
        "drill": drill(backup, QUORUM)["spec"]["jobTemplate"],
        "restore": restoring,
    }
    found = {name: job["spec"]["template"]["spec"] for name, job in jobs.items()}
    return found | {"continuous": workload(backup, QUORUM)["spec"]["template"]["spec"]}


@pytest.mark.parametrize("which", ["continuous", "scheduled", "drill", "restore"])
def test_each_pod_gets_the_key_the_authority_and_the_role(which: str) -> None:
    spec = pods()[which]
    assert spec["serviceAccountName"] == "backups"
    assert spec["automountServiceAccountToken"] is False
    volumes = {each["name"]: each.get("secret") for each in spec["volumes"]}
    (container,) = spec["containers"]
    mounts = {each["name"]: each for each in container["volumeMounts"]}
    for volume, secret, file in (
        ("backup-key", "backup-key", "keyset.json"),
        ("backup-ca", "store-ca", "ca.crt"),
    ):
        items = [{"key": file, "path": file}]
        assert volumes[volume] == {"secretName": secret, "defaultMode": 0o440, "items": items}
        assert mounts[volume]["readOnly"] is True
    assert KEY in container["args"]
    assert any(each in (URL, f"--to={URL}") for each in container["args"])
    assert not any("AWS" in each["name"] for each in container["env"]), "the role has the access"


def test_a_plain_destination_needs_nothing() -> None:
    found = Destination({"s3": {"url": "s3://bucket/q"}}, "q")
    assert (found.url, found.options, found.identity) == ("s3://bucket/q", [], {})
    assert (found.volumes(), found.mounts(), found.objects) == ([], [], ())


def test_an_authority_needs_tls() -> None:
    url = "s3://bucket/q?endpoint_override=minio:9000&scheme=http"
    found = Destination({"s3": {"url": url, "caSecretName": "store-ca"}}, "q")
    assert "scheme=http" in found.problem
    assert not Destination(PLACE, "q").problem


@pytest.mark.parametrize(
    ("kind", "name"),
    [("Secret", "backup-key"), ("Secret", "store-ca"), ("ServiceAccount", "backups")],
)
async def test_only_what_is_labelled_is_used(api: tuple[Store, Kube], kind: str, name: str) -> None:
    lab = Lab(*api)
    for each, title in (
        ("Secret", "backup-key"),
        ("Secret", "store-ca"),
        ("ServiceAccount", "backups"),
    ):
        lab.put(each, title, {naming.USABLE_LABEL: "q"})
    where = path(kind, "lab", name)
    lab.store.objects[where]["metadata"]["labels"] = {naming.USABLE_LABEL: "another"}
    lab.want(destination=PLACE)
    text = f"{kind}/{name} needs the label quorate.dev/usable-by=q"
    assert await lab.ready() == ("False", "NotAllowed", text)
    assert lab.found("Deployment") is None
    lab.store.objects[where]["metadata"]["labels"] = {naming.USABLE_LABEL: "q"}
    await lab.after(60)
    assert lab.found("Deployment") is not None
