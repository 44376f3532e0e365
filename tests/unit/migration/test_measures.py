"""The migration's metrics, by the state that the log is in."""

from __future__ import annotations

import pytest
from quorate.controller.migration.metrics import MigrationMetrics, migration_samples
from quorate.metadata.image.metadata_image import MetadataImage
from quorate.records.metadata import (
    RegisterBrokerRecord,
    ZkMigrationState,
    ZkMigrationStateRecord,
)
from quorate.telemetry.catalogue import BY_NAME


@pytest.mark.parametrize(
    ("state", "decided"),
    [
        (ZkMigrationState.NONE, 2),
        (ZkMigrationState.PRE_MIGRATION, 1),
        (ZkMigrationState.MIGRATION, 3),
        (ZkMigrationState.POST_MIGRATION, 2),
    ],
)
def test_they_tell_where_metadata_is_decided(state: ZkMigrationState, decided: int) -> None:
    image = MetadataImage()
    for offset, broker in enumerate((1, 2)):
        record = RegisterBrokerRecord(
            broker_id=broker,
            is_migrating_zk_broker=broker == 1,
            incarnation_id="A" * 20 + "AA",
            version=3,
        )
        image.apply(record, offset)
    image.apply(ZkMigrationStateRecord(state, version=0), 2)
    samples = list(migration_samples(image, MigrationMetrics(snapshot_ms=12.5, delta_ms=1.5), 7))
    assert {each.name: each.value for each in samples} == {
        "ZkMigrationState": state.value,
        "MetadataType": decided,
        "MigratingZkBrokerCount": 1,
        "ZkWriteBehindLag": 7,
        "ZkWriteSnapshotTimeMs": 12.5,
        "ZkWriteDeltaTimeMs": 1.5,
    }
    assert all(BY_NAME[each.name].source == "KIP-866" for each in samples)
