"""Registers a controller with an active controller that speaks Kafka's protocol only: Kafka's.

Source: KIP-919, "Controller Registration".
"""

from __future__ import annotations

from quorate.bridge.messages import schemas as s
from quorate.bridge.messages.peer_messages import error_of
from quorate.bridge.peers.client import KafkaClient, KafkaClientError
from quorate.common.endpoints import Endpoint
from quorate.common.error_codes import ErrorCode
from quorate.metadata.requests import RegisterController, RegisterControllerResponse
from quorate.rpc.tls import TlsConfig


async def register_over_kafka(
    endpoint: Endpoint, tls: TlsConfig | None, request: RegisterController, timeout_s: float
) -> RegisterControllerResponse:
    """The response to a registration; NETWORK_EXCEPTION if there is none."""
    module = s.request_module(s.CONTROLLER_REGISTRATION, 0)
    listeners = tuple(
        module.Listener(name=e.name, host=e.host, port=e.port, security_protocol=protocol)
        for e, protocol in zip(request.endpoints, request.security_protocols, strict=True)
    )
    features = tuple(
        module.Feature(
            name=each.name,
            min_supported_version=each.supported.min,
            max_supported_version=each.supported.max,
        )
        for each in request.features
    )
    try:
        async with KafkaClient((endpoint.host, endpoint.port), tls, timeout_s) as client:
            found = await client.ask(
                s.CONTROLLER_REGISTRATION,
                0,
                controller_id=request.controller_id,
                incarnation_id=s.uuid_field(request.incarnation_id),
                zk_migration_ready=request.zk_migration_ready,
                listeners=listeners,
                features=features,
            )
    except KafkaClientError as error:
        return RegisterControllerResponse(error=ErrorCode.NETWORK_EXCEPTION, message=str(error))
    return RegisterControllerResponse(
        error=error_of(found.error_code), message=found.error_message or ""
    )
