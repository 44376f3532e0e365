"""Formatting directories: what is written, what is refused, and what stays untouched."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from quorate.common.endpoints import Endpoint
from quorate.controller.bootstrap import BootstrapError, read_bootstrap
from quorate.controller.config import ControllerConfig
from quorate.controller.config_reader import load_config
from quorate.controller.formatting import (
    FormatError,
    FormatMode,
    format_directory,
    inspect_directories,
    parse_initial_controllers,
    parse_uuid,
    random_uuid,
)
from quorate.log.errors import DirectoryLockedError
from quorate.log.lock import DirectoryLock
from quorate.log.meta_properties import MetaProperties
from quorate.raft.batches import KRaftVersion, SnapshotFooter, SnapshotHeader, VotersRecord
from quorate.raft.types import ReplicaKey, Voter, VoterSet
from quorate.records.batch import iter_batches, parse_batches
from quorate.records.metadata import UserScramCredentialRecord

ROOT = Path(__file__).resolve().parents[3]
SHARED = Path(os.environ.get("QUORATE_SHARED", ROOT.parent / "shared"))
GOLDEN = SHARED / "data/kafka-4.3/quorum"

CLUSTER = "yFPgY5iXQYqr5sMxfdxu0Q"
OTHER_CLUSTER = "AAAAAAAAQYqr5sMxfdxu0Q"
D1, D2, D3 = "Rigw3vfNRMmcl9pdbu4hDQ", "xtkV4Apmyk8T6_K1BRD_yQ", "yol04JnHF9DBqmN178EntA"
LIST = f"1-{D1}@127.0.0.1:9093,2-{D2}@b:9093,3-{D3}@[::1]:9093"
CHECKPOINT = "__cluster_metadata-0/00000000000000000000-0000000000.checkpoint"

Configure = Callable[..., ControllerConfig]


@pytest.fixture
def configure(tmp_path: Path) -> Configure:
    def configure(**changes: str) -> ControllerConfig:
        settings = {
            "process.roles": "controller",
            "node.id": "1",
            "controller.quorum.bootstrap.servers": "127.0.0.1:9093",
            "controller.listener.names": "CONTROLLER",
            "listeners": "CONTROLLER://127.0.0.1:9093",
            "log.dirs": str(tmp_path / "deep/data"),
        }
        settings.update({name.replace("_", "."): value for name, value in changes.items()})
        path = tmp_path / "controller.properties"
        path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        return load_config(path, {})

    return configure


def initial(text: str = LIST) -> VoterSet:
    return parse_initial_controllers(text, "CONTROLLER")


def control_records(directory: Path) -> list[object]:
    data = (directory / CHECKPOINT).read_bytes()
    return [record for batch in parse_batches(data) for record in batch.control]


def files(directory: Path) -> set[str]:
    """What formatting is about: not the lock, nor what names the log's topic."""
    return {
        str(path.relative_to(directory))
        for path in directory.rglob("*")
        if path.is_file() and path.name not in (".lock", "partition.metadata")
    }


# --- what is written ------------------------------------------------------------------------------


def test_standalone(configure: Configure) -> None:
    config = configure()
    formatted = format_directory(config, CLUSTER, FormatMode.STANDALONE)
    directory = config.metadata_log_dir
    assert files(directory) == {"meta.properties", CHECKPOINT}
    meta = MetaProperties.read(directory)
    assert (meta.cluster_id, meta.node_id) == (CLUSTER, 1)
    assert meta.directory_id == formatted.directory_id
    voters = VoterSet.of(
        [
            Voter(
                ReplicaKey(1, meta.directory_id),
                (Endpoint("CONTROLLER", "127.0.0.1", 9093),),
            )
        ]
    )
    header, version, written, footer = control_records(directory)
    assert isinstance(header, SnapshotHeader)
    assert (version, written, footer) == (KRaftVersion(1), VotersRecord(voters), SnapshotFooter())
    assert formatted.voters == voters
    assert formatted.kraft_version == 1
    (done,) = formatted.directories
    assert (done.kind, done.was_formatted) == ("dynamic metadata voter directory", False)


