"""The configuration of a controller: every setting's good and bad values, and what must fit."""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from pathlib import Path

import pytest
from quorate.common.config_types import Address
from quorate.common.endpoints import Endpoint
from quorate.controller.config import CONTROLLER, ControllerConfig
from quorate.controller.config_reader import load_config
from quorate.metadata.settings import ControllerSettings
from quorate.process.kafka_names import FAMILIES, NAMES, is_kafkas
from quorate.process.properties import ConfigError
from quorate.raft.types import ReplicaKey

BASE = {
    "process.roles": "controller",
    "node.id": "1",
    "controller.quorum.bootstrap.servers": "127.0.0.1:9093",
    "controller.listener.names": "CONTROLLER",
    "listeners": "CONTROLLER://127.0.0.1:9093",
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
    "log.dirs": "/var/lib/quorate",
}

Load = Callable[..., ControllerConfig]


@pytest.fixture
def load(tmp_path: Path) -> Load:
    """Loads BASE with changes; None takes a setting out. `environment` has variables."""

    def load(
        changes: dict[str, str | None] | None = None, environment: dict[str, str] | None = None
    ) -> ControllerConfig:
        settings = {**BASE, **(changes or {})}
        path = tmp_path / "controller.properties"
        path.write_text("".join(f"{k}={v}\n" for k, v in settings.items() if v is not None))
        return load_config(path, environment or {})

    return load


def refusal(load: Load, *arguments: object, **named: object) -> str:
    with pytest.raises(ConfigError) as caught:
        load(*arguments, **named)
    text = str(caught.value)
    assert "\n" not in text
    return text


def test_what_a_kafka_controller_is_started_with_is_enough(load: Load) -> None:
    config = load()
    assert config.node_id == 1
    assert config.endpoints == (Endpoint("CONTROLLER", "127.0.0.1", 9093),)
    assert config.bootstrap_servers == (Address("127.0.0.1", 9093),)
    assert config.bootstrap_endpoints == (Endpoint("CONTROLLER", "127.0.0.1", 9093),)
    assert config.metadata_log_dir == Path("/var/lib/quorate")
    assert (config.tls, config.warnings, config.raft.auto_join) == (None, (), False)


def test_controllers_are_listed_where_they_have_principals(load: Load) -> None:
    name = "quorate.controller.principals"
    said = refusal(load, {name: "User:CN=node-1"})
    assert "no listener is encrypted, so no caller has a principal" in said
    assert "neither User:NAME nor ID@User:NAME" in refusal(load, {name: "node-1"})
    assert "neither User:NAME nor ID@User:NAME" in refusal(load, {name: "x@User:CN=node-1"})


def test_defaults_are_those_of_the_table(load: Load) -> None:
    """A dataclass default that differs from the table would apply to whoever builds one by hand."""
    loaded = load({"listener.security.protocol.map": None})
    built = ControllerConfig(
        node_id=loaded.node_id,
        listeners=loaded.listeners,
        endpoints=loaded.endpoints,
        controller_listener_names=loaded.controller_listener_names,
        metadata_log_dir=loaded.metadata_log_dir,
        log_dirs=loaded.log_dirs,
        bootstrap_servers=loaded.bootstrap_servers,
        source=loaded.source,
    )
    assert loaded == built


# name: the attribute, (text, value) that are taken, texts that are not.
NUMBERS: list[tuple[str, str, dict[str, int], list[str]]] = [
    ("node.id", "node_id", {"0": 0, "2147483647": 2**31 - 1}, ["-1", "2147483648", "x", "1.5", ""]),
    (
        "controller.quorum.election.timeout.ms",
        "raft.election_timeout_ms",
        {"1": 1, "5000": 5000},
        ["0", "-1", "1s", "1e3", "٣"],
    ),
    (
        "controller.quorum.fetch.timeout.ms",
        "raft.fetch_timeout_ms",
        {"250": 250},
        ["0", "2147483648"],
    ),
    ("controller.quorum.request.timeout.ms", "raft.request_timeout_ms", {"9": 9}, ["0", "nine"]),
    ("controller.quorum.election.backoff.max.ms", "raft.election_backoff_max_ms", {"0": 0}, ["-1"]),
    ("controller.quorum.retry.backoff.ms", "raft.retry_backoff_ms", {"20": 20}, ["0"]),
    ("controller.quorum.fetch.max.bytes", "raft.fetch_bytes_max", {"1": 1}, ["0", "1MB"]),
    (
        "controller.quorum.fetch.snapshot.max.bytes",
        "raft.snapshot_chunk_bytes_max",
        {"9": 9},
        ["0"],
    ),
    (
        "metadata.log.segment.bytes",
        "log.segment_bytes_max",
        {"8388608": 8388608},
        ["8388607", "2147483648"],
    ),
    (
        "internal.metadata.log.segment.bytes",
        "log.segment_bytes_max",
        {"12288": 12288},
        ["1023", "-1"],
    ),
    (
        "metadata.log.max.record.bytes.between.snapshots",
        "snapshots.interval_bytes",
        {"6000": 6000, str(2**40): 2**40},
        ["0", str(2**63), "9" * 30],
    ),
    ("metadata.log.max.snapshot.interval.ms", "snapshots.interval_ms", {"0": 0}, ["-1"]),
    ("metadata.max.retention.bytes", "log.retention_bytes", {"16000": 16000, "-1": -1}, ["-2"]),
    ("metadata.max.retention.ms", "log.retention_ms", {"-1": -1, "+5": 5}, ["-2", "--5"]),
    ("metadata.max.idle.interval.ms", "metadata.idle_interval_ms", {"3000": 3000, "0": 0}, ["-1"]),
    (
        "unclean.leader.election.interval.ms",
        "metadata.unclean_election_interval_ms",
        {"1": 1, str(2**40): 2**40},
        ["0", "-1", "5m"],
    ),
]


