"""Reads the properties of a process: a properties file, overridden by the environment.

Each setting is parsed on its own. The caller checks constraints between settings, with
`ParsedProperties.require`, `fail` and `pem`. A `ConfigDef` declares the settings.

Rules:
1. The environment overrides the file: QUORATE_NODE_ID is node.id. Without a file, all settings come
   from the environment.
2. An invalid setting raises `ConfigError` with one line: the place (file and line, or variable),
   the setting, its value, and the accepted values. No value is corrected silently. Each setting
   that is ignored adds a line to `ParsedProperties.warnings`. Secret values are not shown.
3. `listener.name.NAME.SETTING` and `listener.name.NAME.MECHANISM.SETTING` override a setting of
   `ConfigDef.by_listener` for one listener, whose name is in lower case, or for one SASL mechanism
   of it. In the environment: QUORATE_LISTENER_NAME_NAME_MECHANISM_SETTING.

Source: Kafka's KafkaConfig for names; java.util.Properties for the file format.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from quorate.common.setting import Setting, declarations, groups
from quorate.process.kafka_names import is_kafkas

PREFIX = "QUORATE_"
LISTENER_PREFIX = "listener.name."
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI")
"""Kafka's SASL mechanisms, those that are not supported included."""


class ConfigError(Exception):
    """The configuration is invalid. The text is one line for the user.

    Example:
        try:
            quorate.Node({"node.id": "one"}, KeyValues())
        except quorate.ConfigError as error:
            print(error)
    """


def _accept_all(_properties: ParsedProperties) -> None:
    """Check nothing."""


@dataclass(frozen=True, slots=True)
class ConfigDef:
    """The settings of one kind of process, and how it treats other names."""

    process: str
    settings: Mapping[str, Setting]
    refused: Mapping[str, str]
    """The names that are errors, each with the reason."""
    ignored: Callable[[str], bool]
    """Whether a name has a meaning elsewhere, so that it causes only a warning."""
    listed_by: str
    """The command that prints the settings."""
    check_texts: Callable[[ParsedProperties], None] = _accept_all
    """Raises ConfigError for raw values that must be rejected before any value is parsed."""
    by_listener: frozenset[str] = frozenset()
    """The settings that can be overridden for one listener (rule 3)."""

    def setting(self, name: str) -> Setting | None:
        """The setting of that name, also with the prefix of a listener; None if there is none."""
        if name.startswith(LISTENER_PREFIX):
            overridden = [each for each in self.by_listener if name.endswith(f".{each}")]
            return self.settings[max(overridden, key=len)] if overridden else None
        return self.settings.get(name)

    def refusal(self, name: str) -> str | None:
        """Why a name is an error, also with the prefix of a listener; None if it is not."""
        if name.startswith(LISTENER_PREFIX):
            return next((why for k, why in self.refused.items() if name.endswith(f".{k}")), None)
        return self.refused.get(name)


