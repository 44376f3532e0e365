"""Kafka's golden segments and checkpoints: our dump is Kafka's, our bytes are Kafka's, both ways.

Kafka's own dump of each file is the oracle. The last tests let Kafka's tools read what we wrote.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from quorate.cli.main import main
from quorate.common.endpoints import Endpoint
from quorate.log.config import LogConfig
from quorate.log.meta_properties import MetaProperties
from quorate.log.metadata_log import MetadataLog, write_bootstrap_checkpoint
from quorate.log.offset_files import format_epochs
from quorate.log.quorum_state import QuorumStateFile, format_quorum_state
from quorate.raft.batches import LeaderChange, VotersRecord
from quorate.raft.types import OffsetAndEpoch, ReplicaKey, Voter, VoterSet
from quorate.records.batch import (
    build_control_batch,
    build_data_batch,
    iter_batches,
    iter_records,
    parse_batches,
    read_header,
    stamp,
    verify_crc,
)
from quorate.records.metadata import FeatureLevelRecord, encode

from tests.kafka import GOLDEN, copy_writable, missing

DUMPS = sorted(GOLDEN.glob("*/dump/*/*.txt"))
FILES = [f"{dump.parents[2].name}/{dump.parent.name}/{dump.stem}" for dump in DUMPS]
NODES = sorted({name.rsplit("/", 1)[0] for name in FILES})
KAFKA_DUMP = "org.apache.kafka.tools.DumpLogSegments"

# Without the golden data one test says so instead of none.
files = pytest.mark.parametrize("name", FILES or ["(none)"])
nodes = pytest.mark.parametrize("name", NODES or ["(none)"])


def locate(name: str) -> tuple[Path, Path, str]:
    """The node's directory, Kafka's dump, and the file's path below the directory."""
    if not DUMPS:
        missing(f"Kafka's golden directories are not in {GOLDEN} (set QUORATE_SHARED)")
    state, node, file = name.split("/")
    directory = GOLDEN / state / node
    relative = file if (directory / file).exists() else f"__cluster_metadata-0/{file}"
    return directory, GOLDEN / state / "dump" / node / f"{file}.txt", relative