@pytest.mark.parametrize(("name", "attribute", "good", "bad"), NUMBERS, ids=lambda v: str(v)[:40])
def test_numbers(
    load: Load, name: str, attribute: str, good: dict[str, int], bad: list[str]
) -> None:
    for text, value in good.items():
        assert attrgetter(attribute)(load({name: text})) == value
        assert attrgetter(attribute)(load({name: f"  {text} "})) == value
    for text in bad:
        if text == "" and CONTROLLER.settings[name].default is None:
            assert f"{name} is not set" in refusal(load, {name: text})
            continue
        said = refusal(load, {name: text})
        assert f"{name}={text}: " in said
        assert f"accepted: {CONTROLLER.settings[name].type.accepts}" in said
        assert "controller.properties:" in said


def test_the_active_controller_has_the_settings_of_the_table(load: Load) -> None:
    assert load().metadata == ControllerSettings()
    changed = load({"leader.imbalance.check.interval.seconds": "9"})
    assert changed.metadata == ControllerSettings(leader_imbalance_check_interval_ms=9_000)


BAD_TEXTS: list[tuple[str, str, str]] = [
    ("process.roles", "broker", "a controller cannot be a broker as well"),
    ("process.roles", "broker,controller", "a controller cannot be a broker as well"),
    ("process.roles", "controler", "'controler' is not a role"),
    ("cluster.id", "no blanks", "not an identifier"),
    ("controller.quorum.bootstrap.servers", "localhost", "is not host:port"),
    ("controller.quorum.bootstrap.servers", ":9093", "has no host"),
    ("controller.quorum.bootstrap.servers", "a:0", "is not a port"),
    ("controller.quorum.bootstrap.servers", "a:65536", "is not a port"),
    ("controller.quorum.bootstrap.servers", "a:9093,b", "is not host:port"),
    ("controller.quorum.bootstrap.servers", "::1:9093", "needs brackets"),
    ("controller.quorum.bootstrap.servers", "http://a:9093", "needs brackets"),
    ("controller.quorum.voters", "localhost:9093", "is not id@host:port"),
    ("controller.quorum.voters", "1@a:1,1@b:2", "1 appears twice"),
    ("controller.quorum.voters", "2@a:1,3@b:2", "node.id 1 is not among them"),
    ("controller.quorum.auto.join.enable", "yes", "accepted: true, false"),
    ("controller.listener.names", "OTHER", "OTHER is not in listeners"),
    ("controller.listener.names", "CONTROLLER,CONTROLLER", "appears twice"),
    ("listeners", "CONTROLLER:127.0.0.1:9093", "is not NAME://host:port"),
    ("listeners", "CONTROLLER://a:9093,PLAINTEXT://a:9092", "only brokers have other listeners"),
    ("listeners", "CONTROLLER://a:0", "is not a port"),
    ("advertised.listeners", "OTHER://a:1", "OTHER is not in listeners"),
    ("advertised.listeners", "CONTROLLER://0.0.0.0:1", "other nodes cannot connect to"),
    ("advertised.listeners", "CONTROLLER://:1", "other nodes cannot connect to"),
    ("listener.security.protocol.map", "CONTROLLER:TLS", "'TLS' is not a security protocol"),
    ("listener.security.protocol.map", "CONTROLLER", "is not NAME:PROTOCOL"),
    ("listener.security.protocol.map", "A:SSL,A:SSL", "A appears twice"),
    ("listener.security.protocol.map", "OTHER:SSL", "does not name the listener CONTROLLER"),
    ("listener.security.protocol.map", "CONTROLLER:SASL_SSL", "only PLAINTEXT and SSL"),
    ("log.dirs", "/a,/a", "appears twice"),
    ("ssl.client.auth", "never", "accepted: required, requested, none"),
    ("ssl.keystore.type", "JKS", "accepted: PEM"),
    ("ssl.truststore.type", "PKCS12", "accepted: PEM"),
]


