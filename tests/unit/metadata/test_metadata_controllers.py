"""Registrations of controllers, and which of them limit the levels of features."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from quorate.common.endpoints import Endpoint
from quorate.common.error_codes import ErrorCode as E
from quorate.common.features import METADATA_VERSION, VersionRange
from quorate.metadata import requests as r
from quorate.metadata.controller import CurrentControllers
from quorate.metadata.image.configs import ConfigResourceType
from quorate.metadata.metadata_version import APPLICATION_VERSION, ELR_VERSION, SUPPORTED
from quorate.records.metadata import (
    ConfigRecord,
    FeatureLevelRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    RegisteredFeature,
    UserScramCredentialRecord,
    ZkMigrationState,
    ZkMigrationStateRecord,
)

from tests.unit.metadata.metadata_support import Cluster, uuid_of

METADATA = "metadata.version"
BROKER_CONFIGS = int(ConfigResourceType.BROKER)


def registration(controller: int, incarnation: int = 0, highest: int = 30) -> r.RegisterController:
    supported = SUPPORTED | {METADATA_VERSION: VersionRange(7, highest)}
    return r.RegisterController(
        controller,
        uuid_of(("controller", controller, incarnation)),
        (Endpoint("CONTROLLER", f"controller-{controller}", 9093),),
        tuple(r.ControllerFeature(*each) for each in supported.items()),
    )


def register(cluster: Cluster, controller: int, **options: int) -> E:
    error: E = cluster.ask(registration(controller, **options)).error
    return error


def update(cluster: Cluster, name: str = METADATA, level: int = 30) -> str:
    """Why it is refused, "" if it is done."""
    answer = cluster.ask(r.UpdateFeatures((r.FeatureUpdate(name, level),)))
    return str(answer.message)


def migrated(controller: int) -> RegisterControllerRecord:
    """What a controller of the release before wrote during a migration."""
    return RegisterControllerRecord(
        controller_id=controller,
        incarnation_id=uuid_of(("old", controller)),
        features=(RegisteredFeature(METADATA, 1, 21),),
    )


def write(cluster: Cluster, *records: Any) -> None:
    cluster.committed.apply_batch(records, cluster.offset, cluster.epoch, cluster.now_ms)
    cluster.offset += len(records)
    cluster.activate()


def after_migration() -> Cluster:
    """metadata.version 21, and registrations of 1, 2, 3 and of 9, which was removed."""
    cluster = Cluster()
    write(
        cluster,
        FeatureLevelRecord(METADATA, 21),
        *map(migrated, (1, 2, 3, 9)),
        ZkMigrationStateRecord(int(ZkMigrationState.POST_MIGRATION)),
    )
    # 1 asks; 2 and 3 vote too; 7 is an observer, and so is a broker.
    cluster.controller.controllers_are(CurrentControllers(frozenset({2, 3}), frozenset({7, 101})))
    return cluster


def test_a_registration_is_written_once_for_each_start() -> None:
    cluster = Cluster(1)
    assert register(cluster, 2) is E.NONE
    assert [type(record) for record in cluster.last] == [RegisterControllerRecord]
    assert register(cluster, 2) is E.NONE
    assert cluster.last == ()
    assert register(cluster, 2, incarnation=1) is E.NONE
    assert len(cluster.last) == 1


@pytest.mark.parametrize("level", [None, 14])
def test_without_registrations_nothing_is_written(level: int | None) -> None:
    cluster = Cluster(1, level=level) if level else Cluster()
    offset = cluster.offset
    assert register(cluster, 2) is E.UNSUPPORTED_VERSION
    assert cluster.offset == offset


@pytest.mark.parametrize(
    "wrong",
    [
        {"controller_id": -1},
        {"incarnation_id": "A" * 22},
        {"endpoints": (Endpoint("CONTROLLER", "h", 0),)},
        {"features": (r.ControllerFeature("a", VersionRange(2, 1)),)},
        {"features": (r.ControllerFeature("a", VersionRange(0, 1)),) * 2},
        {"security_protocols": (0, 1)},
    ],
    ids=str,
)
def test_malformed_registrations_are_refused(wrong: dict[str, Any]) -> None:
    cluster = Cluster(1)
    assert cluster.ask(replace(registration(2), **wrong)).error is E.INVALID_REGISTRATION


def test_after_a_migration_the_levels_rise_once_all_voters_registered() -> None:
    cluster = after_migration()
    assert "Controller 2 only supports versions 1-21: start it with this release" in update(cluster)
    assert "Controller 2 does not support this feature." in update(cluster, "group.version", 1)
    register(cluster, 2)
    assert "Controller 3 only supports versions 1-21" in update(cluster)
    register(cluster, 3)
    assert update(cluster) == "", "1 is the active one, and 9 has left: its registration is stale"
    assert cluster.committed.features.metadata_version == 30
    assert update(cluster, "group.version", 1) == ""


def test_a_voter_that_has_not_registered_limits_the_levels() -> None:
    cluster = after_migration()
    register(cluster, 2)
    register(cluster, 3)
    cluster.controller.controllers_are(CurrentControllers(frozenset({2, 3, 4})))
    refused = update(cluster, level=25)
    assert "Controller 4 is a voter but has not registered" in refused
    assert "start it with a release that registers, or remove it from the voters" in refused


def test_an_observer_counts_while_it_fetches() -> None:
    cluster = after_migration()
    for controller in (2, 3):
        register(cluster, controller)
    register(cluster, 7, highest=25)
    assert "Controller 7 only supports versions 7-25" in update(cluster)
    cluster.controller.controllers_are(CurrentControllers(frozenset({2, 3})))
    assert update(cluster) == ""


def test_the_first_registration_is_of_the_first_level() -> None:
    cluster = Cluster(level=29)
    cluster.register(1)
    assert cluster.committed.features.metadata_version == 29
    assert isinstance(cluster.last[-1], RegisterBrokerRecord)
    assert (cluster.last[-1].version, cluster.last[-1].cordoned_log_dirs) == (3, None)


@pytest.mark.parametrize("state", [ZkMigrationState.PRE_MIGRATION, ZkMigrationState.MIGRATION])
def test_metadata_version_stays_during_a_migration(state: ZkMigrationState) -> None:
    cluster = after_migration()
    write(cluster, ZkMigrationStateRecord(int(state)))
    for controller in (2, 3):
        register(cluster, controller)
    assert "while a ZK migration is in progress" in update(cluster)


def test_the_first_metadata_version_may_be_chosen_by_an_update() -> None:
    cluster = Cluster()
    assert update(cluster, level=25) == ""
    assert cluster.last == (FeatureLevelRecord(METADATA, 25),)
    assert cluster.committed.features.metadata_version == 25


def test_the_first_active_controller_writes_what_was_formatted() -> None:
    formatted = (
        FeatureLevelRecord(METADATA, 25),
        FeatureLevelRecord("group.version", 1),
        UserScramCredentialRecord(name="alice", mechanism=1, iterations=4096),
    )
    cluster = Cluster(formatted_with=formatted)
    assert cluster.last == formatted
    assert cluster.committed.features.levels == {METADATA: 25, "group.version": 1}
    cluster.activate()
    assert cluster.last == (), "only into a log without metadata"


def test_eligible_leader_replicas_from_the_start_fix_min_insync_replicas() -> None:
    formatted = (FeatureLevelRecord(METADATA, 26), FeatureLevelRecord(ELR_VERSION, 1))
    cluster = Cluster(formatted_with=formatted)
    assert cluster.last == (
        *formatted,
        ConfigRecord(BROKER_CONFIGS, "", "min.insync.replicas", "1", version=0),
    )
    assert cluster.committed.configs.of(BROKER_CONFIGS, "") == {"min.insync.replicas": "1"}


def test_a_later_active_controller_does_not_fix_min_insync_replicas_again() -> None:
    cluster = Cluster(elr=True)
    cluster.register(1)
    assert cluster.committed.features.levels[ELR_VERSION] == 1
    cluster.activate()
    assert cluster.last == ()


# --- application.version --------------------------------------------------------------------------


def finalized(cluster: Cluster, level: int, kind: int = 1) -> tuple[E, str]:
    update = r.FeatureUpdate(APPLICATION_VERSION, level, kind)
    response = cluster.ask(r.UpdateFeatures((update,)))
    return response.error, response.message


def test_application_version_goes_up_and_down() -> None:
    assert "depends on metadata.version level 15" in finalized(Cluster(), 1)[1], "it has no level"
    cluster = Cluster(1)
    assert finalized(cluster, 1) == (E.NONE, "")
    assert cluster.last == (FeatureLevelRecord(APPLICATION_VERSION, 1, version=0),)
    assert cluster.committed.features.application_version == 1
    assert finalized(cluster, 0)[0] is E.INVALID_UPDATE_VERSION
    assert finalized(cluster, 0, 2) == (E.NONE, "")
    assert cluster.committed.features.application_version == 0


def test_application_version_needs_registered_voters() -> None:
    cluster = Cluster(1, level=14)
    assert "depends on metadata.version level 15" in finalized(cluster, 1)[1]
    cluster = Cluster(1)
    cluster.controller.controllers_are(CurrentControllers(frozenset({8}), frozenset()))
    assert "has not registered" in finalized(cluster, 1)[1]
    new = registration(8)
    old = replace(new, features=tuple(f for f in new.features if f.name != APPLICATION_VERSION))
    assert cluster.ask(old).error is E.NONE
    assert "Controller 8 does not support this feature" in finalized(cluster, 1)[1]
    assert register(cluster, 8, incarnation=1) is E.NONE
    assert finalized(cluster, 1) == (E.NONE, "")


def test_application_version_excludes_kafkas_nodes() -> None:
    cluster = Cluster(1)
    cluster._commit(cluster.controller.admit_kafka_nodes(0, cluster.offset))
    assert "Kafka's nodes use this quorum" in finalized(cluster, 1)[1]
    assert finalized(cluster, 0, 2) == (E.NONE, "")