class Dumper:
    """Runs `quorate dump-log` in a directory."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self._monkeypatch = monkeypatch
        self._capsys = capsys

    def __call__(self, directory: Path, *arguments: str) -> list[str]:
        self._monkeypatch.chdir(directory)
        status = main(["dump-log", "--show-secrets", *arguments])
        printed = self._capsys.readouterr()
        assert (printed.err, status) == ("", 0)
        return printed.out.splitlines()


@pytest.fixture
def dump(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Dumper:
    return Dumper(monkeypatch, capsys)


def relative_lines(kafkas: str, directory: Path) -> list[str]:
    """Kafka names a file with gaps by its absolute path, we as it was given."""
    return kafkas.replace(f"in {directory}/", "in ").splitlines()


def test_all_golden_files_have_a_dump() -> None:
    if not DUMPS:
        missing(f"Kafka's golden directories are not in {GOLDEN} (set QUORATE_SHARED)")
    found = {
        f"{path.relative_to(GOLDEN).parts[0]}/{path.relative_to(GOLDEN).parts[1]}/{path.name}"
        for pattern in ("*.log", "*.checkpoint")
        for path in GOLDEN.rglob(pattern)
    }
    assert found == set(FILES)
    assert len(found) >= 28


@files
def test_our_dump_is_kafkas(name: str, dump: Dumper) -> None:
    directory, expected, relative = locate(name)
    ours = dump(directory, "--cluster-metadata-decoder", "--files", relative)
    assert ours == expected.read_text().splitlines()


@files
def test_what_is_decoded_is_encoded_to_kafkas_bytes(name: str) -> None:
    """Control batches always; data batches too, unless their records differ in time."""
    directory, _, relative = locate(name)
    data = (directory / relative).read_bytes()
    position = 0
    for header, batch in iter_batches(data):
        assert verify_crc(data, position, header)
        records = list(iter_records(batch, header))
        (parsed,) = parse_batches(batch)
        if header.is_control:
            built = build_control_batch(parsed.control, header.base_timestamp)
        else:
            assert parsed.control == ()
            pairs = [(record.key, record.value) for record in records]
            built = build_data_batch(pairs, header.base_timestamp)
        stamp(built, header.base_offset, header.epoch)
        assert len({record.timestamp for record in records}) == 1
        assert built == batch
        position += header.size_bytes
    assert position == len(data)


@nodes
def test_kafkas_directories_open_and_go_on(name: str, tmp_path: Path) -> None:
    if not NODES:
        missing(f"Kafka's golden directories are not in {GOLDEN} (set QUORATE_SHARED)")
    source = GOLDEN / name
    directory = copy_writable(source, tmp_path / "copy")
    partition = source / "__cluster_metadata-0"
    state = QuorumStateFile(directory / "__cluster_metadata-0").read()
    assert state is not None
    assert format_quorum_state(state, 1) == (partition / "quorum-state").read_bytes()
    assert MetaProperties.read(directory).node_id == int(name.rsplit("-", 1)[1])
    log = MetadataLog.open(
        directory, LogConfig(), on_durable=lambda _: None, on_failure=lambda _: None
    )
    recovered = log.recovered
    # Kafka's leader-epoch-checkpoint, trimmed to the log's start as Kafka trims it, is ours.
    checkpoint = (partition / "leader-epoch-checkpoint").read_bytes()
    assert format_epochs(recovered.epochs) == checkpoint
    assert recovered.epochs[-1].epoch <= state.epoch
    assert recovered.truncated_bytes == 0
    read: list[bytes] = []
    while (offset := log.start_offset if not read else read_header(read[-1]).end_offset) < (
        log.end_offset
    ):
        read += [bytes(batch) for batch in log.read(offset, 4000)]
    stored = b"".join(path.read_bytes() for path in sorted(partition.glob("*.log")))
    assert stored.endswith(b"".join(read))
    last_set = VotersRecord(recovered.voters[-1][1])
    batch = build_control_batch([last_set], 1)
    stamp(batch, log.end_offset, state.epoch + 1)
    log.append(1, [batch])
    log.close()
    again = MetadataLog.open(
        directory, LogConfig(), on_durable=lambda _: None, on_failure=lambda _: None
    )
    assert again.end_offset == recovered.end_offset + 1
    assert again.recovered.voters[-1] == (recovered.end_offset, last_set.voters)
    again.close()


def test_kafkas_tools_read_what_we_write(
    tmp_path: Path, kafka_tool: Callable[..., str], dump: Dumper
) -> None:
    """Segments, a checkpoint and the bootstrap checkpoint: valid, and dumped alike."""
    voter = Voter(
        ReplicaKey(1, "Rigw3vfNRMmcl9pdbu4hDQ"), (Endpoint("CONTROLLER", "localhost", 9093),)
    )
    voters = VoterSet.of([voter])
    write_bootstrap_checkpoint(tmp_path, voters, now_ms=1_795_231_990_458)
    config = LogConfig(segment_bytes_max=600)
    log = MetadataLog.open(tmp_path, config, on_durable=lambda _: None, on_failure=lambda _: None)
    change = LeaderChange(1, (voter.key,), (voter.key,))
    record = encode(FeatureLevelRecord(name="metadata.version", feature_level=27))
    batches = [build_control_batch([change, VotersRecord(voters)], 1_795_231_990_459)]
    batches += [build_data_batch([(None, record)] * 3, 1_795_231_990_460) for _ in range(9)]
    for ticket, batch in enumerate(batches):
        stamp(batch, log.end_offset, 1)
        log.append(ticket, [batch])
    log.write_snapshot(OffsetAndEpoch(11, 1), 1, voters, 1_795_231_990_460, batches[1:4])
    log.close()
    names = sorted(
        str(path.relative_to(tmp_path))
        for pattern in ("*.log", "*.checkpoint")
        for path in tmp_path.rglob(pattern)
    )
    assert len(names) >= 5
    arguments = ("--cluster-metadata-decoder", "--files", ",".join(names))
    kafkas = kafka_tool(KAFKA_DUMP, *arguments, cwd=tmp_path)
    assert "isvalid: false" not in kafkas
    assert kafkas.count("isvalid: true") == 10 + 2 + 5
    ours = dump(tmp_path, *arguments)
    assert sorted(ours) == sorted(relative_lines(kafkas, tmp_path))


@pytest.mark.parametrize(
    "options",
    [
        (),
        ("--deep-iteration",),
        ("--cluster-metadata-decoder", "--skip-record-metadata"),
        ("--deep-iteration", "--skip-record-metadata"),
    ],
)
def test_options_print_what_kafkas_print(
    golden: Path,
    tmp_path: Path,
    kafka_tool: Callable[..., str],
    dump: Dumper,
    options: tuple[str, ...],
) -> None:
    path = tmp_path / "00000000000000000206.log"
    source = golden / "compacted/broker-101/__cluster_metadata-0" / path.name
    path.write_bytes(source.read_bytes() + source.read_bytes()[:50])
    arguments = (*options, "--files", path.name)
    expected = kafka_tool(KAFKA_DUMP, *arguments, cwd=tmp_path)
    assert dump(tmp_path, *arguments) == relative_lines(expected, tmp_path)
