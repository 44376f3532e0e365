"""What users name in files and scripts stays, as docs/versions.md promises.

`tests.releases` has what release 0.1.0 had. What is gone is listed here, with what replaces it.
"""

from __future__ import annotations

from typing import Any

import pytest
import quorate

from tests.releases.interfaces import Interfaces, current, released, schema

GONE = {
    "console --read-only": "the default; --allow-changes is the opposite",
    "v1alpha1.spec.podTemplate.imagePullSecrets.items": "rejects what no pod may have",
    "v1alpha1.spec.podTemplate.topologySpreadConstraints.items": "rejects what no pod may have",
    "v1alpha1.spec.storage.size": "rejects what is no quantity, and no volume claim could have had",
    "v1alpha1.spec.storage.storageClassName": "rejects what no StorageClass can be called",
}
"""Settings, commands, options and fields of a Quorum that 0.1.0 had, and the reason or remedy."""


@pytest.fixture(scope="module")
def then() -> Interfaces:
    return released()


@pytest.fixture(scope="module")
def now() -> Interfaces:
    return current()


def gone(then: dict[str, list[str]], now: dict[str, list[str]]) -> list[str]:
    """The names in the lists that are missing now."""
    names = [f"{key} {name}" for key, listed in then.items() for name in ("", *listed)]
    found = {f"{key} {name}" for key, listed in now.items() for name in ("", *listed)}
    return [name.strip() for name in names if name not in found]


def narrowed(then: dict[str, dict[str, Any]], now: dict[str, dict[str, Any]]) -> list[str]:
    """The fields of a custom resource that are gone, or no longer accept what they accepted."""
    return [path for path, old in then.items() if not accepts(now.get(path), old)]


def accepts(new: dict[str, Any] | None, old: dict[str, Any]) -> bool:
    """Whether a field accepts everything that it accepted. A changed pattern counts as narrower."""
    if new is None or new.get("type") != old.get("type"):
        return False
    if new.get("pattern") not in (None, old.get("pattern")):
        return False
    if not set(new.get("required", ())) <= set(old.get("required", ())):
        return False
    if "enum" in new and not set(old.get("enum", ("anything",))) <= set(new["enum"]):
        return False
    lowest = (new.get("minimum", float("-inf")), old.get("minimum", float("-inf")))
    highest = [
        (new.get(name, float("inf")), old.get(name, float("inf")))
        for name in ("maximum", "maxItems", "maxLength")
    ]
    return lowest[0] <= lowest[1] and all(one >= two for one, two in highest)


def test_settings_stay(then: Interfaces, now: Interfaces) -> None:
    assert set(gone(then["settings"], now["settings"])) <= GONE.keys()


def test_commands_and_options_stay(then: Interfaces, now: Interfaces) -> None:
    assert set(gone(then["commands"], now["commands"])) <= GONE.keys()


def test_a_quorum_object_stays_valid(then: Interfaces, now: Interfaces) -> None:
    assert set(narrowed(then["quorum"], now["quorum"])) <= GONE.keys()


def test_the_documented_import_stays() -> None:
    from quorate.rpc.client import QuorumClient

    assert QuorumClient is quorate.Client


def test_the_list_has_nothing_else(then: Interfaces, now: Interfaces) -> None:
    found = [
        *gone(then["settings"], now["settings"]),
        *gone(then["commands"], now["commands"]),
        *narrowed(then["quorum"], now["quorum"]),
    ]
    assert GONE.keys() <= set(found)


def test_what_is_gone_is_found() -> None:
    then = {"topics list": ["--json"], "acls": []}
    assert gone(then, {"topics list": [], "features": []}) == ["topics list --json", "acls"]
    assert gone(then, {**then, "topics list": ["--json", "--new"]}) == []


@pytest.mark.parametrize(
    ("old", "new", "same"),
    [
        ({"type": "integer", "minimum": 1}, {"type": "integer", "minimum": 0}, True),
        ({"type": "integer", "minimum": 1}, {"type": "integer", "minimum": 2}, False),
        ({"type": "integer"}, {"type": "integer", "maximum": 7}, False),
        ({"type": "integer"}, {"type": "string"}, False),
        ({"type": "string", "enum": ["a"]}, {"type": "string", "enum": ["a", "b"]}, True),
        ({"type": "string", "enum": ["a", "b"]}, {"type": "string", "enum": ["a"]}, False),
        ({"type": "string"}, {"type": "string", "enum": ["a"]}, False),
        ({"type": "string"}, {"type": "string", "pattern": "^a$"}, False),
        ({"type": "string", "pattern": "^a$"}, {"type": "string"}, True),
        ({"type": "object", "required": ["a"]}, {"type": "object"}, True),
        ({"type": "object"}, {"type": "object", "required": ["a"]}, False),
    ],
)
def test_a_narrower_field_is_found(old: dict[str, Any], new: dict[str, Any], same: bool) -> None:
    assert (narrowed({"v1.spec": old}, {"v1.spec": new}) == []) == same


def test_a_version_that_is_no_longer_served_is_found() -> None:
    crd = """
spec:
  versions:
  - name: v1
    served: {served}
    schema: {{openAPIV3Schema: {{type: object, properties: {{a: {{type: string}}}}}}}}
"""
    served, not_served = (schema(crd.format(served=each)) for each in ("true", "false"))
    assert set(served) == {"v1", "v1.a"}
    assert narrowed(served, not_served) == ["v1", "v1.a"]
