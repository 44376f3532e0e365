"""Applications and Kafka's nodes exclude each other, on real nodes whose disks can be held."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from quorate.common.endpoints import Endpoint
from quorate.common.error_codes import ErrorCode
from quorate.metadata import requests as r
from quorate.metadata.controller import MetadataController
from quorate.metadata.metadata_version import APPLICATION_VERSION
from quorate.metadata.settings import ControllerSettings
from quorate.raft.messages import AddVoterRequest
from quorate.raft.roles import Leader, Transfer
from quorate.records import metadata as rec
from quorate.rpc.wire.values import AppendOutcome
from quorate.runtime.metadata_loader import MetadataLoader
from quorate.runtime.metadata_service import (
    NO_APPLICATIONS,
    NO_KAFKA_NODES,
    NO_KAFKA_NODES_AT_LEVEL,
    MetadataService,
)
from quorate.runtime.service import NodeService
from quorate.runtime.snapshot_policy import SnapshotPolicy
from quorate.runtime.snapshots import Snapshotter

from tests.unit.runtime import replicas
from tests.unit.runtime.test_runtime_metadata_service import (
    KEY,
    Replica,
    leading,
    quota,
    running,
)

SOON_S = 20
REJECTED = ErrorCode.POLICY_VIOLATION, NO_KAFKA_NODES
ADMITTED = ErrorCode.NONE, ""


def service_of(replica: Any, metadata: MetadataService) -> NodeService:
    return NodeService(
        replica.driver,
        batch_bytes_max=1 << 20,
        is_ready=lambda: True,
        metadata=metadata,
        kafka_listener="KAFKA",
    )


async def append(replica: Replica, timeout_ms: int = 20_000) -> AppendOutcome:
    service = service_of(replica, replica.service)
    return await service.append([(b"key", b"value")], timeout_ms)


async def admit(replica: Replica, timeout_ms: int = 20_000) -> tuple[ErrorCode, str]:
    return await replica.service.admit_kafka_node(timeout_ms)


def refused(outcome: AppendOutcome) -> bool:
    return (outcome.error, outcome.message) == (ErrorCode.INVALID_REQUEST, NO_APPLICATIONS)


async def is_leading_again(replica: Replica) -> None:
    async with asyncio.timeout(SOON_S):
        while not replica.service.is_active:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def test_an_application_keeps_kafkas_nodes_out(tmp_path: Path) -> None:
    async with leading(tmp_path) as replica:
        replica.disk.go.clear()
        appending = asyncio.create_task(append(replica))
        await asyncio.sleep(0.1)
        assert await admit(replica) == REJECTED, "an uncommitted record counts"
        replica.disk.go.set()
        assert (await appending).error is ErrorCode.NONE
        assert await admit(replica) == REJECTED
        assert not replica.loader.image.features.kafka_nodes
        assert (await append(replica)).error is ErrorCode.NONE
        await replica.done(quota(2))
        replica.driver.resign("a test")
        await is_leading_again(replica)
        assert await admit(replica) == REJECTED


async def test_application_version_keeps_kafkas_nodes_out(tmp_path: Path) -> None:
    async with leading(tmp_path) as replica:
        await replica.done(quota(1))
        updates = (r.FeatureUpdate(APPLICATION_VERSION, 1),)
        replica.disk.go.clear()
        finalizing = asyncio.create_task(replica.done(r.UpdateFeatures(updates)))
        await asyncio.sleep(0.1)
        assert await admit(replica, 50) == (ErrorCode.POLICY_VIOLATION, NO_KAFKA_NODES_AT_LEVEL)
        replica.disk.go.set()
        assert (await finalizing).error is ErrorCode.NONE
        assert await admit(replica) == (ErrorCode.POLICY_VIOLATION, NO_KAFKA_NODES_AT_LEVEL)
        await replica.done(r.UpdateFeatures((r.FeatureUpdate(APPLICATION_VERSION, 0, 2),)))
        assert await admit(replica) == ADMITTED


async def test_kafkas_nodes_keep_applications_out(tmp_path: Path) -> None:
    async with leading(tmp_path) as replica:
        replica.disk.go.clear()
        admitting = asyncio.create_task(admit(replica))
        await asyncio.sleep(0.1)
        assert not admitting.done(), "the record is not committed"
        end = replica.log.end_offset
        assert refused(await append(replica)), "an uncommitted record counts"
        assert (await admit(replica, 50))[0] is ErrorCode.REQUEST_TIMED_OUT
        assert replica.log.end_offset == end
        replica.disk.go.set()
        assert await admitting == ADMITTED
        assert await admit(replica) == ADMITTED
        assert refused(await append(replica))
        assert replica.log.end_offset == end
        await replica.done(quota(2))
        replica.driver.resign("a test")
        await is_leading_again(replica)
        assert refused(await append(replica))
        assert await admit(replica) == ADMITTED


async def test_the_record_follows_metadata_version(tmp_path: Path) -> None:
    """Kafka's loader fails on a record before it."""
    async with running(tmp_path) as replica:
        await is_leading_again(replica)
        assert replica.loader.image.features.metadata_version == 0
        assert await admit(replica) == ADMITTED
        kinds = [type(each) for each in replica.loader.image.records()]
        assert (kinds[0], kinds[-1]) == (rec.FeatureLevelRecord, rec.NoOpRecord)