@pytest.mark.parametrize(("name", "text", "reason"), BAD_TEXTS)
def test_other_values_that_are_refused(load: Load, name: str, text: str, reason: str) -> None:
    said = refusal(load, {name: text})
    assert f"{name}={text}: " in said
    assert reason in said


@pytest.mark.parametrize(
    "name",
    ["process.roles", "node.id", "controller.listener.names", "listeners"],
)
def test_what_is_required(load: Load, name: str) -> None:
    said = refusal(load, {name: None})
    assert f"{name} is not set" in said
    assert CONTROLLER.settings[name].variable in said


def test_a_controller_must_be_able_to_find_its_quorum_and_its_directory(load: Load) -> None:
    said = refusal(load, {"controller.quorum.bootstrap.servers": None})
    assert "neither controller.quorum.bootstrap.servers nor controller.quorum.voters" in said
    assert "none of metadata.log.dir, log.dirs and log.dir" in refusal(load, {"log.dirs": None})


def test_formatting_at_the_start_needs_a_cluster_and_is_never_that_of_a_voter(load: Load) -> None:
    name = "quorate.unformatted.format"
    wanted = {name: "true", "cluster.id": "yFPgY5iXQYqr5sMxfdxu0Q"}
    assert load(wanted).unformatted_format
    assert "it requires cluster.id" in refusal(load, wanted | {"cluster.id": None})
    waits = {"quorate.unformatted.wait": "true"}
    assert "set only one of them" in refusal(load, wanted | waits)
    static = {"controller.quorum.voters": "1@a:1"}
    assert "have no directory ids" in refusal(load, wanted | static)


def test_static_voters_are_bootstrap_servers_too(load: Load) -> None:
    config = load(
        {
            "controller.quorum.bootstrap.servers": None,
            "controller.quorum.voters": "1@a:9093, 2@[::1]:9094",
        }
    )
    assert config.bootstrap_servers == (Address("a", 9093), Address("::1", 9094))
    assert str(config.bootstrap_servers[1]) == "[::1]:9094"
    second = config.static_voters.get(2)
    assert second is not None
    assert second.key == ReplicaKey(2, None)
    assert second.endpoints == (Endpoint("CONTROLLER", "::1", 9094),)


def test_auto_join_needs_bootstrap_servers(load: Load) -> None:
    join = "controller.quorum.auto.join.enable"
    assert load({join: "TRUE"}).raft.auto_join
    said = refusal(
        load,
        {
            join: "true",
            "controller.quorum.bootstrap.servers": None,
            "controller.quorum.voters": "1@a:1",
        },
    )
    assert f"{join}=true: " in said


def test_listeners_keep_the_order_of_their_names_and_advertise_what_they_are_told(
    load: Load,
) -> None:
    config = load(
        {
            "controller.listener.names": "second,first",
            "listeners": "first://0.0.0.0:1,second://[::1]:2",
            "listener.security.protocol.map": "first:plaintext,second:plaintext",
            "advertised.listeners": "FIRST://controller-1.example:11",
        }
    )
    assert config.controller_listener_names == ("SECOND", "FIRST")
    assert [(x.host, x.port) for x in config.listeners] == [("::1", 2), ("", 1)]
    assert config.endpoints == (
        Endpoint("SECOND", "::1", 2),
        Endpoint("FIRST", "controller-1.example", 11),
    )
    assert config.warnings == ()


@pytest.mark.parametrize("host", ["", "0.0.0.0", "[::]"])
def test_who_listens_everywhere_and_advertises_nothing_is_told_what_others_dial(
    load: Load, host: str
) -> None:
    config = load({"listeners": f"CONTROLLER://{host}:9093"})
    assert config.listeners[0].host == ""
    assert config.endpoints[0].host not in ("", "0.0.0.0", "::")
    assert len(config.warnings) == 1
    assert str(config.endpoints[0]) in config.warnings[0]


