"""Values: dataclasses that are not changed after construction.

The protocol makes a dozen of them for each message. `dataclass(frozen=True)` guards every field at
run time, and making one takes three times as long; here the type checker alone holds the guard.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def value(cls: type[T]) -> type[T]:
    """A dataclass with slots, equal and hashed by its fields, frozen for the type checker."""
    return dataclass(slots=True, unsafe_hash=True)(cls)


@dataclass_transform(frozen_default=True, order_default=True, field_specifiers=(field,))
def ordered_value(cls: type[T]) -> type[T]:
    """As `value`, and compared by its fields in order. A class may bring a hash of its own."""
    return dataclass(slots=True, unsafe_hash="__hash__" not in cls.__dict__, order=True)(cls)
