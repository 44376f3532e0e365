"""Znodes of a cluster that never was, as many as wanted: for measurements and for tests."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator

from quorate.migration.znodes import ZNode

BROKERS = 3


def encoded(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def generated(topics: int, partitions: int) -> Iterator[ZNode]:
    """A cluster with so many topics of so many partitions each, three replicas a partition."""
    folders = ("/brokers", "/brokers/topics", "/brokers/ids", "/config", "/config/topics",
               "/config/changes", "/cluster", "/kafka-acl")  # fmt: skip
    yield from (ZNode(path) for path in folders)
    yield ZNode("/cluster/id", encoded({"version": "1", "id": "generated"}))
    yield ZNode("/controller_epoch", b"1")
    for broker in range(1, BROKERS + 1):
        yield ZNode(f"/brokers/ids/{broker}", b"{}", owner=broker)
    for number in range(topics):
        yield from _topic(number, partitions)


def _topic(number: int, partitions: int) -> Iterator[ZNode]:
    name = f"topic-{number:06d}"
    topic_id = base64.urlsafe_b64encode((number + 1000).to_bytes(16, "big")).decode().rstrip("=")
    replicas = [[1 + (index + turn) % BROKERS for turn in range(BROKERS)] for index in range(3)]
    yield ZNode(
        f"/brokers/topics/{name}",
        encoded(
            {
                "partitions": {str(i): replicas[i % 3] for i in range(partitions)},
                "topic_id": topic_id,
                "adding_replicas": {},
                "removing_replicas": {},
                "version": 3,
            }
        ),
    )
    yield ZNode(f"/config/topics/{name}", encoded({"version": 1, "config": {"retention.ms": "5"}}))
    yield ZNode(f"/brokers/topics/{name}/partitions")
    for index in range(partitions):
        path = f"/brokers/topics/{name}/partitions/{index}"
        yield ZNode(path)
        yield ZNode(
            f"{path}/state",
            encoded(
                {
                    "controller_epoch": 1,
                    "leader": replicas[index % 3][0],
                    "version": 1,
                    "leader_epoch": 0,
                    "isr": replicas[index % 3],
                }
            ),
        )
