"""What the chart lets the operator do, and what users see without a permission."""

from __future__ import annotations

import pytest

from tests.unit.operator.fake_api import Object, RefusedError, created
from tests.unit.operator.stepping import Lab
from tests.unit.operator.test_operator_chart import documents, environment, helm, rendered, rules
from tests.unit.operator.test_operator_external import PORTS, secured

__all__ = ["helm", "secured"]  # fixtures

BACKUP_RIGHTS = {("deployments", verb) for verb in ("get", "create", "patch", "delete")} | {
    ("cronjobs", verb) for verb in ("get", "create", "patch", "delete")
}
BACKUP_RIGHTS |= {("jobs", verb) for verb in ("get", "list", "create")}
BACKUP_RIGHTS |= {("persistentvolumeclaims", "create")}
CLAIMS = "persistentvolumeclaims"
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


@pytest.mark.parametrize("is_wide", [False, True])
def test_rights_name_what_they_are_for(helm: str, is_wide: bool) -> None:
    """No wildcards, and no Secrets of the whole cluster."""
    made = rendered(helm, f"operator.clusterWide={str(is_wide).lower()}")
    for name, rule in rules(made):
        assert "*" not in [*rule["apiGroups"], *rule["resources"], *rule["verbs"]], name
        if "secrets" in rule["resources"]:
            assert name.startswith("Role/"), name
    kinds = {each["kind"] for each in made.values() if each["metadata"]["name"] == "lab-x-operator"}
    assert kinds == ({"ClusterRole", "ClusterRoleBinding"} if is_wide else {"Role", "RoleBinding"})


@pytest.mark.parametrize("is_wide", [False, True])
def test_an_operator_of_several_namespaces_has_a_role_in_each(helm: str, is_wide: bool) -> None:
    wide = f"operator.clusterWide={str(is_wide).lower()}"
    (*found,) = documents(helm, wide, 'operator.namespaces=["team", "lab", "other"]')
    roles = {
        each["metadata"]["namespace"]: {
            name for rule in each["rules"] for name in rule["resources"]
        }
        for each in found
        if each["kind"] == "Role" and each["metadata"]["name"] == "lab-x-operator"
    }
    bound = [
        each["metadata"]["namespace"]
        for each in found
        if each["kind"] == "RoleBinding" and each["metadata"]["name"] == "lab-x-operator"
    ]
    assert sorted(bound) == sorted(roles)
    expected = {"secrets"} if is_wide else {"secrets", "leases", "quorums", "statefulsets", "pods"}
    for namespace in ("team", "other"):
        assert roles[namespace] >= expected
        assert is_wide == ("quorums" not in roles[namespace])
    assert ("lab" in roles) == (not is_wide), "its own Secrets are in the Role x-operator-own"
    (watched,) = {
        each["value"]
        for document in found
        if document["kind"] == "Deployment"
        for each in document["spec"]["template"]["spec"]["containers"][0]["env"]
        if each["name"] == "QUORATE_OPERATOR_NAMESPACE"
    }
    assert watched == ("" if is_wide else "lab,team,other")
    everywhere = {
        name
        for each in found
        if each["kind"] == "ClusterRole"
        for rule in each["rules"]
        for name in rule["resources"]
    }
    assert ("leases" in everywhere) == is_wide
    assert "secrets" not in everywhere


def test_the_permission_to_list_secrets_can_be_withheld(helm: str) -> None:
    for is_watching in (True, False):
        made = rendered(helm, f"operator.watchSecrets={str(is_watching).lower()}")
        (rule,) = (rule for _, rule in rules(made) if "secrets" in rule["resources"])
        assert ({"list", "watch"} <= set(rule["verbs"])) == is_watching
        assert environment(made)["QUORATE_OPERATOR_WATCH_SECRETS"] == str(is_watching).lower()


def test_the_permission_to_change_claims_is_opt_in(helm: str) -> None:
    for is_expanding in (None, True, False):
        given = (
            [] if is_expanding is None else [f"operator.expandVolumes={str(is_expanding).lower()}"]
        )
        (rule,) = (r for _, r in rules(rendered(helm, *given)) if CLAIMS in r["resources"])
        assert ("patch" in rule["verbs"]) == bool(is_expanding)
        assert "delete" not in rule["verbs"]


def test_the_permission_to_delete_stateful_sets_is_opt_in(helm: str) -> None:
    for is_recreating in (None, True, False):
        shown = str(is_recreating).lower()
        given = [] if is_recreating is None else [f"operator.recreateStatefulSets={shown}"]
        found = rules(rendered(helm, *given))
        (rule,) = (r for _, r in found if "statefulsets" in r["resources"])
        assert ("delete" in rule["verbs"]) == bool(is_recreating)


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