@dataclass(slots=True)
class ParsedProperties:
    """The settings of a process by name."""

    source: str
    """The file, or "the environment", for error messages."""
    config_def: ConfigDef
    values: dict[str, Any] = field(default_factory=dict)
    places: dict[str, str] = field(default_factory=dict)
    """File and line, or the environment variable, of each setting that is not at its default."""
    texts: dict[str, str] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)
    """The place of each setting with the prefix of a listener that is not supported."""
    reads_files: bool = True
    """Whether `pem` reads the files. False: they do not exist where the settings are parsed."""

    def __contains__(self, name: str) -> bool:
        return name in self.texts

    def get(self, name: str) -> Any:
        return self.values[name]

    def name_for(self, listener: str, name: str, mechanism: str = "") -> str:
        """The name under which the setting `name` is set for a listener and a SASL mechanism.

        It is `name` itself if nothing overrides it (rule 3).
        """
        prefix = f"{LISTENER_PREFIX}{listener.lower()}."
        names = (f"{prefix}{mechanism.lower()}.{name}", f"{prefix}{name}")
        return next((each for each in names if each in self.texts), name)

    def require(self, name: str, because: str = "") -> Any:
        if self.values[name] is None or self.values[name] == ():
            setting = self.config_def.setting(name)
            assert setting is not None, name
            raise ConfigError(
                f"{self.source}: {name} is not set{because}; accepted: {setting.type.accepts} (or "
                f"set {setting.variable} in the environment)"
            )
        return self.values[name]

    def fail(self, name: str, reason: str) -> NoReturn:
        """Reject the value of `name`: raise ConfigError with its place and the reason."""
        place = self.places.get(name, self.source)
        setting = self.config_def.setting(name)
        text = self.texts.get(name, "")
        raise ConfigError(f"{place}: {name}={_shown(text, setting)}: {reason}")

    def pem(self, name: str, wanted: str) -> Path:
        """The path of the PEM file that the setting `name` holds.

        wanted: the PEM label that the file must contain. Raises ConfigError if the file cannot be
        read, lacks that label, or holds an encrypted private key.
        """
        path: Path = self.get(name)
        if not self.reads_files:
            return path
        try:
            text = path.read_bytes()
        except OSError as error:
            self.fail(name, f"cannot be read: {error.strerror}")
        if f"{wanted}-----".encode() not in text:
            self.fail(name, f"it contains no PEM {wanted.lower()}")
        if wanted == "PRIVATE KEY" and b"ENCRYPTED" in text:
            self.fail(name, "the private key is encrypted: decrypt it and protect the file instead")
        return path


def values_of(configuration: type, parsed: ParsedProperties) -> dict[str, Any]:
    """The values of the declared settings by field, those of groups included.

    Raises ConfigError if a required one is not set.
    """
    values = {
        field: parsed.require(each.name) if each.is_required else parsed.get(each.name)
        for field, each in declarations(configuration)
    }
    grouped = {field: each(**values_of(each, parsed)) for field, each in groups(configuration)}
    return values | grouped


