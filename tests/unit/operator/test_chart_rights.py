"""What the chart lets the operator do, and what users see without a permission."""

from __future__ import annotations

import pytest

from tests.unit.operator.fake_api import Object, RefusedError, created
from tests.unit.operator.stepping import Lab
from tests.unit.operator.test_operator_chart import helm, rendered, rules
from tests.unit.operator.test_operator_external import PORTS, secured

__all__ = ["helm", "secured"]  # fixtures

BACKUP_RIGHTS = {("deployments", verb) for verb in ("get", "create", "patch", "delete")} | {
    ("cronjobs", verb) for verb in ("get", "create", "patch", "delete")
}
BACKUP_RIGHTS |= {("jobs", verb) for verb in ("get", "list", "create")}
BACKUP_RIGHTS |= {("persistentvolumeclaims", "create")}
SERVICES = ("services", "delete")
EXTERNAL = 'quorum.external={"type":"LoadBalancer"}'
RECOVERY = 'quorum.bootstrap={"recovery":{"source":{"s3":{"url":"s3://a/b"}}}}'


def rights(helm: str, *values: str) -> set[tuple[str, str]]:
    """The operator's permissions for resources, in its release's namespace."""
    made = rendered(helm, *values)
    return {
        (resource, verb)
        for name, rule in rules(made)
        if "operator" in name
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


@pytest.mark.parametrize(
    ("values", "is_allowed"),
    [
        ([], False),
        ([EXTERNAL], True),
        ([EXTERNAL, "operator.externalAccess=false"], False),
        ([EXTERNAL, "quorum.enabled=false"], False),
        (["operator.externalAccess=true"], True),
        (["operator.externalAccess=true", "quorum.enabled=false"], True),
    ],
)
def test_services_are_deleted_only_for_clients_outside(
    helm: str, values: list[str], is_allowed: bool
) -> None:
    found = rights(helm, *values)
    assert (SERVICES in found) == is_allowed
    assert ("services", "create") in found


@pytest.mark.parametrize(
    ("values", "is_allowed"),
    [
        ([], False),
        (["operator.backups=true"], True),
        (["operator.backups=true", "operator.clusterWide=true"], True),
        ([RECOVERY], True),
        ([RECOVERY, "operator.backups=false"], False),
        ([RECOVERY, "quorum.enabled=false"], False),
    ],
)
def test_workloads_are_made_only_for_backups_and_restores(
    helm: str, values: list[str], is_allowed: bool
) -> None:
    found = rights(helm, *values)
    assert (found & BACKUP_RIGHTS) == (BACKUP_RIGHTS if is_allowed else set())
    # A QuorumBackup shows what is missing.
    assert found >= {("quorumbackups", "list"), ("quorumbackups/status", "patch")}
    assert not found & {("pods", "create"), ("persistentvolumeclaims", "delete")}


def forbid(lab: Lab, method: str, part: str) -> str:
    """Let the API server reject requests; its message."""
    text = f'{part} "x" is forbidden: User "operator" cannot {method.lower()} resource "{part}"'

    def reject(found: str, path: str, _body: Object) -> None:
        if found == method and f"/{part}" in path:
            raise RefusedError(403, text)

    lab.store.reject = reject
    return text


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_a_restore_without_the_permission_says_so(lab: Lab, method: str) -> None:
    source = {"s3": {"url": "s3://a/b"}}
    created(lab.kube, tls={"enabled": False}, bootstrap={"recovery": {"source": source}})
    text = forbid(lab, method, "jobs")
    for _ in range(8):
        await lab.step()
        lab.now += 200
    status, reason, message = lab.condition("Ready")
    assert status != "True"
    assert reason in ("ObservationFailed", "ActionFailed")
    assert text in message
    assert not [path for path in lab.store.objects if "statefulsets" in path]


async def test_a_service_that_may_not_be_deleted_is_reported(secured: Lab) -> None:
    """`external` was removed, and with it the permission."""
    lab = secured
    lab.patch(external=PORTS)
    await lab.settle()
    text = forbid(lab, "DELETE", "services")
    lab.patch(external=None)
    await lab.settle()
    assert lab.condition("SpecApplied")[:2] == ("False", "ApplyRejected")
    assert text in lab.condition("SpecApplied")[2]
    lab.store.reject = lambda *_: None
    lab.now += 200
    await lab.settle()
    assert lab.condition("SpecApplied")[0] == "True"
