"""Config definitions: the type and valid values of a config. Source: Kafka's ConfigDef."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

VALUE_BYTES_MAX = 32_767


class ConfigKeyType(StrEnum):
    """Kafka's ConfigDef.Type."""

    BOOLEAN = "boolean"
    SHORT = "short"
    INT = "int"
    LONG = "long"
    DOUBLE = "double"
    STRING = "string"
    LIST = "list"
    PASSWORD = "password"  # noqa: S105 (a type's name)
    CLASS = "class"


_BITS: Final = {ConfigKeyType.SHORT: 16, ConfigKeyType.INT: 32, ConfigKeyType.LONG: 64}
_THROTTLED = re.compile(r"\d+:\d+")


@dataclass(frozen=True, slots=True)
class ConfigKey:
    """The definition of a config."""

    name: str
    kind: ConfigKeyType
    default: str | None
    low: int | None = None
    """The smallest number, None for no limit."""
    high: int | None = None
    """The largest number, None for no limit."""
    or_minus_one: bool = False
    """Whether -1 is valid too."""
    choices: tuple[str, ...] = ()
    throttled: bool = False
    """Whether the value is a list of PARTITION:BROKER pairs, or the wildcard."""
    synonym: str = ""
    """The broker config with the topic's default, if its name differs."""

    @property
    def is_list(self) -> bool:
        return self.kind is ConfigKeyType.LIST

    @property
    def is_sensitive(self) -> bool:
        return self.kind is ConfigKeyType.PASSWORD

    def fault(self, value: str) -> str | None:
        """Why the value is invalid, None if it is valid."""
        text = value.strip()
        match self.kind:
            case ConfigKeyType.BOOLEAN:
                ok = text.lower() in ("true", "false")
                return (
                    None if ok else self._says(value, "Expected value to be either true or false")
                )
            case ConfigKeyType.SHORT | ConfigKeyType.INT | ConfigKeyType.LONG:
                if not re.fullmatch(r"[+-]?[0-9]{1,40}", text, re.ASCII):
                    return self._says(value, f"Not a number of type {self.kind.name}")
                number = int(text)
                if not -(1 << (_BITS[self.kind] - 1)) <= number < 1 << (_BITS[self.kind] - 1):
                    return self._says(value, f"Not a number of type {self.kind.name}")
                return self._out_of_range(value, number)
            case ConfigKeyType.DOUBLE:
                try:
                    real = float(text) if text.isascii() else math.nan
                except ValueError:
                    return self._says(value, "Not a number of type DOUBLE")
                return self._out_of_range(value, real)
            case ConfigKeyType.LIST:
                return self._list_fault(value)
        if self.choices and text not in self.choices:
            return self._says(value, f"String must be one of: {', '.join(self.choices)}")
        return None

    def _out_of_range(self, value: str, number: float) -> str | None:
        if self.or_minus_one and number == -1:
            return None
        if self.low is not None and (math.isnan(number) or number < self.low):
            return self._says(value, f"Value must be at least {self.low}")
        if self.high is not None and number > self.high:
            return self._says(value, f"Value must be no more than {self.high}")
        return None

    def _list_fault(self, value: str) -> str | None:
        if self.throttled:
            items = split_list(value)
            if value.strip() == "*" or all(_THROTTLED.fullmatch(item) for item in items):
                return None
            return self._says(
                f"[{', '.join(items)}]",
                f"{self.name} must be the literal '*' or a list of replicas in the following "
                "format: [partitionId]:[brokerId],[partitionId]:[brokerId],...",
            )
        if self.choices and value.strip():
            # Duplicates are allowed.
            for item in re.split(r"\s*,\s*", value.strip()):
                if not item:
                    return f"Configuration '{self.name}' values must not be empty."
                if item not in self.choices:
                    return self._says(item, f"String must be one of: {', '.join(self.choices)}")
        return None

    def _says(self, value: str, why: str) -> str:
        shown = "[hidden]" if self.is_sensitive else value
        return f"Invalid value {shown} for configuration {self.name}: {why}"


def split_list(value: str) -> list[str]:
    """The items of a LIST."""
    return [item for item in re.split(r"\s*,\s*", value.strip()) if item]
