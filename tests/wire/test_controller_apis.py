"""The APIs that Kafka 4.3's own controllers serve, read from its jar, against those served here."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

import pytest
from quorate.bridge.requests.apis import KAFKA_APIS

from tests.wire.controller_apis import DIFFERENCES

SOURCE: Final = Path(__file__).with_name("ListControllerApis.java")


class Api(NamedTuple):
    name: str
    versions: tuple[int, int]
    is_forwarded: bool


@pytest.fixture(scope="module")
def kafkas(kafka_tool: Callable[..., str]) -> dict[int, Api]:
    """What a controller of Kafka serves, by key."""
    found = {}
    for line in kafka_tool(SOURCE).splitlines():
        key, name, low, high, forwarded = line.split()
        found[int(key)] = Api(name, (int(low), int(high)), forwarded == "true")
    assert len(found) > 40
    return found


def test_every_api_of_kafkas_controllers_is_served_in_every_version(
    kafkas: dict[int, Api],
) -> None:
    assert kafkas.keys() == KAFKA_APIS.keys()
    served = {
        api.name: KAFKA_APIS[key].versions
        for key, api in kafkas.items()
        if KAFKA_APIS[key].versions != api.versions
    }
    assert served == {}


def test_nothing_else_is_served_and_names_are_kafkas(kafkas: dict[int, Api]) -> None:
    assert {key: api.name for key, api in KAFKA_APIS.items()} == {
        key: api.name for key, api in kafkas.items()
    }


def test_what_brokers_forward_may_be_in_an_envelope(kafkas: dict[int, Api]) -> None:
    # Brokers send AllocateProducerIds themselves, never for a client.
    forwarded = {api.name for api in kafkas.values() if api.is_forwarded}
    served = {api.name for api in KAFKA_APIS.values() if api.forwarded}
    assert served == forwarded - {"AllocateProducerIds"}


def test_differences_are_those_of_apis_that_exist(kafkas: dict[int, Api]) -> None:
    assert DIFFERENCES.keys() <= {api.name for api in kafkas.values()}
