"""The configs of applications: cluster-wide, and only at application.version 1."""

from __future__ import annotations

import pytest
from quorate.common.error_codes import ErrorCode
from quorate.common.features import METADATA_VERSION
from quorate.metadata import requests as r
from quorate.metadata.config.config_defs import CLEANUP_POLICY
from quorate.metadata.describe import answer
from quorate.metadata.metadata_version import APPLICATION_VERSION, LATEST_LEVEL
from quorate.records.metadata import ConfigRecord, FeatureLevelRecord

from tests.unit.metadata.metadata_support import Cluster

BROKER = 4
DEFAULT = r.ConfigResource(BROKER, "")
LEVELS = {METADATA_VERSION: LATEST_LEVEL, APPLICATION_VERSION: 1}


def alter(cluster: Cluster, *ops: r.ConfigOp, name: str = "", whole: bool = False) -> ErrorCode:
    change = (r.ConfigChange(r.ConfigResource(BROKER, name), ops),)
    request = r.AlterConfigs(change) if whole else r.IncrementalAlterConfigs(change)
    error: ErrorCode = cluster.ask(request).resources[0].error
    return error


def policy(value: str | None, operation: int = 0) -> r.ConfigOp:
    return r.ConfigOp(CLEANUP_POLICY, value, operation)


@pytest.fixture
def cluster() -> Cluster:
    return Cluster(1, bootstrap_levels=LEVELS)


def test_the_policy_is_a_record(cluster: Cluster) -> None:
    assert alter(cluster, policy("compact")) is ErrorCode.NONE
    assert cluster.last == (ConfigRecord(BROKER, "", CLEANUP_POLICY, "compact", version=0),)
    assert alter(cluster, policy(None, 1)) is ErrorCode.NONE
    assert cluster.committed.configs.of(BROKER, "") == {}


@pytest.mark.parametrize("value", ["", "delete", "compact,keep", "COMPACT"])
def test_other_values_are_rejected(cluster: Cluster, value: str) -> None:
    assert alter(cluster, policy(value)) is ErrorCode.INVALID_CONFIG
    assert alter(cluster, policy(value), whole=True) is ErrorCode.INVALID_CONFIG
    assert cluster.last == ()


def test_it_is_no_list(cluster: Cluster) -> None:
    assert alter(cluster, policy("compact", 2)) is ErrorCode.INVALID_CONFIG


def test_brokers_have_none_of_their_own(cluster: Cluster) -> None:
    assert alter(cluster, policy("compact"), name="1") is ErrorCode.INVALID_CONFIG


def test_it_needs_the_level_but_for_deletion(cluster: Cluster) -> None:
    assert alter(cluster, policy("compact")) is ErrorCode.NONE
    down = r.UpdateFeatures((r.FeatureUpdate(APPLICATION_VERSION, 0, 2),))
    assert cluster.ask(down).error is ErrorCode.NONE
    assert cluster.last == (FeatureLevelRecord(APPLICATION_VERSION, 0, version=0),)
    assert alter(cluster, policy("keep")) is ErrorCode.INVALID_CONFIG
    assert alter(cluster, policy("keep"), whole=True) is ErrorCode.INVALID_CONFIG
    others = r.ConfigOp("num.io.threads", "4")
    assert alter(cluster, others) is ErrorCode.NONE, "what was set does not matter to other configs"
    assert alter(cluster, policy(None, 1)) is ErrorCode.NONE


def test_its_value_and_its_default_are_described(cluster: Cluster) -> None:
    read = r.DescribeConfigs((DEFAULT,), with_defaults=True)

    def described() -> list[tuple[str | None, bool]]:
        (found,) = answer(cluster.committed, read).resources
        return [(v.value, v.is_sensitive) for v in found.configs if v.name == CLEANUP_POLICY]

    assert described() == [("keep", False)]
    assert alter(cluster, policy("compact")) is ErrorCode.NONE
    assert described() == [("compact", False)]
    cluster = Cluster(1)
    assert described() == [], "quorums of Kafka's nodes have no such config"
