"""The command line without a quorum: help, latency, wrong input, storage, settings."""

from __future__ import annotations

import json
import math
import os
import re
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from quorate import __version__
from quorate.cli.bench.report import percentile
from quorate.cli.commands import COMMANDS
from quorate.cli.connection import ConnectionOptions, plainly, resolve
from quorate.cli.errors import explain, unknown_outcome
from quorate.cli.local.quickstart import _sentence
from quorate.cli.main import main
from quorate.cli.output import CommandError, UsageError, kafka_table
from quorate.cli.quorum.features import feature_line
from quorate.common.config_types import Address
from quorate.common.error_codes import ErrorCode
from quorate.controller.config import CONTROLLER
from quorate.controller.formatting import FormatError
from quorate.log.errors import DirectoryLockedError
from quorate.process.properties import ConfigError
from quorate.raft.roles import ChangeStage
from quorate.records.batch import iter_batches, iter_records
from quorate.records.metadata import FeatureLevelRecord, decode
from quorate.rpc.client.handshake_faults import CLOSED
from quorate.rpc.errors import (
    AdminError,
    NoLeaderError,
    OutcomeUnknownError,
    TransportError,
    TransportKind,
    UnreachableError,
)

ROOT = Path(__file__).resolve().parents[3]
SHARED = Path(os.environ.get("QUORATE_SHARED", ROOT.parent / "shared"))
CLUSTER = "yFPgY5iXQYqr5sMxfdxu0Q"
HELP_RATIO_MAX = 3.0
"""How much longer than importing typer, which it is built on, the help may take."""


class Ran(NamedTuple):
    status: int
    out: str
    err: str