def read_properties(path: Path) -> dict[str, tuple[str, int]]:
    """The value and line of each property in `path`, by name. Raises ConfigError.

    The last of several properties with one name wins, as in Java.
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


def parse_properties(
    path: Path | None, environment: Mapping[str, str], config_def: ConfigDef
) -> ParsedProperties:
    """Parse the settings of a file and the environment, each on its own. Raises ConfigError."""
    parsed = ParsedProperties("the environment" if path is None else str(path), config_def)
    for name, (text, line) in ({} if path is None else read_properties(path)).items():
        _take(parsed, name, text.strip(), f"{path}:{line}")
    _read_environment(parsed, environment)
    return _parsed(parsed)


def parse_texts(
    texts: Mapping[str, str], source: str, config_def: ConfigDef, *, reads_files: bool = True
) -> ParsedProperties:
    """Parse settings that are in no file. source: what messages call them. Raises ConfigError.

    reads_files: see `ParsedProperties`.
    """
    parsed = ParsedProperties(source, config_def, reads_files=reads_files)
    for name, text in texts.items():
        _take(parsed, name, text, source)
    return _parsed(parsed)


def _parsed(parsed: ParsedProperties) -> ParsedProperties:
    config_def = parsed.config_def
    config_def.check_texts(parsed)
    names = parsed.texts.get("controller.listener.names", "").split(",")
    own = tuple(f"{LISTENER_PREFIX}{each.strip().lower()}." for each in names if each.strip())
    for name, place in parsed.refused.items():
        if name.startswith(own):
            raise ConfigError(f"{place}: {name} is not supported: {config_def.refusal(name)}")
        parsed.warnings.append(
            f"{place}: {name} concerns no listener of controller.listener.names: ignored"
        )
    for name, setting in config_def.settings.items():
        parsed.values[name] = _parse(name, setting, parsed)
    for name in parsed.texts.keys() - config_def.settings.keys():
        overridden = config_def.setting(name)
        assert overridden is not None, name
        # A file may have the settings of other processes' listeners, whatever these accept.
        parsed.values[name] = _parse(name, overridden, parsed) if name.startswith(own) else None
    return parsed


def _take(parsed: ParsedProperties, name: str, text: str, place: str) -> None:
    config_def = parsed.config_def
    if config_def.setting(name) is not None:
        parsed.texts[name], parsed.places[name] = text, place
    elif name.startswith(LISTENER_PREFIX) and config_def.refusal(name) is not None:
        parsed.refused[name] = place
    elif (reason := config_def.refusal(name)) is not None:
        raise ConfigError(f"{place}: {name} is not supported: {reason}")
    elif config_def.ignored(name):
        whose = "Kafka's and" if is_kafkas(name) else "another process's and"
        parsed.warnings.append(
            f"{place}: {name} is {whose} has no effect on Quorate's {config_def.process}: ignored"
        )
    else:
        shown = name if name.isprintable() else repr(name)
        near = nearest(name, config_def.settings)
        hint = f"did you mean {near}?" if near else f"`{config_def.listed_by}` lists them all"
        raise ConfigError(f"{place}: {shown} is not a setting; {hint}")


def _read_environment(parsed: ParsedProperties, environment: Mapping[str, str]) -> None:
    variables = {
        variable: setting.name
        for setting in parsed.config_def.settings.values()
        for variable in setting.variables
    }
    for variable in sorted(environment):
        if variable in variables:
            name = variables[variable]
            parsed.texts[name] = environment[variable].strip()
            parsed.places[name] = f"environment variable {variable}"
        elif (overriding := _overriding(variable, parsed.config_def)) is not None:
            parsed.texts[overriding] = environment[variable].strip()
            parsed.places[overriding] = f"environment variable {variable}"
        elif variable.startswith(PREFIX):
            # Not an error: Kubernetes sets QUORATE_… variables for a service of that name.
            near = _most_similar(variable, variables, cutoff=0.9)
            if near is not None:
                parsed.warnings.append(
                    f"environment variable {variable} is not a setting: did you mean {near}?"
                )


def _variable_part(name: str) -> str:
    return name.upper().replace(".", "_").replace("-", "_")


def _overriding(variable: str, config_def: ConfigDef) -> str | None:
    """The name of the overriding setting that an environment variable sets (rule 3), if any."""
    prefix = PREFIX + _variable_part(LISTENER_PREFIX)
    for name in sorted(config_def.by_listener, key=len, reverse=True):
        suffix = "_" + _variable_part(name)
        if not (variable.startswith(prefix) and variable.endswith(suffix)):
            continue
        listener, mechanism = variable[len(prefix) : -len(suffix)], ""
        for each in MECHANISMS:
            if listener.endswith(f"_{_variable_part(each)}"):
                listener = listener[: -len(each) - 1]
                mechanism = f"{each.lower()}."
        return f"{LISTENER_PREFIX}{listener.lower()}.{mechanism}{name}" if listener else None
    return None


def _parse(name: str, setting: Setting, parsed: ParsedProperties) -> Any:
    text = parsed.texts.get(name)
    try:
        return setting.parse(text)
    except ValueError as error:
        raise ConfigError(
            f"{parsed.places[name]}: {name}={_shown(text or '', setting)}: {error}; "
            f"accepted: {setting.type.accepts}"
        ) from None


def _shown(text: str, setting: Setting | None) -> str:
    """The value for an error message: truncated, and hidden if it is secret, or a key instead of a
    path.
    """
    is_secret = setting is not None and setting.type.is_secret
    if text and (is_secret or "-----BEGIN" in text or "PRIVATE KEY" in text):
        return "[hidden]"
    return text if len(text) <= 200 else text[:200] + "…"


def nearest(name: str, known: Collection[str]) -> str | None:
    """The known name that is most similar to `name`; None if none is similar."""
    return _most_similar(name.lower(), known, cutoff=0.6)


def _most_similar(name: str, known: Collection[str], cutoff: float) -> str | None:
    import difflib  # noqa: PLC0415 - only for mistakes

    return next(iter(difflib.get_close_matches(name, known, n=1, cutoff=cutoff)), None)