@pytest.mark.parametrize("application_first", [True, False])
async def test_of_two_at_once_the_first_stays(tmp_path: Path, application_first: bool) -> None:
    async with leading(tmp_path) as replica:
        if application_first:
            outcome, admitted = await asyncio.gather(append(replica), admit(replica))
            assert (outcome.error, admitted) == (ErrorCode.NONE, REJECTED)
        else:
            admitted, outcome = await asyncio.gather(admit(replica), append(replica))
            assert admitted == ADMITTED
            assert refused(outcome)
        is_known = outcome.error is ErrorCode.NONE
        assert replica.service.has_applications is is_known
        assert replica.loader.image.features.kafka_nodes is not is_known


async def test_what_was_not_appended_does_not_count(tmp_path: Path) -> None:
    async with leading(tmp_path) as replica:
        core = replica.driver.node.core
        until_ms = core.now_ms + 60_000
        transfer = Transfer(99, KEY, until_ms, until_ms, round=1, is_confirmed=True)
        core.role_as(Leader).transfer = transfer
        assert not replica.driver.node.takes_appends
        assert (await append(replica)).error is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert (await admit(replica))[0] is ErrorCode.NOT_CONTROLLER
        core.role_as(Leader).transfer = None
        assert not replica.service.has_applications
        assert await admit(replica) == ADMITTED


async def test_without_leadership_nothing_is_decided(tmp_path: Path) -> None:
    async with leading(tmp_path) as replica:
        replica.driver.resign("a test")
        assert not replica.driver.node.is_leader
        assert (await admit(replica))[0] is ErrorCode.NOT_CONTROLLER
        assert await replica.service.append_application(1, bytearray(), 1_000) is (
            ErrorCode.NOT_LEADER_OR_FOLLOWER
        )
        await is_leading_again(replica)
        assert not replica.service.has_applications
        assert not replica.loader.image.features.kafka_nodes


async def test_a_log_of_an_earlier_version_with_both_serves_applications(tmp_path: Path) -> None:
    async with leading(tmp_path) as replica:
        assert await admit(replica) == ADMITTED
        unchecked = NodeService(replica.driver, batch_bytes_max=1 << 20, is_ready=lambda: True)
        assert (await unchecked.append([(b"key", b"value")], 20_000)).error is ErrorCode.NONE
        await replica.done(quota(2))
        assert await admit(replica) == REJECTED
        assert (await append(replica)).error is ErrorCode.NONE


async def test_a_transaction_neither_delays_nor_aborts_it(tmp_path: Path) -> None:
    async with leading(tmp_path) as replica:
        begun = rec.encode(rec.BeginTransactionRecord("copy"), 0)
        assert (await replica.service.append_records([begun], 5_000))[0] is ErrorCode.NONE
        assert await admit(replica) == ADMITTED
        assert refused(await append(replica))
        aborted = rec.encode(rec.AbortTransactionRecord("a test"), 0)
        assert (await replica.service.append_records([aborted], 5_000))[0] is ErrorCode.NONE
        assert refused(await append(replica))
        assert replica.controller.image == replica.loader.image


async def test_a_client_cannot_append_the_record(tmp_path: Path) -> None:
    async with leading(tmp_path) as replica:
        outcome = await service_of(replica, replica.service).append(
            [(None, rec.encode(rec.KAFKA_NODES, 0))], 5_000
        )
        assert outcome.error is ErrorCode.INVALID_RECORD
        assert "only the controller" in outcome.message
        assert (await append(replica)).error is ErrorCode.NONE


