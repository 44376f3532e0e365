"""Checks of Quorate's configuration in the place of Kafka's: its validity, its security, and
whether brokers and the other voters find the controller.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from quorate.controller.config import CONTROLLER_PRINCIPALS, ControllerConfig
from quorate.controller.config_reader import config_of, load_config
from quorate.controller.kafka.settings import FORWARDED_SUPER_USERS, LISTENER
from quorate.controller.takeover.finding import TakeoverCheck, failed, note, ok
from quorate.controller.takeover.kafka_settings import PROTOCOLS, VOTERS
from quorate.metadata.authorizer import ANONYMOUS
from quorate.process.node_config import AUTHORIZER
from quorate.process.properties import ConfigError
from quorate.raft.types import VoterSet
from quorate.rpc.errors import TlsError
from quorate.rpc.principals import caller_of_certificate
from quorate.rpc.tls import certificate_for_peers

SUPER_USERS = "super.users"


def check_configuration(
    settings: Mapping[str, str], source: Path | None
) -> tuple[ControllerConfig | None, list[TakeoverCheck]]:
    """Quorate's configuration with these settings, or in the file `source`; None if it is invalid.

    Whatever else the configuration's reader rejects is found here.
    """
    try:
        if source is not None:
            config = load_config(source)
        else:
            config = config_of(settings, "`takeover config`")
    except ConfigError as error:
        return None, [
            failed("configuration", str(error), "see `quorate controller --help-settings`")
        ]
    found = [ok("configuration", f"{', '.join(map(str, config.endpoints))}")]
    return config, found + list(_check_security(config))


def _check_security(config: ControllerConfig) -> Iterator[TakeoverCheck]:
    if config.kafka.name is None:
        yield failed(
            "configuration",
            f"{LISTENER} is not set, so brokers have no controller",
            "set it to the listener that brokers dial",
        )
        return
    if config.security.authorizer and not config.kafka_listener_authenticates:
        yield failed(
            "security",
            f"{AUTHORIZER} is set and {config.kafka.name} does not authenticate all "
            "callers, so requests that brokers forward for their clients would be rejected",
            f"map {config.kafka.name} to SSL, SASL_SSL or SASL_PLAINTEXT on Kafka's nodes "
            "first, or remove the authorizer",
        )
    elif config.security.authorizer and not config.kafka.forwards_super_users:
        yield note(
            "security",
            "brokers may not forward requests of super users, unless "
            f"{FORWARDED_SUPER_USERS}=allow",
        )
    yield from _check_raft(config)


def _check_raft(config: ControllerConfig) -> Iterator[TakeoverCheck]:
    """What protects the first gRPC listener, and whether the other controllers accept this one."""
    raft, security = config.listeners[0], config.security
    if config.tls is None or not raft.tls:
        yield note(
            "security",
            f"{raft.name} has no authentication and no encryption: whoever reaches its port can "
            "act as a controller, so keep it in a network of the controllers",
        )
        if security.authorizer and ANONYMOUS not in security.super_users:
            yield failed(
                "security",
                f"{AUTHORIZER} is set, so controllers would reject each other's requests on "
                f"{raft.name}, which come from {ANONYMOUS}",
                f"map {raft.name} to SSL in {PROTOCOLS} of Quorate's properties and name the PEM "
                f"files, or, if only controllers reach its port, add {ANONYMOUS} to {SUPER_USERS}",
            )
        return
    host = config.endpoints[0].host
    try:
        certificate = certificate_for_peers(config.tls.mutual, host)
    except TlsError as error:
        yield failed(
            "security",
            f"{raft.name} is SSL with certificates of both sides: {error}",
            f"issue a certificate that is valid for {host}, for servers and clients, by an "
            "authority that all controllers trust",
        )
        return
    caller = caller_of_certificate(certificate, "", security.principal_mapping)
    node, principal = config.node_id, caller.principal or "no principal"
    yield note("security", f"{raft.name} is SSL: controllers know this one as {principal}")
    if security.authorizer and principal not in security.super_users:
        yield failed(
            "security",
            f"{AUTHORIZER} is set and {SUPER_USERS} lacks {principal}, so controllers would reject "
            f"this one's requests on {raft.name}",
            f"add the principals of all controllers' certificates to {SUPER_USERS}, or map the "
            "certificates to one that is there by ssl.principal.mapping.rules",
        )
    own = caller.nodes | {each for name, each in security.node_principals if name == principal}
    if security.peer_identity != "off" and node not in own:
        yield failed(
            "security",
            f"{config.tls.certificate} has no DNS name node-{node}, by which {_who(config)} "
            "identify each other",
            f"issue certificates with node-ID to all {_who(config)}, list ID@PRINCIPAL of each "
            f"controller in {CONTROLLER_PRINCIPALS}, or set quorate.peer.identity=off",
        )


def _who(config: ControllerConfig) -> str:
    """The nodes that certificates must identify. Brokers that use SASL need none."""
    return "controllers" if config.kafka.security.sasl is not None else "controllers and brokers"


def check_match(
    config: ControllerConfig, voters: VoterSet, node_id: int
) -> Iterator[TakeoverCheck]:
    """Whether brokers and the other voters find this controller with its configuration.

    voters: with the endpoints that brokers dial.
    """
    if config.node_id != node_id:
        yield failed(
            "configuration",
            f"node.id is {config.node_id}, and the directory is of node {node_id}",
            "correct node.id or metadata.log.dir",
        )
    if len(unknown := config.without_grpc_endpoint(voters)):
        yield failed(
            "configuration",
            f"{VOTERS} lacks {', '.join(str(voter.id) for voter in unknown)}, which the log knows "
            f"only by {config.kafka.name}",
            f"add ID@HOST:PORT of the listener {config.endpoints[0].name} of each",
        )
    own = voters.get(node_id)
    if own is None:
        return
    kafkas = [each for each in config.endpoints if each.name == config.kafka.name]
    if kafkas and kafkas[0] not in own.endpoints:
        yield failed(
            "configuration",
            f"{kafkas[0]} is not where brokers dial: {', '.join(map(str, own.endpoints))}",
            "correct listeners or advertised.listeners",
        )