def test_standalone_advertises_every_controller_listener(configure: Configure) -> None:
    config = configure(
        controller_listener_names="SECOND,FIRST",
        listeners="FIRST://0.0.0.0:1,SECOND://0.0.0.0:2",
        advertised_listeners="FIRST://c1:1,SECOND://c1:2",
        listener_security_protocol_map="FIRST:PLAINTEXT,SECOND:PLAINTEXT",
    )
    (voter,) = format_directory(config, CLUSTER, FormatMode.STANDALONE).voters
    assert voter.endpoints == (Endpoint("SECOND", "c1", 2), Endpoint("FIRST", "c1", 1))


def test_each_standalone_directory_has_an_id_of_its_own(configure: Configure) -> None:
    config = configure()
    first = format_directory(config, CLUSTER, FormatMode.STANDALONE).directory_id
    shutil.rmtree(config.metadata_log_dir)
    assert format_directory(config, CLUSTER, FormatMode.STANDALONE).directory_id != first


def test_initial_controllers(configure: Configure) -> None:
    config = configure()
    formatted = format_directory(config, CLUSTER, FormatMode.INITIAL_CONTROLLERS, initial())
    assert MetaProperties.read(config.metadata_log_dir).directory_id == D1
    assert VotersRecord(initial()) in control_records(config.metadata_log_dir)
    assert formatted.warnings == ()


def test_initial_controllers_elsewhere_than_advertised_is_said(configure: Configure) -> None:
    text = LIST.replace("127.0.0.1:9093", "127.0.0.1:9999")
    formatted = format_directory(
        configure(), CLUSTER, FormatMode.INITIAL_CONTROLLERS, initial(text)
    )
    (warning,) = formatted.warnings
    assert "127.0.0.1:9999" in warning
    assert "127.0.0.1:9093" in warning


def test_no_initial_controllers(configure: Configure) -> None:
    config = configure()
    formatted = format_directory(config, CLUSTER, FormatMode.NO_INITIAL_CONTROLLERS)
    assert files(config.metadata_log_dir) == {"meta.properties"}
    assert formatted.voters == VoterSet()
    assert formatted.directories[0].kind == "metadata directory"


def test_static_voters(configure: Configure) -> None:
    config = configure(controller_quorum_voters="1@127.0.0.1:9093,2@b:9093")
    for level in (None, 0):
        formatted = format_directory(
            config, CLUSTER, None, features=None if level is None else {"kraft.version": level}
        )
        assert formatted.kraft_version == 0
        assert files(config.metadata_log_dir) == {"meta.properties"}
        shutil.rmtree(config.metadata_log_dir)


def test_every_log_directory_is_formatted(configure: Configure, tmp_path: Path) -> None:
    config = configure(log_dirs=f"{tmp_path}/a,{tmp_path}/b", metadata_log_dir=f"{tmp_path}/m")
    formatted = format_directory(config, CLUSTER, FormatMode.STANDALONE)
    assert [(d.path.name, d.kind) for d in formatted.directories] == [
        ("m", "dynamic metadata voter directory"),
        ("a", "data directory"),
        ("b", "data directory"),
    ]
    assert len({d.directory_id for d in formatted.directories}) == 3
    assert files(tmp_path / "a") == {"meta.properties"}
    assert inspect_directories(config).problems == ()


def test_a_wanted_directory_id(configure: Configure) -> None:
    config = configure()
    mode = FormatMode.NO_INITIAL_CONTROLLERS
    assert format_directory(config, CLUSTER, mode, directory_id=D3).directory_id == D3
    shutil.rmtree(config.metadata_log_dir)
    with pytest.raises(FormatError, match="is not the one that the initial controllers give"):
        format_directory(
            config, CLUSTER, FormatMode.INITIAL_CONTROLLERS, initial(), directory_id=D3
        )


