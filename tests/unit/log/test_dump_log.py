"""`quorate dump-log`: what it prints of sound, torn and damaged files, and how it ends."""

from __future__ import annotations

import json
from base64 import b64encode
from pathlib import Path

import pytest
from quorate.cli.main import main
from quorate.raft.batches import KRaftVersion, UnknownControl
from quorate.records.batch import build_data_batch, read_header, stamp
from quorate.records.metadata import ConfigRecord, UserScramCredentialRecord, encode

from tests.unit.log.log_support import control, data

NAME = "00000000000000000000.log"
BATCHES = [control(0, 1, KRaftVersion(1)), data(1, count=2), data(3), data(4, epoch=2)]
WHOLE = b"".join(BATCHES)


def run(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> tuple[int, str, str]:
    status = main(["dump-log", *map(str, arguments)])
    captured = capsys.readouterr()
    assert "Traceback" not in captured.err
    return status, captured.out, captured.err


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / NAME
    path.write_bytes(WHOLE)
    return path


def test_batches_and_records(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = run(capsys, "--files", path)
    assert (status, err) == (0, "")
    lines = out.splitlines()
    assert lines[:2] == [f"Dumping {path}", "Log starting offset: 0"]
    header = read_header(BATCHES[1])
    assert lines[3] == (
        "baseOffset: 1 lastOffset: 2 count: 2 baseSequence: -1 lastSequence: -1 producerId: -1 "
        "producerEpoch: -1 partitionLeaderEpoch: 1 isTransactional: false isControl: false "
        f"deleteHorizonMs: OptionalLong.empty position: {len(BATCHES[0])} CreateTime: 1000 "
        f"size: {len(BATCHES[1])} magic: 2 compresscodec: none crc: {header.crc} isvalid: true"
    )
    assert len(lines) == 6
    status, out, _ = run(capsys, "--deep-iteration", "--files", path)
    first = "| offset: 0 CreateTime: 1000 keySize: 4 valueSize: 5 sequence: -1 headerKeys: [] "
    assert first + 'KRaftVersion {"version":0,"kRaftVersion":1}' in out.splitlines()
    assert out.count("| offset: ") == 5


def test_values_that_are_no_metadata_records_are_said_to_be(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, out, _ = run(capsys, "--cluster-metadata-decoder", "--files", path)
    assert status == 0
    assert out.count("payload: Error at ") == 4


def test_secrets_are_left_out_unless_they_are_asked_for(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    records = [
        UserScramCredentialRecord("carol", 1, b"SALT" * 4, b"STORED" * 5, b"SERVER" * 5, 4096),
        ConfigRecord(4, "1", "ssl.key.password", "hunter2"),
        ConfigRecord(4, "1", "plugin.key", "hunter3"),
        ConfigRecord(4, "1", "background.threads", "11"),
        ConfigRecord(2, "orders", "retention.ms", "77"),
        ConfigRecord(4, "1", "ssl.keystore.key", None),
    ]
    batch = build_data_batch([(None, encode(record)) for record in records], 1000)
    stamp(batch, 0, 1)
    path.write_bytes(batch)
    secrets = [b64encode(text).decode() for text in (b"SALT" * 4, b"STORED" * 5, b"SERVER" * 5)]
    secrets += ["hunter2", "hunter3"]
    arguments = ("--cluster-metadata-decoder", "--files", path)
    for form in ((), ("--json",)):
        status, out, _ = run(capsys, *form, *arguments)
        assert status == 0
        assert not [secret for secret in secrets if secret in out]
        assert out.count("[hidden]") == 5
        assert "carol" in out
        assert '"11"' in out
        assert '"77"' in out
        status, out, _ = run(capsys, *form, *arguments, "--show-secrets")
        assert status == 0
        assert all(secret in out for secret in secrets)
        assert "[hidden]" not in out


def test_json_is_one_value(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path.write_bytes(WHOLE + BATCHES[2][:30])
    status, out, _ = run(capsys, "--json", "--deep-iteration", "--files", f"{path},{path}")
    assert status == 0
    first, second = json.loads(out)
    assert first == second
    assert first["startOffset"] == 0
    assert first["invalidBytesAtEnd"] == 30
    assert [batch["baseOffset"] for batch in first["batches"]] == [0, 1, 3, 4]
    assert first["batches"][0]["records"][0]["control"] == {
        "type": "KRaftVersion",
        "data": {"version": 0, "kRaftVersion": 1},
    }


def test_room_is_no_fault_and_a_torn_end_is_counted(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    expected = run(capsys, "--files", path)
    path.write_bytes(WHOLE + bytes(5000))
    assert run(capsys, "--files", path) == expected
    path.write_bytes(WHOLE + BATCHES[2][:70])
    status, out, err = run(capsys, "--files", path)
    assert (status, err) == (0, "")
    assert out.splitlines()[-1] == f"Found 70 invalid bytes at the end of {NAME}"


def test_a_damaged_file_is_dumped_up_to_there(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    second = len(BATCHES[0])
    third = second + len(BATCHES[1])
    damaged = bytearray(WHOLE)
    damaged[third - 5] ^= 1
    path.write_bytes(damaged)
    for options in ((), ("--json",)):
        status, out, err = run(capsys, *options, "--files", path)
        assert status == 1
        assert len(err.splitlines()) == 1
        assert f"damaged at byte {second}, offset 1: the checksum is wrong" in err
        assert f"a whole batch follows at byte {third}" in err
        if options:
            assert [b["isValid"] for b in json.loads(out)[0]["batches"]] == [True, False]
        else:
            assert out.splitlines()[-1].endswith("isvalid: false")
    damaged = bytearray(WHOLE)
    damaged[second + 16] = 77
    path.write_bytes(damaged)
    status, out, err = run(capsys, "--files", path)
    assert (status, len(out.splitlines())) == (1, 3)
    assert f"damaged at byte {second}, where offset 1 is expected" in err
    assert "magic 77" in err
    # A length that reaches beyond the file is damage too when a batch follows.
    damaged = bytearray(WHOLE)
    damaged[second + 8] = 0x70
    path.write_bytes(damaged)
    status, out, err = run(capsys, "--files", path)
    assert status == 1
    assert f"a whole batch follows at byte {third}" in err


def test_other_files_are_dumped_although_one_is_damaged(
    path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sound = tmp_path / "00000000000000000001.log"
    sound.write_bytes(BATCHES[1])
    path.write_bytes(b"\xff" * 200)
    status, out, err = run(capsys, "--files", f"{path},{sound}")
    assert status == 1
    assert f"Dumping {sound}" in out
    assert "baseOffset: 1 lastOffset: 2" in out
    assert str(path) in err


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("missing.log", "no such file"),
        ("notes.txt", "neither a segment"),
        ("12.log", "neither a segment"),
        ("a-b.checkpoint", "neither a segment"),
    ],
)
def test_what_is_no_log_file_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, complaint: str
) -> None:
    path = tmp_path / name
    if name != "missing.log":
        path.write_bytes(b"x")
    status, out, err = run(capsys, "--files", path)
    assert (status, out) == (1, "")
    assert complaint in err
    assert len(err.splitlines()) == 1


def test_files_must_be_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "--files", "")[0] == 2
    assert run(capsys)[0] == 2


def test_gaps_and_foreign_control_records(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "00000000000000000007.log"
    commit = UnknownControl(1, b"\0\0\0\0\0\x09")
    path.write_bytes(control(7, 1, commit, UnknownControl(40, b"")) + data(20))
    status, out, _ = run(capsys, "--deep-iteration", "--files", path)
    assert status == 0
    lines = out.splitlines()
    assert lines[3].endswith("endTxnMarker: COMMIT coordinatorEpoch: 9")
    assert lines[4].endswith("controlType: UNKNOWN(40)")
    assert lines[-3:] == [
        f"Non-consecutive offsets in {path}",
        "  -1 is followed by 7",
        "  8 is followed by 20",
    ]