Run = Callable[..., Ran]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs one command line in this process."""
    for name in list(os.environ):
        if name.startswith("QUORATE_"):
            monkeypatch.delenv(name)

    def run(*arguments: str | Path) -> Ran:
        status = main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return Ran(status, captured.out, captured.err)

    return run


@pytest.fixture
def properties(tmp_path: Path) -> Path:
    path = tmp_path / "controller.properties"
    path.write_text(
        "process.roles=controller\nnode.id=1\n"
        "controller.quorum.bootstrap.servers=127.0.0.1:9093\n"
        "controller.listener.names=CONTROLLER\nlisteners=CONTROLLER://127.0.0.1:9093\n"
        f"log.dirs={tmp_path}/data\n"
    )
    return path


def assert_refused(ran: Ran, status: int, reason: str) -> None:
    """One line on stderr, nothing on stdout, the right status."""
    assert ran.status == status
    assert ran.out == ""
    assert re.fullmatch(r"quorate: error: [^\n]+\n", ran.err), ran.err
    assert reason in ran.err
    assert "this is a bug" not in ran.err


# --- the frame ------------------------------------------------------------------------------------


def quorate(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    python_path = os.pathsep.join([str(ROOT / "services"), os.environ.get("PYTHONPATH", "")])
    return subprocess.run(
        [sys.executable, "-m", "quorate.cli.main", *arguments],
        env=dict(os.environ, PYTHONPATH=python_path, **environment),
        capture_output=True,
        text=True,
        timeout=60,
    )


def seconds(*runs: Callable[[], object], rounds: int = 5) -> list[float]:
    """The best of several rounds for each: what the machine can do when it is let.

    They take turns, so that other processes slow down all of them.
    """
    best = [math.inf] * len(runs)
    for _ in range(rounds):
        for number, run in enumerate(runs):
            started = time.perf_counter()
            run()
            best[number] = min(best[number], time.perf_counter() - started)
    return best


def test_help_lists_every_command_and_answers_at_once() -> None:
    done = quorate("--help")
    assert done.returncode == 0
    for name in COMMANDS:
        assert f"  {name} " in done.stdout
    typer = [sys.executable, "-c", "import typer"]
    bare_s, help_s = seconds(
        lambda: subprocess.run(typer, check=True), lambda: quorate("--help"), rounds=10
    )
    assert help_s < HELP_RATIO_MAX * bare_s


def test_help_imports_no_subcommand_and_nothing_heavy() -> None:
    probe = (
        "import sys; from quorate.cli.main import main; main(['--help']); "
        "print([m for m in sys.modules if m.split('.')[0] in ('grpc', 'rich', 'asyncio') "
        "or m.startswith(('quorate.controller', 'quorate.rpc', 'quorate.log'))], file=sys.stderr)"
    )
    python_path = os.pathsep.join([str(ROOT / "services"), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-c", probe],
        env=dict(os.environ, PYTHONPATH=python_path),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stderr == "[]\n"


def test_version(run: Run) -> None:
    assert run("--version") == Ran(0, f"quorate {__version__}\n", "")


def test_nothing_asked(run: Run) -> None:
    ran = run()
    assert ran.status == 2
    assert ran.out.startswith("Usage: quorate")


@pytest.mark.parametrize(
    "command",
    [
        *([name] for name in COMMANDS),
        ["storage", "format"],
        ["storage", "info"],
        ["storage", "random-uuid"],
        ["metadata-quorum", "describe"],
        ["metadata-quorum", "add-controller"],
        ["metadata-quorum", "remove-controller"],
        ["metadata-quorum", "transfer-leadership"],
        ["features", "describe"],
        ["features", "upgrade"],
        ["features", "downgrade"],
    ],
    ids=" ".join,
)
def test_every_command_explains_itself(run: Run, command: list[str]) -> None:
    ran = run(*command, "--help")
    assert ran.status == 0, ran.err
    assert ran.out.startswith(f"Usage: quorate {' '.join(command)}")
    assert len(ran.out.splitlines()) > 5


def test_completion_knows_subcommands_and_options() -> None:
    def complete(words: str, position: int) -> list[str]:
        done = quorate(
            _QUORATE_COMPLETE="complete_bash", COMP_WORDS=words, COMP_CWORD=str(position)
        )
        return done.stdout.split()

    assert complete("quorate stor", 1) == ["storage"]
    assert "--initial-controllers" in complete("quorate storage format --ini", 3)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("storge", "no such command 'storge': did you mean storage?"),
        ("xyzzy", "no such command 'xyzzy': the commands are quickstart,"),
        ("storage fromat", "Did you mean 'format'"),
        ("storage", "Missing command (see quorate storage --help)"),
        ("storage format", "Missing option '--cluster-id' / '-t' (see"),
        ("storage format -t x --bogus", "No such option"),
        ("storage format -t x", "--config is missing, and QUORATE_NODE_ID is not set in the"),
        ("controller", "the properties FILE is missing"),
        ("controller a b", "extra argument"),
        ("config-docs --format x", "'x' is not one of 'text', 'markdown' (see"),
        ("metadata-quorum describe", "describe takes either --status or --replication"),
        ("metadata-quorum describe --status --replication", "takes either"),
        ("metadata-quorum describe --status --human-readable", "only supported along with"),
        ("metadata-quorum describe --status", "--bootstrap-controller HOST:PORT is missing"),
        ("metadata-quorum --bootstrap-server x describe --status", "'x' is not host:port"),
        ("metadata-quorum remove-controller", "Missing option '--controller-id'"),
        ("metadata-quorum remove-controller -i x", "Invalid value for '--controller-id'"),
        ("metadata-quorum remove-controller -i 1 -d zz", "'zz' is not a UUID"),
        ("features downgrade", "You must specify at least one feature to downgrade"),
        ("features upgrade --feature kraft.version", "expected name=level"),
        ("features upgrade --feature kraft.version=x", "'x' is not a level"),
        ("features upgrade --feature a=1 --feature a=2", "is specified twice"),
        ("features upgrade --release-version four", "expected a version such as 4.3-IV0"),
        ("features upgrade --release-version 9.9-IV0", "9.9-IV0: unknown metadata.version"),
        ("features upgrade --release-version 4.3 -f a=1", "cannot be used together"),
    ],
)
def test_wrong_command_lines(run: Run, line: str, reason: str) -> None:
    assert_refused(run(*line.split()), 2, reason)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("controller /nonexistent/file", "/nonexistent/file: cannot be read: No such file"),
        ("storage info -c /nonexistent/file", "cannot be read"),
        ("metadata-quorum --command-config /nonexistent/f describe --status", "cannot be read"),
        (
            "metadata-quorum --bootstrap-controller 127.0.0.1:1 describe --status --timeout 0.5",
            "cannot reach any node (127.0.0.1:1: ",
        ),
        ("features --bootstrap-controller 127.0.0.1:1 describe --timeout 0.5", "127.0.0.1:1"),
    ],
)
def test_what_cannot_be_done(run: Run, line: str, reason: str) -> None:
    assert_refused(run(*line.split()), 1, reason)


def test_a_bug_is_one_line_too_and_a_traceback_for_who_asks(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(COMMANDS, "config-docs", COMMANDS["config-docs"]._replace(attribute="no"))
    ran = run("config-docs")
    assert ran.status == 1
    assert re.fullmatch(r"quorate: error: this is a bug: AttributeError: [^\n]+\n", ran.err)
    monkeypatch.setenv("QUORATE_DEBUG", "1")
    with pytest.raises(AttributeError):
        main(["config-docs"])


# --- settings -------------------------------------------------------------------------------------


def test_every_setting_is_documented(run: Run) -> None:
    listed = json.loads(run("config-docs", "--json").out)
    assert [entry["name"] for entry in listed] == [
        setting.name for setting in CONTROLLER.settings.values()
    ]
    texts = [run("config-docs").out, run("controller", "--help-settings").out]
    assert texts[0] == texts[1]
    table = run("config-docs", "--format", "markdown").out
    for setting in CONTROLLER.settings.values():
        assert setting.variable in texts[0]
        assert f"| `{setting.name}` |" in table


# --- storage --------------------------------------------------------------------------------------


def test_random_uuid(run: Run) -> None:
    assert re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_-]{21}\n", run("storage", "random-uuid").out)
    assert len(json.loads(run("storage", "random-uuid", "--json").out)["uuid"]) == 22


def test_format_names_the_directory_that_cannot_be_written(
    run: Run, properties: Path, tmp_path: Path
) -> None:
    """A limit of the size of files stands for a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
    try:
        ran = run("storage", "format", "-t", CLUSTER, "-c", properties, "--standalone")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert_refused(ran, 1, str(tmp_path / "data"))