# --- what is refused ------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", list(FormatMode))
def test_a_formatted_directory_stays_as_it_is(configure: Configure, mode: FormatMode) -> None:
    config = configure()
    format_directory(config, CLUSTER, FormatMode.STANDALONE)
    before = {
        path: path.read_bytes() for path in config.metadata_log_dir.rglob("*") if path.is_file()
    }
    voters = initial() if mode is FormatMode.INITIAL_CONTROLLERS else None
    with pytest.raises(FormatError, match=r"is already formatted\. Use --ignore-formatted"):
        format_directory(config, CLUSTER, mode, voters)
    formatted = format_directory(config, CLUSTER, mode, voters, ignore_formatted=True)
    assert formatted.directories[0].was_formatted
    assert before == {
        path: path.read_bytes() for path in config.metadata_log_dir.rglob("*") if path.is_file()
    }


def test_another_cluster_or_node_is_refused_whatever_is_ignored(configure: Configure) -> None:
    config = configure()
    mode = FormatMode.NO_INITIAL_CONTROLLERS
    format_directory(config, CLUSTER, mode)
    with pytest.raises(FormatError, match=f"Expected {OTHER_CLUSTER}, but read {CLUSTER}"):
        format_directory(config, OTHER_CLUSTER, mode, ignore_formatted=True)
    with pytest.raises(FormatError, match=r"Invalid node.id in: .* Expected 2, but read 1"):
        format_directory(configure(node_id="2"), CLUSTER, mode, ignore_formatted=True)


def test_the_configured_cluster_must_be_the_given_one(configure: Configure) -> None:
    config = configure(cluster_id=OTHER_CLUSTER)
    with pytest.raises(FormatError, match=r"is not the cluster\.id"):
        format_directory(config, CLUSTER, FormatMode.STANDALONE)
    with pytest.raises(FormatError, match="invalid cluster id 'no such'"):
        format_directory(configure(), "no such", FormatMode.STANDALONE)
    assert not config.metadata_log_dir.exists()


@pytest.mark.parametrize(
    ("static", "mode", "level", "reason"),
    [
        (False, None, None, "you must specify one of the following: --standalone"),
        (True, None, 1, "Cannot set kraft.version to 1 unless controller.quorum.voters is empty"),
        (True, FormatMode.STANDALONE, None, "--standalone creates a dynamic quorum"),
        (True, FormatMode.NO_INITIAL_CONTROLLERS, None, "--no-initial-controllers creates a"),
        (False, FormatMode.STANDALONE, 0, "Cannot set kraft.version to 0 with --standalone"),
        (False, FormatMode.STANDALONE, 2, "kraft.version 2 is not supported"),
    ],
)
def test_static_and_dynamic_exclude_each_other(
    configure: Configure, static: bool, mode: FormatMode | None, level: int | None, reason: str
) -> None:
    config = configure(**({"controller_quorum_voters": "1@a:1"} if static else {}))
    with pytest.raises(FormatError, match=re.escape(reason)):
        format_directory(
            config, CLUSTER, mode, features=None if level is None else {"kraft.version": level}
        )
    assert not config.metadata_log_dir.exists()


def test_this_node_must_be_among_the_initial_controllers(configure: Configure) -> None:
    with pytest.raises(FormatError, match=r"node\.id 9 .* is not among the initial controllers"):
        format_directory(configure(node_id="9"), CLUSTER, FormatMode.INITIAL_CONTROLLERS, initial())
    unknown = VoterSet.of([Voter(ReplicaKey(1)), Voter(ReplicaKey(2, D2))])
    with pytest.raises(FormatError, match="initial controller 1 has no directory id"):
        format_directory(configure(), CLUSTER, FormatMode.INITIAL_CONTROLLERS, unknown)


def test_a_log_without_meta_properties_is_not_taken_over(configure: Configure) -> None:
    config = configure()
    log = config.metadata_log_dir / "__cluster_metadata-0"
    log.mkdir(parents=True)
    (log / "00000000000000000000.log").touch()
    with pytest.raises(FormatError, match=r"holds a log, but .* has no meta\.properties"):
        format_directory(config, CLUSTER, FormatMode.STANDALONE)


def test_formatting_that_was_cut_short_is_repeated(configure: Configure) -> None:
    config = configure()
    format_directory(config, CLUSTER, FormatMode.STANDALONE)
    (config.metadata_log_dir / "meta.properties").unlink()
    formatted = format_directory(config, CLUSTER, FormatMode.STANDALONE)
    assert VotersRecord(formatted.voters) in control_records(config.metadata_log_dir)


