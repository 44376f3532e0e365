"""How a controller says in the log whether it has the setting of the migration, once a life.

It registers at the active controller (RegisterControllerRecord) as soon as a migration is under
way, and again after it was restarted; the driver waits until all voters have said that they are
ready.

Source: KIP-866, "Migration Trigger"; KIP-919, "Controller Registration".
"""

from __future__ import annotations

import asyncio
import logging

from quorate.controller.companion import Parts
from quorate.log.meta_properties import random_uuid
from quorate.records.metadata import (
    RegisterControllerRecord,
    RegisteredEndpoint,
    RegisteredFeature,
    ZkMigrationState,
    encode,
)
from quorate.rpc.client import QuorumClient
from quorate.rpc.errors import RpcError

LOGGER = logging.getLogger(__name__)

LEVEL = 21
"""3.9-IV0, the last metadata.version that brokers in ZooKeeper mode know."""
APPEND_TIMEOUT_MS = 30_000
REQUEST_TIMEOUT_MS = 5_000
REGISTER_PAUSE_S = 1.0

UNDER_WAY = (ZkMigrationState.PRE_MIGRATION, ZkMigrationState.MIGRATION)


class Registration:
    """One controller's; `run` until it is cancelled."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._incarnation = random_uuid()

    async def run(self) -> None:
        while True:
            await asyncio.sleep(REGISTER_PAUSE_S)
            if not self._is_wanted():
                continue
            try:
                await self._register()
            except RpcError as error:
                LOGGER.warning("migration: not registered yet: %s", error)

    def _is_wanted(self) -> bool:
        image = self._parts.loader.image
        if image.features.zk_migration not in UNDER_WAY or image.in_transaction:
            return False
        registered = image.cluster.controllers.get(self._parts.config.node_id)
        if registered is not None and registered.incarnation_id == self._incarnation:
            return False
        return self._parts.raft.node.current_leader.id is not None

    async def _register(self) -> None:
        config, metadata = self._parts.config, self._parts.metadata
        value = encode(self._record(), 0)
        if metadata.is_active:
            await metadata.append_records([value], APPEND_TIMEOUT_MS)
            return
        addresses = [f"{e.host}:{e.port}" for e in (*config.bootstrap_endpoints, *config.endpoints)]
        async with QuorumClient(
            addresses, tls=self._parts.tls, request_timeout_ms=REQUEST_TIMEOUT_MS
        ) as client:
            await client.append([(None, value)])

    def _record(self) -> RegisterControllerRecord:
        config = self._parts.config
        return RegisterControllerRecord(
            controller_id=config.node_id,
            incarnation_id=self._incarnation,
            zk_migration_ready=config.migration.enabled,
            end_points=tuple(
                RegisteredEndpoint(
                    each.name, each.host, each.port, int(config.is_encrypted(each.name))
                )
                for each in config.endpoints
            ),
            features=(RegisteredFeature("metadata.version", 1, LEVEL),),
        )