def test_the_directory_of_the_metadata_log(load: Load) -> None:
    first = load({"log.dirs": "/a, /b"})
    assert first.log_dirs == (Path("/a"), Path("/b"))
    assert first.metadata_log_dir == Path("/a")
    own = load({"log.dirs": "/a,/b", "metadata.log.dir": "/m"})
    assert own.metadata_log_dir == Path("/m")
    assert own.log_dirs == (Path("/m"), Path("/a"), Path("/b"))
    assert load({"log.dirs": None, "log.dir": "/c"}).log_dirs == (Path("/c"),)


def test_the_environment_overrides_the_file(load: Load) -> None:
    environment = {
        "QUORATE_NODE_ID": "7",
        "QUORATE_CONTROLLER_QUORUM_ELECTION_TIMEOUT_MS": "150",
        "QUORATE_DEBUG": "1",
        "QUORATE_SERVICE_HOST": "10.0.0.1",
        "NODE_ID": "9",
    }
    config = load({"node.id": "not looked at"}, environment)
    assert (config.node_id, config.raft.election_timeout_ms, config.warnings) == (7, 150, ())
    said = refusal(load, {}, {"QUORATE_NODE_ID": "seven"})
    assert said.startswith("environment variable QUORATE_NODE_ID: node.id=seven: ")


def test_a_variable_that_is_nearly_a_setting_is_mentioned(load: Load) -> None:
    (warning,) = load({}, {"QUORATE_NODE_IDS": "7"}).warnings
    assert "QUORATE_NODE_IDS is not a setting: did you mean QUORATE_NODE_ID?" in warning


def test_everything_can_come_from_the_environment() -> None:
    config = load_config(
        None, {CONTROLLER.settings[name].variable: text for name, text in BASE.items()}
    )
    assert config.node_id == 1
    with pytest.raises(ConfigError, match=r"^the environment: process.roles is not set"):
        load_config(None, {})


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("nodeid", "node.id"),
        ("node_id", "node.id"),
        ("Node.Id", "node.id"),
        ("controller.quorum.bootstrap.server", "controller.quorum.bootstrap.servers"),
        ("controler.quorum.fetch.timeout.ms", "controller.quorum.fetch.timeout.ms"),
        ("listener", "listeners"),
        ("metadata.log.dirs", "metadata.log.dir"),
        ("zzzzzz", None),
    ],
)
def test_a_name_that_nobody_knows_is_an_error_with_a_hint(
    load: Load, name: str, meant: str | None
) -> None:
    said = refusal(load, {name: "1"})
    assert f"controller.properties:8: {name} is not a setting" in said
    assert (f"did you mean {meant}?" if meant else "quorate config-docs") in said


def test_settings_of_kafka_are_ignored_with_a_warning_each(load: Load) -> None:
    config = load(
        {
            "num.network.threads": "3",
            "principal.builder.class": "com.example.Builder",
            "listener.name.controller.ssl.keystore.location": "/x",
        }
    )
    assert len(config.warnings) == 3
    assert "controller.properties:8: num.network.threads" in config.warnings[0]


def test_settings_that_would_weaken_the_node_if_ignored_are_refused(load: Load) -> None:
    assert "decrypt it" in refusal(load, {"ssl.key.password": "secret"})


def test_no_setting_of_ours_is_taken_for_one_of_kafkas() -> None:
    ours = [name for name in CONTROLLER.settings if name.startswith("quorate.")]
    assert [name for name in ours if is_kafkas(name)] == []
    assert len(CONTROLLER.settings) == len(CONTROLLER.settings.values())
    assert not [name for name in NAMES if name.startswith(FAMILIES)]
    for setting in CONTROLLER.settings.values():
        if setting.default:
            setting.type.parse(setting.default)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"\x00\x01\x02", "not a properties file: it contains a zero byte"),
        (b"# \xe9\nnode.id=\\u12\n", ":2: not a properties file: Invalid"),
        (b"\x89PNG\r\n", "is not a setting"),
    ],
)
def test_files_that_are_no_properties(tmp_path: Path, content: bytes, reason: str) -> None:
    path = tmp_path / "broken.properties"
    path.write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        load_config(path, {})
    assert str(caught.value).startswith(str(path))
    assert reason in str(caught.value)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="nowhere: cannot be read: No such file"):
        load_config(tmp_path / "nowhere", {})
    with pytest.raises(ConfigError, match="cannot be read: Is a directory"):
        load_config(tmp_path, {})