@pytest.mark.parametrize("applications", [True, False])
async def test_a_snapshot_says_it_too(tmp_path: Path, applications: bool) -> None:
    async with leading(tmp_path) as replica:
        if applications:
            assert (await append(replica)).error is ErrorCode.NONE
        else:
            assert await admit(replica) == ADMITTED
        snapshotter = Snapshotter(replica.driver, SnapshotPolicy(), replica.loader)
        await replica.done(quota(3))
        await replica.loader.reached(replica.driver.node.high_watermark)
        assert await snapshotter.write() is not None
        other = MetadataLoader(replica.log, on_fatal=replica.failures.append)
        other.start()
        await asyncio.wait_for(other.reached(replica.loader.offset), SOON_S)
        await other.stop()
        assert other.has_applications is applications
        assert other.image.features.kafka_nodes is not applications
        assert other.image == replica.loader.image


async def test_a_voter_that_speaks_kafkas_protocol_is_kept_out(tmp_path: Path) -> None:
    async with leading(tmp_path) as replica:
        endpoints = Endpoint("KAFKA", "127.0.0.1", 1), Endpoint("CONTROLLER", "127.0.0.1", 1)
        request = AddVoterRequest("yFPgY5iXQYqr5sMxfdxu0Q", replace(KEY, id=2), endpoints, 300)
        ours = replace(request, endpoints=endpoints[::-1])
        service = service_of(replica, replica.service)
        assert NO_KAFKA_NODES not in (await service.handle(request)).message
        assert (await append(replica)).error is ErrorCode.NONE
        answer = await service.handle(request)
        assert (answer.error, answer.message) == (ErrorCode.INVALID_REQUEST, NO_KAFKA_NODES)
        assert NO_KAFKA_NODES not in (await service.handle(ours)).message


def with_controller(replica: replicas.Replica) -> MetadataService:
    """Add what a controller's process has beside the replica."""
    seed = bytes([replica.id] * 16)
    controller = MetadataController(lambda: seed, ControllerSettings(idle_interval_ms=0))
    service = MetadataService(replica.loader, controller, batch_bytes_max=1 << 20)
    service.bind(replica.driver)
    replica.driver._on_leadership = service.leadership
    return service


@pytest.mark.parametrize("application_is_lost", [True, False])
async def test_what_is_truncated_does_not_count(tmp_path: Path, application_is_lost: bool) -> None:
    """Of two leaders' first records, the one that is committed decides on both nodes."""
    async with replicas.trio(tmp_path) as nodes:
        services = {each: with_controller(replica) for each, replica in nodes.items()}
        old = await replicas.leader_of(nodes)
        metadata = services[old.id]
        await replicas.until("it is active", lambda: metadata.is_active)
        old.network.cut.add(old.id)
        # It still leads, so the record is in its log, and is never committed.
        if application_is_lost:
            lost: Any = asyncio.create_task(
                service_of(old, metadata).append([(b"key", b"lost")], 20_000)
            )
        else:
            lost = asyncio.create_task(metadata.admit_kafka_node(20_000))
        await asyncio.sleep(0)
        await replicas.until("it is appended", lambda: old.log.end_offset > old.node.high_watermark)
        new = await replicas.leader_of(nodes, but=old.id)
        decided = services[new.id]
        await replicas.until("it is active", lambda: decided.is_active)
        if application_is_lost:
            assert await decided.admit_kafka_node(20_000) == ADMITTED
        else:
            outcome = await service_of(new, decided).append([(b"key", b"kept")], 20_000)
            assert outcome.error is ErrorCode.NONE
        old.network.cut.clear()
        ended = await asyncio.wait_for(lost, SOON_S)
        error = ended.error if application_is_lost else ended[0]
        assert error not in (ErrorCode.NONE, ErrorCode.INVALID_REQUEST), ended
        await replicas.until("it follows", lambda: old.loader.offset >= new.node.high_watermark > 0)
        assert metadata.has_applications is not application_is_lost
        assert old.loader.image.features.kafka_nodes is application_is_lost
        for service in services.values():
            await service.close()


async def test_brokers_of_quorate_change_nothing(tmp_path: Path) -> None:
    """They register over gRPC, and read logs with records of applications."""
    async with leading(tmp_path) as replica:
        assert (await append(replica)).error is ErrorCode.NONE
        request = r.RegisterBroker(7, "b9c1L2YyQwqGrBcZ56ewKg", (Endpoint("P", "h", 1),))
        answer = await service_of(replica, replica.service).metadata(request, 20_000)
        assert answer.error is ErrorCode.NONE
        assert answer.response.error is not ErrorCode.POLICY_VIOLATION
        assert (await append(replica)).error is ErrorCode.NONE
