"""Controllers: registration (KIP-919), and those whose supported levels limit feature changes.

A registration stays in the log forever: records that remove one exist only from metadata.version
4.4 on. The controllers that currently vote or fetch therefore determine which registrations are
current, and which belong to controllers that left the quorum.

Source: KIP-919, "Controller Registration"; Kafka's ClusterControlManager.
"""

from __future__ import annotations

from collections.abc import Iterator

from quorate.common.error_codes import ErrorCode
from quorate.common.identifiers import NODE_ID_MAX, ZERO_UUID, is_uuid
from quorate.metadata.image.cluster import Controller
from quorate.metadata.managers.broker_manager import malformed_node, registered_endpoints
from quorate.metadata.managers.controller_context import ControllerContext, RefusedError
from quorate.metadata.metadata_version import CONTROLLER_REGISTRATION, release_of
from quorate.metadata.requests import RegisterController, RegisterControllerResponse
from quorate.records.metadata import MetadataRecord, RegisterControllerRecord, RegisteredFeature


def register_controller(
    context: ControllerContext, request: RegisterController
) -> tuple[list[MetadataRecord], RegisterControllerResponse]:
    """Register a controller. An identical registration produces no record."""
    if context.image.features.metadata_version < CONTROLLER_REGISTRATION:
        raise RefusedError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"metadata.version is below {release_of(CONTROLLER_REGISTRATION)}, which introduced "
            "controller registration.",
        )
    if fault := _malformed(request):
        raise RefusedError(ErrorCode.INVALID_REGISTRATION, fault)
    record = RegisterControllerRecord(
        controller_id=request.controller_id,
        incarnation_id=request.incarnation_id,
        zk_migration_ready=request.zk_migration_ready,
        end_points=registered_endpoints(request),
        features=tuple(
            RegisteredFeature(feature.name, feature.supported.min, feature.supported.max)
            for feature in sorted(request.features, key=lambda feature: feature.name)
        ),
        version=0,
    )
    if context.image.cluster.controllers.get(request.controller_id) == record:
        return [], RegisterControllerResponse()
    return [record], RegisterControllerResponse()


def _malformed(request: RegisterController) -> str:
    if not 0 <= request.controller_id <= NODE_ID_MAX:
        return f"Invalid controller id {request.controller_id}"
    if request.incarnation_id == ZERO_UUID or not is_uuid(request.incarnation_id):
        return "The incarnation id is not a UUID."
    if len({feature.name for feature in request.features}) < len(request.features):
        return "A feature is named twice."
    return malformed_node(request)


def current_controllers(context: ControllerContext) -> Iterator[tuple[int, Controller | None]]:
    """The controllers, other than this one, that must support a feature change.

    These are all voters, with None for one that has not registered, and all registered controllers
    that fetch. If metadata.version does not support registration, unregistered voters are left out.
    Without known `CurrentControllers`, they are all registered controllers.
    """
    registered = context.image.cluster.controllers
    current = context.controllers
    if current is None:
        yield from sorted(registered.items())
        return
    can_register = context.image.features.metadata_version >= CONTROLLER_REGISTRATION
    for controller_id in sorted(current.voters | (current.fetching & registered.keys())):
        found = registered.get(controller_id)
        if found is not None or can_register:
            yield controller_id, found
