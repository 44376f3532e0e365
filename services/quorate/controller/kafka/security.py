"""The settings of authentication on the listener for Kafka's brokers, and the checks between them.

Names and defaults are Kafka's, unless the description says otherwise. Each is read where Kafka
reads it: with the prefix of the listener, and for SASL of the mechanism, or without.

Source: Kafka's BrokerSecurityConfigs, SaslConfigs, SslConfigs, DelegationTokenManagerConfigs;
KIP-684 (ssl.client.auth on SASL_SSL listeners).
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from quorate.bridge.authentication.sasl_config import (
    MECHANISMS,
    OAUTHBEARER,
    PLAIN,
    OAuthConfig,
    SaslConfig,
)
from quorate.common import config_types as types
from quorate.common.config_types import INT_MAX, LONG_MAX
from quorate.common.setting import Setting
from quorate.controller.kafka.jaas import parse_jaas
from quorate.process.properties import LISTENER_PREFIX, ParsedProperties

CLIENT_AUTH = "ssl.client.auth"
ENABLED = "sasl.enabled.mechanisms"
JAAS = "sasl.jaas.config"
PLAIN_JAAS = f"{PLAIN.lower()}.{JAAS}"
"""After the prefix of the listener."""
RECEIVE_SIZE = "sasl.server.max.receive.size"
HANDLER = "sasl.server.callback.handler.class"
REAUTH = "connections.max.reauth.ms"
DELAY = "connection.failed.authentication.delay.ms"
OAUTH = "sasl.oauthbearer."
JWKS = f"{OAUTH}jwks.endpoint.url"

PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
USER_PREFIX = "user_"
_VALIDATORS = tuple(
    f"org.apache.kafka.common.security.oauthbearer.{name}"
    for name in (
        "OAuthBearerValidatorCallbackHandler",
        "secured.OAuthBearerValidatorCallbackHandler",
    )
)

KAFKA_SECURITY_SETTINGS: tuple[Setting, ...] = (
    Setting(
        CLIENT_AUTH,
        types.choice("required", "requested", "none"),
        None,
        "Whether clients of an SSL listener must present a certificate that an authority in "
        "ssl.ca.location has signed. Default: required; Kafka's is none. Anything else only "
        "concerns the listener for Kafka's brokers: set listener.name.NAME.ssl.client.auth. On a "
        "SASL_SSL listener only that counts, and its default is none.",
    ),
    Setting(
        ENABLED,
        types.texts(),
        "",
        "The SASL mechanisms of a SASL_PLAINTEXT or SASL_SSL listener for Kafka's brokers: PLAIN, "
        "SCRAM-SHA-256, SCRAM-SHA-512 (with the credentials in the metadata log) and OAUTHBEARER. "
        "Required there: Kafka's default, GSSAPI, is not supported.",
    ),
    Setting(
        JAAS,
        types.password(),
        None,
        "For PLAIN, as listener.name.NAME.plain.sasl.jaas.config: Kafka's PlainLoginModule with "
        'the users and their passwords, user_NAME="PASSWORD". Not used for other mechanisms.',
    ),
    Setting(
        RECEIVE_SIZE,
        types.integer(1),
        str(512 * 1024),
        "The maximum size of a request before authentication, bytes.",
    ),
    Setting(
        HANDLER,
        types.choice(*_VALIDATORS),
        None,
        "For OAUTHBEARER: Kafka's validator, whose settings are sasl.oauthbearer.…; always used. "
        "Other callback handlers are not supported.",
    ),
    Setting(
        REAUTH,
        types.milliseconds(0, LONG_MAX),
        "0",
        "How long a SASL session may last before the client must authenticate again; 0 for no "
        "limit.",
    ),
    Setting(
        DELAY,
        types.milliseconds(0, 10_000),
        "100",
        "The delay of the response to a failed authentication, and of the end of its connection.",
    ),
    Setting(
        JWKS,
        types.text(),
        None,
        "For OAUTHBEARER: the URL of the JSON Web Key Set, https:, http: or file:. Required.",
    ),
    Setting(
        f"{OAUTH}jwks.endpoint.refresh.ms",
        types.milliseconds(1_000, LONG_MAX),
        "3600000",
        "For OAUTHBEARER: how often the keys are read again.",
    ),
    Setting(
        f"{OAUTH}jwks.endpoint.retry.backoff.ms",
        types.milliseconds(1, LONG_MAX),
        "100",
        "For OAUTHBEARER: the delay before the first attempt after the keys could not be read.",
    ),
    Setting(
        f"{OAUTH}jwks.endpoint.retry.backoff.max.ms",
        types.milliseconds(1, LONG_MAX),
        "10000",
        "For OAUTHBEARER: the maximum delay between these attempts.",
    ),
    Setting(
        f"{OAUTH}expected.audience",
        types.texts(),
        "",
        "For OAUTHBEARER: a token must name one of these as its audience. Empty: any audience.",
    ),
    Setting(
        f"{OAUTH}expected.issuer",
        types.text(),
        None,
        "For OAUTHBEARER: the issuer of tokens. If not set: any.",
    ),
    Setting(
        f"{OAUTH}clock.skew.seconds",
        types.integer(0),
        "30",
        "For OAUTHBEARER: the tolerated difference between this clock and the issuer's.",
    ),
    Setting(
        f"{OAUTH}sub.claim.name",
        types.text(),
        "sub",
        "For OAUTHBEARER: the claim that names the principal.",
    ),
)
"""The settings that can be overridden for the listener and a mechanism."""

BY_LISTENER: frozenset[str] = frozenset(
    each.name for each in KAFKA_SECURITY_SETTINGS if each.name != DELAY
)


@dataclass(frozen=True, slots=True)
class KafkaSecurity:
    """How clients of the listener for Kafka's protocol authenticate."""

    client_auth: str = "required"
    """Whether clients present a certificate with TLS: required, requested or none."""
    sasl: SaslConfig | None = None
    """The SASL configuration, None without SASL."""


