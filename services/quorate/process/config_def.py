"""The declaration of settings, and the set of settings that one kind of process has.

A setting whose value is used as it is written is declared as a field of the configuration that
holds it, with `setting` or `required`. Its roles are those of the configurations that have the
field. Settings that are checked together, and become something else, are `Setting`s of a tuple.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar, cast, overload

from quorate.process.config_types import ConfigType

if TYPE_CHECKING:
    from quorate.process.properties import ParsedProperties

T = TypeVar("T")

_KEY = "setting"
"""Of a field's metadata."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting."""

    name: str
    type: ConfigType[Any]
    default: str | None
    """The text that would be written, None if there is no default."""
    doc: str
    is_required: bool = False

    @property
    def variable(self) -> str:
        """The environment variable that overrides the file; our own settings name us once."""
        return "QUORATE_" + self.name.removeprefix("quorate.").upper().replace(".", "_")

    @property
    def variables(self) -> tuple[str, ...]:
        """`variable`, and how it is spelled by rule alone, with our name twice."""
        return tuple({self.variable: 1, "QUORATE_" + self.name.upper().replace(".", "_"): 1})

    def parse(self, text: str | None) -> Any:
        """The value of `text`, or of the default if there is none. ValueError."""
        text = self.default if text is None else text
        if text is None or (text == "" and self.default in (None, "")):
            return () if self.type.name == "list" else None
        return self.type.parse(text)


@overload
def setting(name: str, type_: ConfigType[T], default: str, doc: str) -> T: ...
@overload
def setting(name: str, type_: ConfigType[T], default: None, doc: str) -> T | None: ...
def setting(name: str, type_: ConfigType[Any], default: str | None, doc: str) -> Any:
    """A field of a configuration that holds the value of the setting declared here."""
    declared = Setting(name, type_, default, doc)
    return dataclasses.field(
        default_factory=lambda: declared.parse(None), metadata={_KEY: declared}
    )


def required(name: str, type_: ConfigType[T], doc: str) -> T:
    """A field of a configuration that holds the value of a setting without a default."""
    declared = Setting(name, type_, None, doc, is_required=True)
    return cast(T, dataclasses.field(metadata={_KEY: declared}))


def declared_in(configuration: type) -> tuple[Setting, ...]:
    """The settings that the fields of a configuration declare."""
    return tuple(declared for _, declared in _declarations(configuration))


def values_of(configuration: type, parsed: ParsedProperties) -> dict[str, Any]:
    """The values of these settings by field. ConfigError where a required one is not set."""
    return {
        field: parsed.require(each.name) if each.is_required else parsed.get(each.name)
        for field, each in _declarations(configuration)
    }


def _declarations(configuration: type) -> list[tuple[str, Setting]]:
    fields = dataclasses.fields(configuration)
    return [(each.name, each.metadata[_KEY]) for each in fields if _KEY in each.metadata]


def _accept_all(_properties: ParsedProperties) -> None:
    """Check nothing."""


def by_name(*groups: Iterable[Setting]) -> dict[str, Setting]:
    """The settings of all groups; those that a later group declares anew are its own."""
    return {each.name: each for group in groups for each in group}


@dataclass(frozen=True, slots=True)
class ConfigDef:
    """The settings of one kind of process, and how it treats other names."""

    process: str
    settings: Mapping[str, Setting]
    refused: Mapping[str, str]
    """Why a setting of this name is an error."""
    ignored: Callable[[str], bool]
    """Whether a name means something elsewhere and is worth a warning only."""
    listed_by: str
    """The command that prints the settings."""
    check_texts: Callable[[ParsedProperties], None] = _accept_all
    """Raises ConfigError for texts that must be refused before any of them is parsed."""