def test_the_state_of_a_quickstart_is_a_sentence() -> None:
    nodes = [{"id": 1, "role": "leader"}]
    state = {"leader": 1, "epoch": 1, "voters": 1, "controllers": nodes, "brokers": []}
    assert _sentence(state) == "leader 1, epoch 1, 1 voter: 1 leader"
    nodes = [{"id": 1, "role": "unknown"}, {"id": 2, "role": "unknown"}]
    before = {"leader": None, "epoch": -1, "voters": 0, "controllers": nodes, "brokers": []}
    assert _sentence(before) == "no controller answers yet"


def test_format_and_info_of_kafka(run: Run, properties: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    ran = run("storage", "info", "-c", properties)
    assert ran == Ran(1, f"Found problem:\n  {data} does not exist\n\n", "")

    ran = run("storage", "format", "-t", CLUSTER, "-c", properties, "--standalone")
    said = f"Formatting dynamic metadata voter directory {data} with kraft.version 1.\n"
    assert ran == Ran(0, said, "")

    ran = run("storage", "info", "-c", properties)
    assert ran.status == 0
    assert re.fullmatch(
        rf"Found log directory:\n  {re.escape(str(data))}\n\n"
        rf"Found metadata: {{cluster.id={CLUSTER}, directory.id=[\w-]{{22}}, node.id=1, "
        r"version=1}\n\n",
        ran.out,
    )
    found = json.loads(run("storage", "info", "-c", properties, "--json").out)
    assert found["metadata"]["cluster.id"] == CLUSTER
    assert found["problems"] == []

    again = ("storage", "format", "-t", CLUSTER, "-c", properties, "-s")
    assert_refused(run(*again), 1, f"Log directory {data} is already formatted.")
    ran = run(*again, "--ignore-formatted")
    assert ran == Ran(0, "All of the log directories are already formatted.\n", "")
    other = ("storage", "format", "-t", "B" * 22, "-c", properties, "-s", "-g")
    assert_refused(run(*other), 1, f"Expected {'B' * 22}, but read {CLUSTER}")


def test_format_with_initial_controllers(run: Run, properties: Path) -> None:
    directory = "Rigw3vfNRMmcl9pdbu4hDQ"
    for option in ("-I", "--initial-controllers", "--controller-quorum-voters"):
        text = f"1-{directory}@127.0.0.1:9093"
        base = ("storage", "format", "-t", CLUSTER, "-c", properties, "-g", "--json")
        formatted = json.loads(run(*base, option, text).out)
        assert formatted["directories"][0]["directoryId"] == directory
        assert formatted["voters"] == [
            {"id": 1, "directoryId": directory, "endpoints": ["CONTROLLER://127.0.0.1:9093"]}
        ]


@pytest.mark.parametrize(
    ("options", "status", "reason"),
    [
        ("-s -N", 2, "--standalone and --no-initial-controllers cannot be used together"),
        ("-s -I x", 2, "cannot be used together"),
        ("-I x", 1, "--initial-controllers: 'x' is not ID-DIRECTORYID@HOST:PORT"),
        ("", 1, "you must specify one of the following"),
        ("-s -f kraft.version=0", 1, "Cannot set kraft.version to 0"),
        ("-s -f foo.version=1", 1, "Unsupported feature: foo.version. Supported features are: ap"),
        ("-s -f metadata.version=5", 1, "No MetadataVersion with feature level 5. Valid feature"),
        ("-s -f metadata.version=99", 1, "Valid feature levels are from 7 to 30."),
        ("-s -f group.version=7", 1, "No feature:group.version with feature level 7"),
        ("-s -r 4.3 -f metadata.version=30", 1, "Use --release-version instead of --feature met"),
        ("-s -r 9.9", 2, "--release-version 9.9: unknown metadata.version"),
        (
            "-s -f metadata.version=21 -f eligible.leader.replicas.version=1",
            1,
            "could not be set to 1 because it depends on metadata.version level 23",
        ),
        ("-s -f kraft.version", 2, "expected name=level"),
        ("-s -r latest", 2, "expected a version such as 4.3-IV0"),
    ],
)
def test_formatting_that_is_refused(
    run: Run, properties: Path, *, options: str, status: int, reason: str
) -> None:
    line = ("storage", "format", "-t", CLUSTER, "-c", properties, *options.split())
    assert_refused(run(*line), status, reason)
    assert not (properties.parent / "data").exists()


@pytest.mark.parametrize(
    ("options", "text", "features"),
    [
        ("-f metadata.version=25", "4.0-IV3", "metadata.version=25 group.version=1 transaction=2"),
        (
            "-f metadata.version=4.0-IV3 -f group.version=0",
            "4.0-IV3",
            "metadata.version=25 transaction=2",
        ),
        ("-r 3.9", "3.9-IV0", "metadata.version=21"),
        (
            "-r 4.1-IV1 -f kraft.version=1",
            "4.1-IV1",
            "metadata.version=27 eligible.leader.replicas=1 group.version=1 transaction=2",
        ),
        (
            "-f transaction.version=1",
            "4.3-IV0",
            "metadata=30 eligible.leader.replicas=1 group=1 share=1 streams=1 transaction=1",
        ),
    ],
)
def test_features_of_the_metadata_are_given_at_formatting(
    run: Run, properties: Path, *, options: str, text: str, features: str
) -> None:
    """As `kafka-storage format` of Kafka 4.3 writes them."""
    line = ("storage", "format", "-t", CLUSTER, "-c", properties, "-s", *options.split())
    data = properties.parent / "data"
    assert run(*line) == Ran(
        0,
        f"Formatting dynamic metadata voter directory {data} with metadata.version {text}, "
        "kraft.version 1.\n",
        "",
    )
    levels = {}
    for header, batch in iter_batches((data / "bootstrap.checkpoint").read_bytes()):
        for record in () if header.is_control else iter_records(batch, header):
            found = decode(record.value or b"")
            assert isinstance(found, FeatureLevelRecord)
            levels[found.name] = found.feature_level
    expected = [each.split("=") for each in features.split()]
    assert list(levels.items()) == [
        (name if name.endswith(".version") else f"{name}.version", int(level))
        for name, level in expected
    ]


def test_without_a_feature_of_the_metadata_none_is_written(run: Run, properties: Path) -> None:
    line = ("storage", "format", "-t", CLUSTER, "-c", properties, "-s", "-f", "kraft.version=1")
    assert run(*line).status == 0
    assert not (properties.parent / "data/bootstrap.checkpoint").exists()


def test_the_environment_is_enough(
    run: Run, properties: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for line in properties.read_text().splitlines():
        name, value = line.split("=", 1)
        monkeypatch.setenv("QUORATE_" + name.upper().replace(".", "_"), value)
    assert run("storage", "format", "-t", CLUSTER, "-N").status == 0
    assert run("storage", "info").status == 0


# --- connections ----------------------------------------------------------------------------------


def test_where_the_addresses_come_from(
    properties: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    variable = "QUORATE_CONTROLLER_QUORUM_BOOTSTRAP_SERVERS"
    monkeypatch.delenv(variable, raising=False)
    given = resolve(ConnectionOptions(bootstrap_controller="a:1, [::1]:2"))
    assert given.addresses == (Address("a", 1), Address("::1", 2))
    assert resolve(ConnectionOptions(bootstrap_server="b:1")).addresses == (Address("b", 1),)
    of_controller = resolve(ConnectionOptions(command_config=properties))
    assert of_controller.addresses == (Address("127.0.0.1", 9093),)
    both = resolve(ConnectionOptions(bootstrap_controller="a:1", command_config=properties))
    assert both.addresses == (Address("a", 1),)
    monkeypatch.setenv(variable, "c:1")
    assert resolve(ConnectionOptions()).addresses == (Address("c", 1),)
    with pytest.raises(UsageError, match="cannot be used together"):
        resolve(ConnectionOptions(bootstrap_controller="a:1", bootstrap_server="b:1"))
    with pytest.raises(UsageError, match="contains no address"):
        resolve(ConnectionOptions(bootstrap_controller=","))
    monkeypatch.setenv(variable, "c")
    with pytest.raises(UsageError, match=f"{variable}: 'c' is not host:port"):
        resolve(ConnectionOptions())


def test_the_properties_of_a_client(tmp_path: Path) -> None:
    path = tmp_path / "client.properties"

    def given(text: str) -> ConnectionOptions:
        path.write_text(text)
        return ConnectionOptions(bootstrap_controller="a:1", command_config=path)

    plain = resolve(given("default.api.timeout.ms=4000\n"))
    assert (plain.tls, plain.timeout_s) == (None, 4.0)
    tls = resolve(
        given(
            "security.protocol=SSL\nssl.truststore.type=PEM\nssl.truststore.location=/ca\n"
            "ssl.keystore.type=PEM\nssl.keystore.location=/both\n"
        )
    ).tls
    assert tls is not None
    assert (tls.certificate, tls.key, tls.ca) == (Path("/both"), Path("/both"), Path("/ca"))
    for text, reason in (
        ("security.protocol=SASL_SSL\n", "accepted: PLAINTEXT, SSL"),
        ("security.protocol=SSL\nssl.truststore.type=JKS\n", "accepted: PEM"),
        ("ssl.truststor.location=/ca\n", "did you mean ssl.truststore.location"),
        ("default.api.timeout.ms=soon\n", "expected a positive number of milliseconds"),
    ):
        with pytest.raises(ConfigError, match=reason):
            resolve(given(text))


def test_properties_that_mean_nothing_are_mentioned(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "client.properties"
    path.write_text("client.id=me\n")
    resolve(ConnectionOptions(bootstrap_controller="a:1", command_config=path))
    assert "client.properties:1: client.id does not apply" in capsys.readouterr().err


def test_after_which_errors_a_change_may_still_be_committed() -> None:
    unknown = [
        AdminError(ErrorCode.REQUEST_TIMED_OUT),
        AdminError(ErrorCode.REQUEST_TIMED_OUT, f"timed out while {ChangeStage.COMMITTING.text}"),
        AdminError(ErrorCode.UNKNOWN_SERVER_ERROR),
        OutcomeUnknownError("sent"),
        TransportError(TransportKind.BROKEN, "a:1", "closed"),
        TransportError(TransportKind.TIMEOUT, "a:1", "late"),
    ]
    known = [
        AdminError(ErrorCode.DUPLICATE_VOTER),
        AdminError(ErrorCode.REQUEST_TIMED_OUT, f"timed out while {ChangeStage.PROBING.text} (x)"),
        AdminError(ErrorCode.REQUEST_TIMED_OUT, f"timed out while {ChangeStage.CATCHING_UP.text}"),
        NoLeaderError(1, {}),
        UnreachableError({}),
        TransportError(TransportKind.REFUSED, "a:1", "refused"),
        OSError(),
    ]
    assert all(unknown_outcome(error) for error in unknown)
    assert not any(unknown_outcome(error) for error in known)


def test_foreseen_errors_speak_for_themselves() -> None:
    assert explain(FormatError("text")) == "text"
    assert explain(DirectoryLockedError("text")) == "text"
    assert explain(FileNotFoundError(2, "No such file", "/x")) == "/x: No such file"
    assert explain(ValueError("nobody foresaw this")) is None


# --- layouts --------------------------------------------------------------------------------------


def test_features_are_spaced_as_by_kafka() -> None:
    oracle = SHARED / "data/kafka-4.3/quorum/events.txt"
    if not oracle.exists():
        if "CI" in os.environ and SHARED.exists():
            pytest.fail(f"{oracle} is missing")
        pytest.skip(f"no golden data of Kafka: {oracle} does not exist")
    lines = [
        line.removeprefix("    | ")
        for line in oracle.read_text().splitlines()
        if line.startswith("    | Feature: ")
    ]
    assert len(lines) == 14
    for line in lines:
        words = re.findall(r"(?:\w+): +(\S+)", line)
        assert feature_line(*words) == line


def test_a_table_without_rows() -> None:
    assert kafka_table(["A", "Bc"], []) == "A\tBc\t"


@pytest.mark.parametrize(
    ("count", "share", "rank"),
    [
        (1, 0.5, 1),
        (1, 0.99, 1),
        (2, 0.5, 1),
        (3, 0.5, 2),
        (3, 0.99, 3),
        (4, 0.5, 2),
        (100, 0.07, 7),
        (100, 0.99, 99),
        (101, 0.99, 100),
        (1000, 0.999, 999),
        (10, 0.0, 1),
        (10, 1.0, 10),
    ],
)
def test_a_percentile_is_the_value_of_the_nearest_rank(count: int, share: float, rank: int) -> None:
    assert percentile(range(1, count + 1), share) == rank


@pytest.mark.parametrize(
    ("reason", "advice"),
    [
        (CLOSED, "check security.protocol"),
        ("Connection refused", "check the addresses"),
    ],
)
def test_the_advice_fits_why_nobody_answers(reason: str, advice: str) -> None:
    with pytest.raises(CommandError, match=advice), plainly(None, 2.0):
        raise UnreachableError({"controller-1:9093": reason})


def test_the_time_without_a_leader_is_the_users_timeout() -> None:
    said = r"^no leader within 2 s \(controller-1:9093: knows no leader\)$"
    with pytest.raises(CommandError, match=said), plainly(None, 2.0):
        raise NoLeaderError(500, {"controller-1:9093": "knows no leader"})


@pytest.mark.parametrize("given", [["topics", "create", "-h"], ["help", "topics", "create"]])
def test_help_has_the_usual_forms(given: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(given) == 0
    said = capsys.readouterr().out
    assert "Usage: quorate topics create [OPTIONS]" in said
    own, _, connection = said.partition("\nConnection:\n")
    assert "  --topic " in own
    assert "  --bootstrap-controller " in connection
    assert "  --bootstrap-controller " not in own
