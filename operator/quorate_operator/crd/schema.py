"""Parts of the custom resources' schemas. Source: Kubernetes, "CustomResourceDefinition"."""

from __future__ import annotations

from typing import Any

from quorate_operator.crd.rules import Schema
from quorate_operator.naming import GROUP, REVISION_ANNOTATION, VERSION


def text(description: str, **more: Any) -> Schema:
    """A string."""
    return {"type": "string", "description": description, **more}


def integer(description: str, **more: Any) -> Schema:
    """An integer."""
    return {"type": "integer", "description": description, **more}


def boolean(description: str, **more: Any) -> Schema:
    """A boolean."""
    return {"type": "boolean", "description": description, **more}


def object(  # noqa: A001 - the name of the type in a schema
    description: str, properties: dict[str, Schema], **more: Any
) -> Schema:
    """An object with these properties and no others."""
    return {"type": "object", "description": description, "properties": properties, **more}


def column(name: str, kind: str, path: str, priority: int = 0) -> Schema:
    """A column of `kubectl get`. path: a JSONPath. priority: 1 for `-o wide` only."""
    return {"name": name, "type": kind, "jsonPath": path, "priority": priority}


def conditions() -> Schema:
    """The conditions of a status."""
    found = object(
        "One condition.",
        {
            "type": text("", maxLength=64),
            "status": text("", enum=["True", "False", "Unknown"]),
            "reason": text("", maxLength=128),
            "message": text("", maxLength=4096),
            "lastTransitionTime": text("", format="date-time"),
            "observedGeneration": integer("", format="int64"),
        },
        required=["type", "status"],
    )
    return {
        "type": "array",
        "items": found,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"],
    }


def resource(
    description: str, spec: Schema, status: Schema, validations: list[Schema] | None = None
) -> Schema:
    """The schema of a custom resource. validations: rules for the whole object."""
    # The names of pods, which are host names, derive from it.
    name = {"type": "string", "maxLength": 40, "pattern": "^[a-z]([-a-z0-9]*[a-z0-9])?$"}
    rules = {"x-kubernetes-validations": validations} if validations else {}
    return {
        "type": "object",
        "description": description,
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object", "properties": {"name": name}},
            "spec": spec,
            "status": status,
        },
        **rules,
    }


def definition(
    revision: int,
    kind: str,
    plural: str,
    short: str,
    *,
    described_by: Schema,
    subresources: Schema,
    columns: list[Schema],
) -> dict[str, Any]:
    """The CustomResourceDefinition of a namespaced kind with one version.

    short: the abbreviation for kubectl. described_by: see `resource`. columns: of `kubectl get`.
    """
    version = {
        "name": VERSION,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": described_by},
        "subresources": subresources,
        "additionalPrinterColumns": columns,
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{plural}.{GROUP}",
            "annotations": {REVISION_ANNOTATION: str(revision)},
        },
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": kind,
                "listKind": f"{kind}List",
                "plural": plural,
                "singular": kind.lower(),
                "shortNames": [short],
            },
            "versions": [version],
        },
    }
