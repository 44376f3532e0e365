"""Backups in a bucket of a real S3 server: the Versity gateway, over a local directory."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from quorate.backup.urls import open_store
from quorate.log.config import LogConfig
from quorate.log.metadata_log import MetadataLog

from tests.certificates import make_authority, make_certificate, needs_openssl
from tests.integration.conftest import append
from tests.integration.support import Node, Ran, assert_error, free_ports, here, until
from tests.integration.terminal import Terminal
from tests.processes import listens
from tests.s3 import CLIENT, S3Server, gateway_or_skip
from tests.tools.documents import block, command_lines

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

BUCKET = "backups"
PLACE = ("--node-id", 7, "--endpoint", "CONTROLLER://new:9093")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    binary = gateway_or_skip(tmp_path_factory.mktemp("bin"))
    with pytest.MonkeyPatch.context() as patch:
        for name, value in CLIENT.items():
            patch.setenv(name, value)
        with S3Server(binary, tmp_path_factory.mktemp("s3") / "buckets", BUCKET) as server:
            server.start()
            server.wait_until("it listens", lambda: listens(server.port))
            yield server


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """A controller with 40 records, the only voter of its quorum."""
    node = Node(tmp_path_factory.mktemp("node"), 1, free_ports(1)[0])
    node.format("--standalone")
    node.start()
    try:
        node.wait_said("leads epoch 1")
        asyncio.run(append(node.address, 40))
        yield node
    finally:
        node.kill()


def create(node: Node, url: str, *options: object) -> Ran:
    connection = ("--bootstrap-controller", node.address, *options)
    return here("backup", "create", *connection, "--to", url, "--segment-bytes", 2000, "--json")


def records_in(directory: Path, end: int) -> bytes:
    log = MetadataLog.open(
        directory, LogConfig(), on_durable=lambda _: None, on_failure=lambda _: None
    )
    try:
        return b"".join(bytes(batch) for batch in log.read(0, 1 << 30, end))
    finally:
        log.close()


def test_a_backup_in_a_bucket_is_verified_and_restored(
    server: S3Server, node: Node, tmp_path: Path
) -> None:
    url = f"s3://{BUCKET}/one/cluster{server.options}"
    first = create(node, url)
    assert (first.status, first.err) == (0, "")
    again = create(node, url)
    assert again.json()["generation"] >= first.json()["generation"]
    assert first.json()["url"] == f"s3://{BUCKET}/one/cluster"
    run = again.json()["runs"][-1]
    assert run["endOffset"] >= 43
    assert len(run["segments"]) > 1
    assert here("backup", "verify", url).status == 0

    done = here("restore", url, "--directory", tmp_path / "new", *PLACE, "--json").json()
    end = done["endOffset"]
    segment = (node.data / "__cluster_metadata-0" / f"{0:020}.log").read_bytes()
    restored = records_in(tmp_path / "new", end)
    assert segment.startswith(restored)
    assert end == run["endOffset"]


def test_an_encrypted_backup_in_a_bucket(server: S3Server, node: Node, tmp_path: Path) -> None:
    url = f"s3://{BUCKET}/sealed{server.options}"
    key = ("--key-file", tmp_path / "keys")
    assert here("backup", "new-key", tmp_path / "keys").status == 0
    assert create(node, url, *key).json()["encrypted"]
    run = create(node, url, *key).json()["runs"][-1]
    for path in (server.folder / BUCKET / "sealed").glob("*/*"):
        assert path.read_bytes().startswith(b"quorate-encrypted-1\n")
    assert here("backup", "verify", url, *key).status == 0
    ran = here("restore", url, *key, "--directory", tmp_path / "new", *PLACE, "--json")
    assert ran.json()["endOffset"] == run["endOffset"]
    assert_error(here("backup", "list", url), "sealed is encrypted: --key-file is needed")
    path = server.folder / BUCKET / "sealed" / run["segments"][-1]
    path.write_bytes(path.read_bytes()[:-1])
    ran = here("backup", "verify", url, *key)
    assert ran.status == 1
    assert run["segments"][-1] in ran.out


@needs_openssl
def test_a_bucket_behind_a_private_authority(server: S3Server, node: Node, tmp_path: Path) -> None:
    authority = make_authority(tmp_path, "authority")
    other, _ = make_authority(tmp_path, "other")
    certificate = make_certificate(tmp_path, "store", authority)
    with S3Server(server.binary, tmp_path / "buckets", BUCKET, certificate) as secure:
        secure.start()
        secure.wait_until("it listens", lambda: listens(secure.port))
        url = f"s3://{BUCKET}/private{secure.options}"
        trusting = f"{url}&tls_ca_file_path={authority[0]}"
        assert create(node, trusting).status == 0
        assert here("backup", "verify", trusting).status == 0
        for bad in (url, f"{url}&tls_ca_file_path={other}", f"{url}&tls_ca_file_path=/none.pem"):
            ran = here("backup", "list", bad)
            assert_error(ran, "SSL")


def test_the_commands_of_the_documents(server: S3Server, node: Node, tmp_path: Path) -> None:
    bucket = "s3://bucket/metadata"
    url = f"s3://{BUCKET}/docs{server.options}"
    names = {f"{bucket}?endpoint_override=minio:9000&scheme=http": url, bucket: url}
    with Terminal(tmp_path, {**names, "HOST:PORT": node.address}) as terminal:
        *lines, listing = command_lines(block("docs/backup.md", "s3://bucket"))
        for line in lines:
            terminal.run(line)
        until("a backup", lambda: here("backup", "verify", url).status == 0)
        assert terminal.run(listing)


def test_a_damaged_bucket_is_rejected(server: S3Server, node: Node, tmp_path: Path) -> None:
    url = f"s3://{BUCKET}/two{server.options}"
    names = create(node, url).json()["runs"][-1]["segments"]
    path = server.folder / BUCKET / "two" / names[1]
    data = bytearray(path.read_bytes())
    data[90] ^= 1
    path.write_bytes(data)
    ran = here("restore", url, "--directory", tmp_path / "new", *PLACE)
    assert_error(ran, "nothing was created", names[1], "the object cannot be read")
    open_store(url).put(names[1], [bytes(data)])
    ran = here("restore", url, "--directory", tmp_path / "new", *PLACE)
    assert_error(ran, "nothing was created", names[1], "the checksum of the batch is wrong")
    path.unlink()
    ran = here("restore", url, "--directory", tmp_path / "new", *PLACE)
    assert_error(ran, "nothing was created", names[1], "the object is missing")
    assert not (tmp_path / "new").exists()


def test_what_the_store_rejects_is_one_line(
    server: S3Server, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert_error(create(node, f"s3://{BUCKET}-missing/a{server.options}"))
    assert_error(here("backup", "verify", f"s3://{BUCKET}/nothing{server.options}"), "no backup")
    assert_error(here("backup", "verify", "s3://"), "s3://")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    assert_error(here("backup", "verify", f"s3://{BUCKET}/one{server.options}"))
