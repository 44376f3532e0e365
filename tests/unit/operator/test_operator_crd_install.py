"""Operators of several versions share the CRDs of a cluster."""

from __future__ import annotations

import copy
import hashlib
import json
import logging
from typing import Any

import pytest
from quorate_operator import crd_install
from quorate_operator.crd_install import apply_crds, definitions, revision_of
from quorate_operator.kube.api import Kube
from quorate_operator.naming import REVISION_ANNOTATION, Object

from tests.unit.operator.fake_api import RefusedError, Store

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
DIGESTS = {
    "quorums.quorate.dev": {
        1: "c5af8c1418a3abc6",
        2: "f5ffbf5c67f80a14",
        3: "37dea146d0a71744",
        4: "47e9541ecd833ef0",
        5: "fd72e37a22f3c299",
        6: "f8be14c871e98596",
    },
    "quorumbackups.quorate.dev": {
        1: "95919f71402a8b66",
        2: "20e0d1e7d66b2c40",
    },
}
"""The digest of each revision. A changed schema needs a new revision, and a new entry here."""


def of_revision(definition: Object, revision: int, field: str) -> Object:
    """A definition of another version, with a field of its own."""
    made = copy.deepcopy(definition)
    made["metadata"]["annotations"][REVISION_ANNOTATION] = str(revision)
    schema = made["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    schema["properties"]["spec"]["properties"][field] = {"type": "string"}
    return made


def installed(store: Store, name: str) -> Object:
    return store.objects[f"{CRDS}/{name}"]


def fields(definition: Object) -> set[str]:
    schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return set(schema["properties"]["spec"]["properties"])


def without_descriptions(node: Any) -> Any:
    if isinstance(node, dict):
        return {k: without_descriptions(v) for k, v in node.items() if k != "description"}
    return [without_descriptions(each) for each in node] if isinstance(node, list) else node


@pytest.mark.parametrize("definition", definitions(), ids=lambda each: each["metadata"]["name"])
def test_a_changed_schema_has_a_new_revision(definition: Object) -> None:
    text = json.dumps(without_descriptions(definition["spec"]), sort_keys=True)
    found = hashlib.sha256(text.encode()).hexdigest()[:16]
    known = DIGESTS[definition["metadata"]["name"]]
    assert known[max(known)] == found
    assert max(known) == revision_of(definition)


def test_a_newer_definition_stays(
    api: tuple[Store, Kube], caplog: pytest.LogCaptureFixture
) -> None:
    store, kube = api
    apply_crds(kube)
    for each in definitions():
        kube.apply("", of_revision(each, revision_of(each) + 1, "later"), "quorate-operator")
    with caplog.at_level(logging.WARNING):
        apply_crds(kube)
    for each in definitions():
        name = each["metadata"]["name"]
        assert "later" in fields(installed(store, name))
        own = revision_of(each)
        newer = f"has revision {own + 1}, which is newer than this operator's {own}"
        assert f"the CRD {name} {newer}" in caplog.text


def test_an_older_definition_is_replaced(api: tuple[Store, Kube]) -> None:
    store, kube = api
    for each in definitions():
        before = copy.deepcopy(each)
        del before["metadata"]["annotations"]  # as in release 0.1.0
        kube.apply("", before, "quorate-operator")
    apply_crds(kube)
    for each in definitions():
        assert revision_of(installed(store, each["metadata"]["name"])) == revision_of(each)


def test_a_newer_operator_that_starts_at_the_same_time_wins(api: tuple[Store, Kube]) -> None:
    """It applies its definition between the reading and the writing of the older one."""
    store, kube = api
    apply_crds(kube)
    quorums = definitions()[0]
    path = f"{CRDS}/{quorums['metadata']['name']}"
    newer = of_revision(quorums, 9, "later")

    def race(method: str, at: str, _body: Object) -> None:
        if (method, at) == ("PATCH", path):
            store.reject = lambda *_: None
            store.objects[path] = newer | {
                "metadata": {**newer["metadata"], "uid": "other", "resourceVersion": "999"}
            }

    store.reject = race
    apply_crds(kube)
    assert "later" in fields(installed(store, quorums["metadata"]["name"]))


def test_endless_conflicts_are_an_error(api: tuple[Store, Kube]) -> None:
    store, kube = api

    def conflict(method: str, _path: str, _body: Object) -> None:
        if method == "PATCH":
            raise RefusedError(409, "the object has been modified")

    store.reject = conflict
    with pytest.raises(crd_install.KubeError, match="has been modified"):
        apply_crds(kube)
    assert sum(method == "PATCH" for method, _ in store.log) == crd_install.ATTEMPTS


def test_without_permission_they_stay(
    api: tuple[Store, Kube], caplog: pytest.LogCaptureFixture
) -> None:
    store, kube = api

    def forbid(*_: object) -> None:
        raise RefusedError(403, "forbidden")

    store.reject = forbid
    with caplog.at_level(logging.WARNING):
        apply_crds(kube)
    assert caplog.text.count("no permission to apply the CRD") == len(definitions())
