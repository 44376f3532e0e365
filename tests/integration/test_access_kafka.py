"""Every request at the listener for Kafka's brokers, sent by every kind of caller and in envelopes,
is answered by a real controller as docs/access.md says.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from quorate.bridge.messages import schemas as s
from quorate.bridge.requests.apis import KAFKA_APIS, KafkaApi
from quorate.common.error_codes import ErrorCode
from quorate.rpc.errors import BadMessageError

from tests.certificates import needs_openssl
from tests.integration.support import assert_clean, until
from tests.integration.test_access import DENIED, Lab
from tests.integration.test_bridge import Asker
from tests.processes import listens
from tests.tools import access_kafka, callers

pytestmark = needs_openssl

ENCRYPTED = [column for column in callers.COLUMNS if column.title != "plaintext"]


def errors_in(answer: Any) -> Iterator[int]:
    """Every error code of a response, at any depth."""
    for name in getattr(answer, "__dataclass_fields__", ()):
        value = getattr(answer, name)
        if name == "error_code":
            yield int(value)
        elif isinstance(value, tuple):
            for each in value:
                yield from errors_in(each)


def is_denied(answer: Any) -> bool:
    return any(error in DENIED for error in errors_in(answer))


def asker_of(lab: Lab, title: str) -> Asker:
    if title == "plaintext":
        return Asker(lab.kafka)
    context = ssl.create_default_context(cafile=lab.authority[0])
    if title in lab.files:
        context.load_cert_chain(*lab.files[title])
    return Asker(lab.kafka, context)


def envelope(api_key: int, body: Any, principal: str) -> Any:
    kind, _, user = principal.partition(":")
    who = s.principal_type()(type_=kind, name=user, token_authenticated=False)
    inner = s.write_header(api_key, s.SERVED[api_key][1], 9, "client") + s.write(body)
    return s.request_type(s.ENVELOPE, 0)(
        request_data=inner,
        request_principal=b"\0\0" + s.write(who),
        client_host_address=bytes((10, 0, 0, 7)),
    )


def found_for(asker: Asker, node: int, apis: Mapping[int, KafkaApi]) -> dict[str, bool]:
    """Which of the APIs this connection may ask."""
    bodies = access_kafka.bodies(node)
    bodies[s.ENVELOPE] = envelope(
        s.LIST_PARTITION_REASSIGNMENTS, bodies[s.LIST_PARTITION_REASSIGNMENTS], "User:nobody"
    )
    found = {}
    for key, api in apis.items():
        answer = asker.ask(key, bodies[key])
        # The envelope's own error: what is inside has another.
        found[api.name] = not is_denied(answer)
    return found


def forwarded_for(asker: Asker, principal: str) -> dict[str, bool]:
    """The same of what is in envelopes that name a client."""
    bodies = access_kafka.bodies(0)
    found = {}
    for key, api in KAFKA_APIS.items():
        if not api.forwarded:
            continue
        outer = asker.ask(s.ENVELOPE, envelope(key, bodies[key], principal))
        assert int(outer.error_code) == ErrorCode.NONE, api.name
        _, inner = s.read_response(key, s.SERVED[key][1], bytes(outer.response_data))
        found[api.name] = not is_denied(inner)
    return found


def page_column(title: str) -> dict[str, bool]:
    number = access_kafka.TITLES.index(title)
    decided = ((api.name, row[number]) for api, row in access_kafka.rows(callers.authorizer()))
    return {name: allowed for name, allowed in decided if allowed is not None}


@pytest.fixture
def lab(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Lab]:
    made = Lab(tmp_path, kafka=request.param)
    try:
        until("it listens", lambda: listens(made.kafka))
        yield made
        assert made.node.stop() == 0
        assert_clean(made.node.said())
    finally:
        made.node.kill()


@pytest.mark.parametrize("lab", ["SSL"], indirect=True)
async def test_a_controller_allows_what_the_page_says(lab: Lab) -> None:
    await lab.allow_broker()
    for column in ENCRYPTED:
        if column.caller is None:
            with pytest.raises((OSError, BadMessageError)):
                asker_of(lab, column.title).ask(
                    s.API_VERSIONS, access_kafka.bodies(0)[s.API_VERSIONS]
                )
            continue
        asker = asker_of(lab, column.title)
        assert found_for(asker, column.node, KAFKA_APIS) == page_column(column.title), column.title
        asker.close()
    broker = asker_of(lab, "broker")
    for title, principal in access_kafka.FORWARDED_FOR.items():
        assert forwarded_for(broker, principal) == page_column(title), title
    broker.close()


@pytest.mark.parametrize("lab", ["PLAINTEXT"], indirect=True)
async def test_without_tls_nothing_is_allowed_but_to_ask_for_versions(lab: Lab) -> None:
    await lab.allow_broker()
    asker = asker_of(lab, "plaintext")
    # Without certificates, the APIs for voters cannot be served: they end the connection.
    served = {key: api for key, api in KAFKA_APIS.items() if key not in s.VOTERS_APIS}
    wanted = page_column("plaintext")
    assert {wanted.pop(KAFKA_APIS[key].name) for key in s.VOTERS_APIS} == {False}
    assert found_for(asker, callers.BROKER, served) == wanted
    asker.close()