def test_a_directory_in_use_is_left_alone(configure: Configure) -> None:
    config = configure()
    config.metadata_log_dir.mkdir(parents=True)
    with DirectoryLock(config.metadata_log_dir), pytest.raises(DirectoryLockedError):
        format_directory(config, CLUSTER, FormatMode.STANDALONE)
    assert files(config.metadata_log_dir) == set()


def test_a_file_in_the_way(configure: Configure) -> None:
    config = configure()
    config.metadata_log_dir.parent.mkdir()
    config.metadata_log_dir.touch()
    with pytest.raises(FormatError, match="is not a directory"):
        format_directory(config, CLUSTER, FormatMode.STANDALONE)


# --- identifiers and lists ------------------------------------------------------------------------


def test_random_ids_are_canonical_and_no_options() -> None:
    ids = {random_uuid() for _ in range(2000)}
    assert len(ids) == 2000
    assert not any(text.startswith("-") for text in ids)
    assert all(parse_uuid(text) == text for text in ids)


def test_ids_as_people_write_them() -> None:
    """The KIP's own example sets bits that no UUID has; Kafka ignores them."""
    assert parse_uuid("3Db5QLSqSZieL3rJBUUegA") == "3Db5QLSqSZieL3rJBUUegA"
    assert parse_uuid("L3rJBUUegA3Db5QLSqSZie") == "L3rJBUUegA3Db5QLSqSZiQ"
    assert parse_uuid(D1 + "==") == D1
    for wrong in ("", "short", D1 + "A", "!" * 22, "é" * 22, D1[:-1] + "="):
        with pytest.raises(ValueError, match="is not a UUID"):
            parse_uuid(wrong)


def test_both_ways_to_write_the_initial_controllers() -> None:
    kafka = f"1@127.0.0.1:9093:{D1}, 2@b:9093:{D2} ,3@[::1]:9093:{D3}"
    assert initial(kafka) == initial(LIST)
    third = initial().get(3)
    assert third is not None
    assert third.endpoints == (Endpoint("CONTROLLER", "::1", 9093),)


