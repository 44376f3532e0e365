"""Declares settings.

A setting whose parsed value is used unchanged is declared with `setting` or `required`, as a field
of the class that holds the value and belongs to the code that uses it. The configuration of a role
has such classes as `group`s. A setting applies to the roles whose configurations have its field.
Settings that are validated together, or from which other values are derived, are `Setting`s in a
tuple.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain
from typing import Any, TypeVar, cast, overload

from quorate.common.config_types import ConfigType

T = TypeVar("T")

_KEY = "setting"
"""The key of the `Setting` in a field's metadata."""

_GROUP = "group"
"""The key of the class of a group in a field's metadata."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting."""

    name: str
    type: ConfigType[Any]
    default: str | None
    """The default as the text of a properties file; None if there is no default."""
    doc: str
    is_required: bool = False

    @property
    def variable(self) -> str:
        """The environment variable that overrides the file. It drops the prefix `quorate.`."""
        return "QUORATE_" + self.name.removeprefix("quorate.").upper().replace(".", "_")

    @property
    def variables(self) -> tuple[str, ...]:
        """`variable`, and the spelling that keeps the prefix `quorate.` (QUORATE_QUORATE_…)."""
        return tuple({self.variable: 1, "QUORATE_" + self.name.upper().replace(".", "_"): 1})

    def parse(self, text: str | None) -> Any:
        """Parse `text`, or the default if `text` is None. Raises ValueError.

        A value that is unset, or empty without a default, is `()` for a list and None otherwise.
        """
        text = self.default if text is None else text
        if text is None or (text == "" and self.default in (None, "")):
            return () if self.type.name == "list" else None
        return self.type.parse(text)


@overload
def setting(name: str, type_: ConfigType[T], default: str, doc: str) -> T: ...
@overload
def setting(name: str, type_: ConfigType[T], default: None, doc: str) -> T | None: ...
def setting(name: str, type_: ConfigType[Any], default: str | None, doc: str) -> Any:
    """Declare a setting, and return the configuration field that holds its value."""
    declared = Setting(name, type_, default, doc)
    return dataclasses.field(
        default_factory=lambda: declared.parse(None),
        metadata={_KEY: declared},
        repr=not type_.is_secret,
    )


def required(name: str, type_: ConfigType[T], doc: str) -> T:
    """Declare a setting without a default, and return the field that holds its value."""
    declared = Setting(name, type_, None, doc, is_required=True)
    return cast(T, dataclasses.field(metadata={_KEY: declared}))


def group(declaring: type[T]) -> T:
    """Declare all settings of another class, and return the field that holds an instance of it."""
    return dataclasses.field(default_factory=declaring, metadata={_GROUP: declaring})


def declared_in(configuration: type) -> tuple[Setting, ...]:
    """The settings that the fields of a configuration, and those of its groups, declare."""
    own = [declared for _, declared in declarations(configuration)]
    return tuple(chain(own, *(declared_in(each) for _, each in groups(configuration))))


def declarations(configuration: type) -> list[tuple[str, Setting]]:
    """The fields of a configuration that declare a setting, each with its setting."""
    fields = dataclasses.fields(configuration)
    return [(each.name, each.metadata[_KEY]) for each in fields if _KEY in each.metadata]


def groups(configuration: type) -> list[tuple[str, type]]:
    """The fields of a configuration that are groups, each with its class."""
    fields = dataclasses.fields(configuration)
    return [(each.name, each.metadata[_GROUP]) for each in fields if _GROUP in each.metadata]


def by_name(*groups: Iterable[Setting]) -> dict[str, Setting]:
    """The settings of all groups by name. A later group overrides an earlier one."""
    return {each.name: each for group in groups for each in group}