def read_kafka_security(parsed: ParsedProperties, listener: str, protocol: str) -> KafkaSecurity:
    """The security of a listener for Kafka's protocol. Raises ConfigError."""
    name = parsed.name_for(listener, CLIENT_AUTH)
    is_sasl = protocol.startswith("SASL_")
    client_auth: str = parsed.get(name) or "required"
    if is_sasl and name == CLIENT_AUTH:
        client_auth = "none"
    return KafkaSecurity(client_auth, _sasl(parsed, listener) if is_sasl else None)


def warn_of_unused(parsed: ParsedProperties, protocols: Mapping[str, str]) -> None:
    """Warn of settings for other listeners, and of those of SASL without a SASL listener.

    protocols: the security protocols of the listeners for Kafka's protocol, by their names.
    """
    prefixes = {f"{LISTENER_PREFIX}{each.lower()}.": protocols[each] for each in protocols}
    names = {each.name for each in KAFKA_SECURITY_SETTINGS}
    for name in sorted(parsed.texts):
        setting = parsed.config_def.setting(name)
        if setting is None or setting.name not in names:
            continue
        own = [prefixes[each] for each in prefixes if name.startswith(each)]
        is_prefixed = name.startswith(LISTENER_PREFIX)
        concerned = own if is_prefixed else list(protocols.values())
        is_sasl = any(each.startswith("SASL_") for each in concerned)
        if (is_prefixed and not own) or (setting.name != CLIENT_AUTH and not is_sasl):
            where = "a SASL listener for Kafka's brokers"
        elif name == JAAS:
            where = "the prefix listener.name.NAME.plain."
        else:
            continue
        parsed.warnings.append(
            f"{parsed.places[name]}: {name} has no effect without {where}: ignored"
        )


def _sasl(parsed: ParsedProperties, listener: str) -> SaslConfig:
    enabled_by = parsed.name_for(listener, ENABLED)
    mechanisms: tuple[str, ...] = tuple(dict.fromkeys(parsed.get(enabled_by)))
    supported = f"supported: {', '.join(MECHANISMS)}"
    if not mechanisms:
        parsed.fail(enabled_by, f"the listener {listener} needs SASL mechanisms; {supported}")
    for each in mechanisms:
        if each not in MECHANISMS:
            parsed.fail(enabled_by, f"{each} is not supported; {supported}")
    size: int = parsed.get(parsed.name_for(listener, RECEIVE_SIZE))
    return SaslConfig(
        mechanisms,
        _plain_users(parsed, listener) if PLAIN in mechanisms else {},
        size,
        parsed.get(DELAY),
        {each: parsed.get(parsed.name_for(listener, REAUTH, each)) for each in mechanisms},
        _oauth(parsed, listener) if OAUTHBEARER in mechanisms else None,
    )


def _plain_users(parsed: ParsedProperties, listener: str) -> dict[str, str]:
    name = f"{LISTENER_PREFIX}{listener.lower()}.{PLAIN_JAAS}"
    if name not in parsed:
        parsed.fail(
            parsed.name_for(listener, ENABLED),
            f"PLAIN on the listener {listener} needs {name}; a file of "
            "java.security.auth.login.config is not read",
        )
    try:
        module = parse_jaas(parsed.get(name) or "")
    except ValueError as error:
        parsed.fail(name, str(error))
    if module.name != PLAIN_MODULE:
        parsed.fail(name, f"the login module is not {PLAIN_MODULE}")
    users = {
        option.removeprefix(USER_PREFIX): value
        for option, value in module.options.items()
        if option.startswith(USER_PREFIX)
    }
    if not users:
        parsed.fail(name, f'it names no user: {USER_PREFIX}NAME="PASSWORD"')
    if "" in users or "" in users.values():
        parsed.fail(name, "a user has no name or no password")
    return users


def _oauth(parsed: ParsedProperties, listener: str) -> OAuthConfig:
    def name_of(name: str) -> str:
        return parsed.name_for(listener, name, OAUTHBEARER)

    def value(name: str) -> Any:
        return parsed.get(name_of(f"{OAUTH}{name}"))

    parsed.require(name_of(JWKS), f", and {OAUTHBEARER} is enabled")
    url: str = parsed.get(name_of(JWKS))
    found = urlsplit(url)
    is_file = found.scheme == "file" and found.netloc in ("", "localhost") and found.path
    if not is_file and not (found.scheme in ("http", "https") and found.hostname):
        parsed.fail(name_of(JWKS), "not an https:, http: or file: URL")
    if importlib.util.find_spec("jwt") is None or importlib.util.find_spec("cryptography") is None:
        parsed.fail(
            parsed.name_for(listener, ENABLED),
            f"{OAUTHBEARER} needs the extra oauth: pip install 'quorate[oauth]'",
        )
    return OAuthConfig(
        url,
        min(value("jwks.endpoint.refresh.ms"), INT_MAX),
        min(value("jwks.endpoint.retry.backoff.ms"), INT_MAX),
        min(value("jwks.endpoint.retry.backoff.max.ms"), INT_MAX),
        value("expected.audience"),
        value("expected.issuer"),
        value("clock.skew.seconds"),
        value("sub.claim.name"),
    )