def test_the_walk_through_of_the_kip() -> None:
    voters = initial(
        "0-3Db5QLSqSZieL3rJBUUegA@controller-0:1234,1-L3rJBUUegA3Db5QLSqSZie@controller-1:1234,"
        "2-UegA3Db5QLSqSZieL3rJBU@controller-2:1234"
    )
    assert [voter.id for voter in voters] == [0, 1, 2]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "it names no controller"),
        ("1", "is not ID-DIRECTORYID@HOST:PORT"),
        (f"x-{D1}@a:1", "is not ID-DIRECTORYID@HOST:PORT"),
        (f"2147483648-{D1}@a:1", "is not ID-DIRECTORYID@HOST:PORT"),
        ("1@a:1", "has no directory id"),
        ("1-x@a:1", "'x' is not a UUID"),
        ("1@a:1:x", "'x' is not a UUID"),
        (f"1-{D1}@a", "is not host:port"),
        (f"1-{D1}@:1", "has no host"),
        (f"1-{D1}@a:0", "is not a port"),
        (f"1-{'A' * 22}@a:1", "is reserved"),
        (f"1-{D1}@a:1,2-{D1}@b:1", "a directory id appears twice"),
        (f"1-{D1}@a:1,1-{D2}@b:1", "appears twice"),
    ],
)
def test_lists_that_are_wrong(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        initial(text)


# --- looking --------------------------------------------------------------------------------------


def test_what_is_not_there_or_not_ours_is_a_problem(configure: Configure, tmp_path: Path) -> None:
    config = configure(log_dirs=f"{tmp_path}/a,{tmp_path}/b,{tmp_path}/c,{tmp_path}/d")
    (tmp_path / "b").mkdir()
    (tmp_path / "c").touch()
    (tmp_path / "d").mkdir()
    (tmp_path / "d/meta.properties").write_text("version=9\n")
    problems = inspect_directories(config).problems
    assert problems[:3] == (
        f"{tmp_path}/a does not exist",
        f"{tmp_path}/b is not formatted.",
        f"{tmp_path}/c is not a directory",
    )
    assert problems[3].startswith(f"Error loading {tmp_path}/d/meta.properties: ")


def test_mismatches_are_problems(configure: Configure, tmp_path: Path) -> None:
    both = {"log_dirs": f"{tmp_path}/a,{tmp_path}/b"}
    format_directory(
        configure(log_dirs=f"{tmp_path}/a"), CLUSTER, FormatMode.NO_INITIAL_CONTROLLERS
    )
    format_directory(
        configure(log_dirs=f"{tmp_path}/b"), OTHER_CLUSTER, FormatMode.NO_INITIAL_CONTROLLERS
    )
    (problem,) = inspect_directories(configure(**both)).problems
    assert problem == "Mismatched cluster IDs between storage directories."
    only = {"log_dirs": f"{tmp_path}/a"}
    (problem,) = inspect_directories(configure(**only, node_id="5")).problems
    assert "belongs to node 1, and node.id is 5" in problem
    (problem,) = inspect_directories(configure(**only, cluster_id=OTHER_CLUSTER)).problems
    assert f"belongs to cluster {CLUSTER}" in problem


@pytest.mark.parametrize("node", [1, 2, 3])
def test_a_directory_of_kafka(configure: Configure, tmp_path: Path, node: int) -> None:
    source = GOLDEN / f"compacted/controller-{node}"
    if not source.exists():
        if "CI" in os.environ and SHARED.exists():
            pytest.fail(f"{source} is missing")
        pytest.skip(f"no golden data of Kafka: {source} does not exist")
    shutil.copytree(source, tmp_path / "kafka")
    config = configure(log_dirs=str(tmp_path / "kafka"), node_id=str(node))
    found = inspect_directories(config)
    assert found.problems == ()
    assert found.metadata is not None
    assert found.metadata["cluster.id"] == CLUSTER
    assert found.metadata["node.id"] == str(node)
    with pytest.raises(FormatError, match="is already formatted"):
        format_directory(config, CLUSTER, FormatMode.NO_INITIAL_CONTROLLERS)


# --- what the metadata begins with ----------------------------------------------------------------


def test_kafkas_bootstrap_checkpoint_is_read_and_written_alike(configure: Configure) -> None:
    config = configure()
    format_directory(config, CLUSTER, FormatMode.STANDALONE, release=27)
    golden = GOLDEN / "full-history/controller-1"
    if not golden.exists():
        pytest.skip(f"{golden} is not there")
    records = read_bootstrap(replace(config, metadata_log_dir=golden))
    assert [type(record) for record in records[-1:]] == [UserScramCredentialRecord]
    assert read_bootstrap(config) == records[:-1]
    shapes = [
        [
            (header.base_offset, header.count, header.is_control)
            for header, _ in iter_batches((directory / "bootstrap.checkpoint").read_bytes())
        ]
        for directory in (golden, config.metadata_log_dir)
    ]
    assert shapes == [
        [(0, 1, True), (1, 5, False), (6, 1, True)],
        [(0, 1, True), (1, 4, False), (5, 1, True)],
    ]


def test_the_latest_level_is_the_default_with_a_listener_for_brokers(configure: Configure) -> None:
    config = configure(
        controller_listener_names="CONTROLLER,KAFKA",
        listeners="CONTROLLER://127.0.0.1:9093,KAFKA://127.0.0.1:9094",
        quorate_kafka_listener_name="KAFKA",
    )
    formatted = format_directory(
        config, CLUSTER, FormatMode.STANDALONE, features={"group.version": 1}
    )
    assert formatted.features["metadata.version"] == 30
    assert len(read_bootstrap(config)) == len(formatted.features)


def test_a_broken_bootstrap_checkpoint_is_named(configure: Configure) -> None:
    config = configure()
    format_directory(config, CLUSTER, FormatMode.STANDALONE, release=27)
    path = config.metadata_log_dir / "bootstrap.checkpoint"
    path.write_bytes(path.read_bytes()[:-3])
    with pytest.raises(BootstrapError, match=re.escape(f"{path} cannot be used")):
        read_bootstrap(config)
