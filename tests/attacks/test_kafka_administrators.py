"""Callers without rights, and hostile requests, at the APIs for administrators that connect to a
controller over Kafka's protocol.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from quorate.bridge.messages import schemas as s
from quorate.common.error_codes import ErrorCode
from quorate.controller.formatting import random_uuid
from quorate.metadata.acls import CLUSTER_NAME
from quorate.metadata.authorizer import Operation, ResourceType

from tests.attacks.kafka_listener import AUTHORIZER, controller
from tests.certificates import needs_openssl
from tests.integration.support import CLUSTER, until

pytestmark = needs_openssl

REFUSED = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
ALTER = (ResourceType.CLUSTER, CLUSTER_NAME, Operation.ALTER)


def description() -> Any:
    return s.request_type(s.DESCRIBE_CLUSTER, 2)(
        include_cluster_authorized_operations=True, endpoint_type=2, include_fenced_brokers=False
    )


def configs(count: int) -> Any:
    module = s.request_module(s.DESCRIBE_CONFIGS, 4)
    return module.DescribeConfigsRequest(
        resources=tuple(
            module.DescribeConfigsResource(
                resource_type=32, resource_name=f"group-{index}", configuration_keys=None
            )
            for index in range(count)
        ),
        include_synonyms=True,
    )


def registration(controller_id: int) -> Any:
    module = s.request_module(s.CONTROLLER_REGISTRATION, 0)
    return module.ControllerRegistrationRequest(
        controller_id=controller_id,
        incarnation_id=s.uuid_field(random_uuid()),
        zk_migration_ready=False,
        listeners=(module.Listener(name="KAFKA", host="evil", port=9, security_protocol=0),),
        features=(),
    )


def removal() -> Any:
    return s.request_type(s.REMOVE_RAFT_VOTER, 0)(
        cluster_id=CLUSTER, voter_id=1, voter_directory_id=s.uuid_field(random_uuid())
    )


def test_a_stranger_learns_and_changes_nothing(tmp_path: Path) -> None:
    with controller(tmp_path, "SSL", **AUTHORIZER) as lab:
        # Who may alter the cluster may describe its controllers, but is not one of them.
        lab.allow("User:CN=broker", ALTER)
        broker, stranger = lab.asker("broker"), lab.asker("stranger")
        until(
            "the ACL holds",
            lambda: int(broker.ask(s.DESCRIBE_CLUSTER, description()).error_code) == 0,
        )
        (only,) = broker.ask(s.DESCRIBE_CLUSTER, description()).brokers
        assert (only.broker_id, only.port) == (1, lab.port)
        assert int(broker.ask(s.CONTROLLER_REGISTRATION, registration(2000)).error_code) == REFUSED
        for key, body in (
            (s.DESCRIBE_CLUSTER, description()),
            (s.REMOVE_RAFT_VOTER, removal()),
            (s.CONTROLLER_REGISTRATION, registration(1)),
            (s.CONTROLLER_REGISTRATION, registration(2000)),
            (s.DESCRIBE_USER_SCRAM_CREDENTIALS, scram()),
        ):
            answer = stranger.ask(key, body)
            assert int(answer.error_code) == REFUSED, key
        refused = stranger.ask(s.DESCRIBE_CLUSTER, description())
        assert (refused.brokers, refused.cluster_id) == ((), "")
        answer = stranger.ask(s.DESCRIBE_CONFIGS, configs(1))
        assert [(int(e.error_code), e.configs) for e in answer.results] == [
            (ErrorCode.GROUP_AUTHORIZATION_FAILED, ())
        ]
        # The forged registrations changed nothing.
        (only,) = broker.ask(s.DESCRIBE_CLUSTER, description()).brokers
        assert (only.broker_id, only.port) == (1, lab.port)
        broker.close()
        stranger.close()


def scram() -> Any:
    return s.request_type(s.DESCRIBE_USER_SCRAM_CREDENTIALS, 0)(users=None)


def test_a_description_of_too_many_resources_closes_the_connection(tmp_path: Path) -> None:
    with controller(tmp_path) as lab:
        asker = lab.asker()
        assert len(asker.ask(s.DESCRIBE_CONFIGS, configs(s.DESCRIBED_ITEMS_MAX)).results) == 1_000
        body = configs(s.DESCRIBED_ITEMS_MAX + 1)
        data = s.write_header(s.DESCRIBE_CONFIGS, 4, 5, "x") + s.write(body)
        asker.connection.sendall(len(data).to_bytes(4, "big") + data)
        assert asker.stream.read(1) == b""
        lab.node.wait_said("more than 1000 items")
        asker.close()