def test_java_syntax(tmp_path: Path) -> None:
    """Comments, blanks, continuation lines, other separators; the last of several wins."""
    path = tmp_path / "java.properties"
    path.write_bytes(
        b"# caf\xe9\n! note\nprocess.roles : controller\nnode.id 3\nnode.id=4\n\n"
        b"controller.quorum.bootstrap.servers=a:1,\\\n   b:2\ncontroller.listener.names=C\n"
        b"listeners=C://h:1\nlog.dir=/d\nbogus=1\n"
    )
    with pytest.raises(ConfigError, match=r"java.properties:12: bogus is not a setting"):
        load_config(path, {})
    path.write_bytes(path.read_bytes().replace(b"bogus=1\n", b""))
    config = load_config(path, {})
    assert config.node_id == 4
    assert config.bootstrap_servers == (Address("a", 1), Address("b", 2))
    assert not config.listeners[0].tls


# --- TLS ------------------------------------------------------------------------------------------

CERTIFICATE = "-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n"
KEY = "-----BEGIN PRIVATE KEY-----\n-----END PRIVATE KEY-----\n"


@pytest.fixture
def pem(tmp_path: Path) -> dict[str, str]:
    files = {
        "certificate": CERTIFICATE,
        "key": KEY,
        "ca": CERTIFICATE,
        "both": KEY + CERTIFICATE,
        "encrypted": KEY.replace("PRIVATE", "ENCRYPTED PRIVATE"),
        "none": "nothing\n",
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    return {name: str(tmp_path / name) for name in files} | {"gone": str(tmp_path / "gone")}


SSL = {"listener.security.protocol.map": "CONTROLLER:SSL"}


def test_our_three_files(load: Load, pem: dict[str, str]) -> None:
    ours = {
        "ssl.certificate.location": pem["certificate"],
        "ssl.key.location": pem["key"],
        "ssl.ca.location": pem["ca"],
    }
    tls = load({**SSL, **ours}).tls
    assert tls is not None
    assert (str(tls.certificate), str(tls.key), str(tls.ca)) == tuple(ours.values())
    assert load(ours).tls is None, "a listener in the clear needs none"


def test_kafkas_pem_stores(load: Load, pem: dict[str, str]) -> None:
    config = load(
        {
            **SSL,
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": pem["both"],
            "ssl.truststore.type": "pem",
            "ssl.truststore.location": pem["ca"],
        }
    )
    assert config.tls is not None
    assert config.tls.key == config.tls.certificate == Path(pem["both"])
    assert config.listeners[0].tls


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({}, "ssl.certificate.location is not set, and the listener CONTROLLER is encrypted"),
        ({"ssl.certificate.location": "certificate"}, "ssl.key.location is not set"),
        ({"ssl.keystore.location": "both"}, "ssl.ca.location is not set"),
        ({"ssl.keystore.location": "certificate"}, "it contains no PEM private key"),
        ({"ssl.keystore.location": "gone"}, "cannot be read: No such file"),
        (
            {"ssl.certificate.location": "certificate", "ssl.key.location": "encrypted"},
            "the private key is encrypted",
        ),
        ({"ssl.keystore.location": "both", "ssl.ca.location": "none"}, "no PEM certificate"),
    ],
)
def test_tls_files_that_do_not_do(
    load: Load, pem: dict[str, str], changes: dict[str, str], reason: str
) -> None:
    if "ssl.ca.location" not in changes and "ssl.ca.location" not in reason:
        changes = {**changes, "ssl.ca.location": "ca"}
    assert reason in refusal(load, {**SSL, **{name: pem[file] for name, file in changes.items()}})


BOTH = {
    "controller.listener.names": "CLEAR,SECURE",
    "listeners": "CLEAR://10.0.0.1:9093,SECURE://10.0.0.1:9094",
    "listener.security.protocol.map": "CLEAR:PLAINTEXT,SECURE:SSL,LATER:SSL",
}


def test_a_controller_may_listen_encrypted_and_in_the_clear(
    load: Load, pem: dict[str, str]
) -> None:
    """KIP-853 "Upgrading controller listener" goes through this on the way to SSL."""
    stores = {"ssl.keystore.location": pem["both"], "ssl.truststore.location": pem["ca"]}
    config = load(BOTH | stores)
    assert [listener.tls for listener in config.listeners] == [False, True]
    assert config.tls is not None
    names = ("CLEAR", "SECURE", "LATER", "UNKNOWN")
    assert [config.is_encrypted(name) for name in names] == [False, True, True, False]
    switched = load(BOTH | stores | {"controller.listener.names": "SECURE,CLEAR"})
    assert [switched.is_encrypted(name) for name in names] == [False, True, True, True]
    assert {endpoint.name for endpoint in switched.bootstrap_endpoints} == {"SECURE"}
    assert "the listener SECURE is encrypted" in refusal(load, BOTH)
