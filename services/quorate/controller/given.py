"""What was given to a process, and where: a properties file and the environment over it, parsed.

Each setting by itself: which ones must fit together is checked by who asks for them, with `Given`'s
`require`, `fail` and `pem`. Rules 1 and 2 of `config` hold here. Which settings there are is a
`Table`: a controller's by default; a broker has its own.

Source: Kafka's KafkaConfig for names; java.util.Properties for the file.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from quorate.controller.kafka_names import is_kafkas
from quorate.controller.migration_settings import check_roles
from quorate.controller.settings import BY_NAME, REFUSED, Setting

PREFIX = "QUORATE_"


class ConfigError(Exception):
    """A configuration that cannot be used; its text is one line for the person who wrote it."""


@dataclass(frozen=True, slots=True)
class Table:
    """What one kind of process may be told: `settings` by name, and what is said of other names.

    refused: why a setting is an error. ignored: a warning for a name that means something
    elsewhere. listed_by: the command that prints the settings.
    """

    process: str
    settings: Mapping[str, Setting]
    refused: Mapping[str, str]
    ignored: Callable[[str], bool]
    listed_by: str


CONTROLLER = Table("controller", BY_NAME, REFUSED, is_kafkas, "quorate config-docs")


@dataclass(slots=True)
class Given:
    """What was written, where, and what it means: `values` are parsed, `places` say where each one
    stands.
    """

    source: str
    table: Table = CONTROLLER
    values: dict[str, Any] = field(default_factory=dict)
    places: dict[str, str] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)

    def __contains__(self, name: str) -> bool:
        return name in self.texts

    def get(self, name: str) -> Any:
        return self.values[name]

    def require(self, name: str, because: str = "") -> Any:
        if self.values[name] is None or self.values[name] == ():
            setting = self.table.settings[name]
            raise ConfigError(
                f"{self.source}: {name} is not set{because}; it takes {setting.form.accepts} "
                f"(or set {setting.variable} in the environment)"
            )
        return self.values[name]

    def fail(self, name: str, reason: str) -> NoReturn:
        """Refuse the value of `name`, which does not fit with others."""
        place = self.places.get(name, self.source)
        raise ConfigError(f"{place}: {name}={_shown(self.texts.get(name, ''))}: {reason}")

    def pem(self, name: str, wanted: str) -> Path:
        """The PEM file that `name` names; it must hold what is wanted, not encrypted."""
        path: Path = self.get(name)
        try:
            text = path.read_bytes()
        except OSError as error:
            self.fail(name, f"cannot be read: {error.strerror}")
        if f"{wanted}-----".encode() not in text:
            self.fail(name, f"it holds no PEM {wanted.lower()}")
        if wanted == "PRIVATE KEY" and b"ENCRYPTED" in text:
            self.fail(name, "the private key is encrypted; an unencrypted one is needed")
        return path


def read_properties(path: Path) -> dict[str, tuple[str, int]]:
    """The properties in `path`: name to value and line. The last of several wins, as in Java.
    Raises ConfigError.
    """
    import javaproperties  # noqa: PLC0415 - 20 ms that commands without a file do not pay

    try:
        data = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
    if b"\0" in data:
        raise ConfigError(f"{path}: not a properties file: it contains a zero byte")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        text = data.decode("latin-1")  # what java.util.Properties reads
    found: dict[str, tuple[str, int]] = {}
    line = 1
    try:
        for element in javaproperties.parse(text):
            if isinstance(element, javaproperties.KeyValue):
                found[element.key] = (element.value, line)
            line += max(1, element.source.count("\n"))
    except javaproperties.InvalidUEscapeError as error:
        raise ConfigError(f"{path}:{line}: not a properties file: {error}") from None
    return found


def read_given(
    path: Path | None, environment: Mapping[str, str], table: Table = CONTROLLER
) -> Given:
    """All settings of `table`, each by itself. Raises ConfigError."""
    given = Given("the environment" if path is None else str(path), table)
    for name, (text, line) in ({} if path is None else read_properties(path)).items():
        _take(given, name, text.strip(), f"{path}:{line}")
    _read_environment(given, environment)
    check_roles(given)
    for setting in table.settings.values():
        given.values[setting.name] = _parse(setting, given)
    return given


def _take(given: Given, name: str, text: str, place: str) -> None:
    table = given.table
    if name in table.settings:
        given.texts[name], given.places[name] = text, place
    elif name in table.refused:
        raise ConfigError(f"{place}: {name} is not supported: {table.refused[name]}")
    elif table.ignored(name):
        whose = "Kafka's and" if is_kafkas(name) else "another process's and"
        given.warnings.append(
            f"{place}: {name} is {whose} means nothing to Quorate's {table.process}: ignored"
        )
    else:
        shown = name if name.isprintable() else repr(name)
        near = nearest(name, table.settings)
        hint = f"did you mean {near}?" if near else f"`{table.listed_by}` lists them all"
        raise ConfigError(f"{place}: {shown} is not a setting; {hint}")


def _read_environment(given: Given, environment: Mapping[str, str]) -> None:
    variables = {
        variable: setting.name
        for setting in given.table.settings.values()
        for variable in setting.variables
    }
    for variable in sorted(environment):
        if variable in variables:
            name = variables[variable]
            given.texts[name] = environment[variable].strip()
            given.places[name] = f"environment variable {variable}"
        elif variable.startswith(PREFIX):
            # Others write QUORATE_… too (Kubernetes does, for a service of that name): no error.
            near = difflib.get_close_matches(variable, variables, n=1, cutoff=0.9)
            if near:
                given.warnings.append(
                    f"environment variable {variable} is not a setting: did you mean {near[0]}?"
                )


def _parse(setting: Setting, given: Given) -> Any:
    text = given.texts.get(setting.name, setting.default)
    if text is None or (text == "" and setting.default in (None, "")):
        return () if setting.form.type == "list" else None
    try:
        return setting.form.parse(text)
    except ValueError as error:
        raise ConfigError(
            f"{given.places[setting.name]}: {setting.name}={_shown(text)}: {error}; "
            f"accepted: {setting.form.accepts}"
        ) from None


def _shown(text: str) -> str:
    """A value as errors show it: short, and never a key that was written where a path belongs."""
    if "-----BEGIN" in text or "PRIVATE KEY" in text:
        return "[hidden]"
    return text if len(text) <= 200 else text[:200] + "…"


def nearest(name: str, known: Collection[str]) -> str | None:
    """The known name that `name` may be a slip of."""
    return next(iter(difflib.get_close_matches(name.lower(), known, n=1, cutoff=0.6)), None)
