"""Validation rules of the custom resource, as patterns and in CEL."""

from __future__ import annotations

from typing import Any

Schema = dict[str, Any]

QUANTITY = r"^[0-9]+([.][0-9]+)?([kMGTPE]|[KMGTPE]i|[eE][0-9]+)?$"
"""A positive quantity of bytes. Source: Kubernetes, apimachinery, "Quantity"."""


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


def kept_volume(field: str) -> Schema:
    """A field of spec.storage is fixed once the status shows the StatefulSet's claims.

    It may still be set to what they have, in case it was changed before the status was written.
    """
    old, new, made = (
        f"{each}.storage.{field}" for each in ("oldSelf.spec", "self.spec", "oldSelf.status")
    )
    has_new = f"(has(self.spec.storage) && has({new}))"
    has_old = f"(has(oldSelf.spec.storage) && has({old}))"
    is_as_made = f"({has_new} ? has({made}) && {new} == {made} : !has({made}))"
    is_unchanged = f"({has_new} ? {has_old} && {new} == {old} : !{has_old})"
    rule = f"!has(oldSelf.status) || !has(oldSelf.status.storage) || {is_unchanged} || {is_as_made}"
    return {"rule": rule, "message": f"spec.storage.{field} cannot be changed"}
