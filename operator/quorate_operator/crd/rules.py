"""Validation rules of the custom resource, as patterns and in CEL."""

from __future__ import annotations

from typing import Any

Schema = dict[str, Any]

QUANTITY = r"^[0-9]+([.][0-9]+)?([kMGTPE]|[KMGTPE]i|[eE][0-9]+)?$"
"""A positive quantity of bytes. Source: Kubernetes, apimachinery, "Quantity"."""
SUBDOMAIN_OR_NONE = r"^$|^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"
"""A DNS subdomain, as the names of most objects are, or nothing. Source: RFC 1123."""


def kept(field: str) -> Schema:
    """Once set, the field cannot be changed or removed."""
    rule = f"!has(oldSelf.{field}) || (has(self.{field}) && self.{field} == oldSelf.{field})"
    return {"rule": rule, "message": f"{field} cannot be changed"}


def kept_as_created(field: str) -> Schema:
    """The field cannot be set, changed or removed after creation."""
    rule = (
        f"has(self.{field}) == has(oldSelf.{field}) && "
        f"(!has(self.{field}) || self.{field} == oldSelf.{field})"
    )
    return {"rule": rule, "message": f"{field} cannot be changed"}
