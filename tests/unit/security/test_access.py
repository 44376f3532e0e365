"""docs/access.md says what the authorizer decides now."""

from __future__ import annotations

from quorate.bridge.bridge import BARE, REQUEST_METHODS
from quorate.bridge.requests.apis import KAFKA_APIS
from quorate.bridge.requests.quorum_requests import QUORUM_METHODS

from tests.tools import access, access_kafka, access_web
from tests.tools.callers import COLUMNS, authorizer


def test_the_page_is_what_the_gate_decides() -> None:
    assert access.PAGE.wanted() == access.PAGE.path.read_text(), "poe access"


def test_nobody_is_allowed_what_its_acls_do_not_say() -> None:
    """The columns differ, so that an authorizer that lets everybody in would be seen."""
    titles = [column.title for column in COLUMNS]
    allowed = {
        title: {rpc.name for rpc, decided in access.rows() if decided[number]}
        for number, title in enumerate(titles)
    }
    for title in ("no certificate", "client", "plaintext"):
        assert not allowed[title]
    assert allowed["broker"] < allowed["controller"]
    assert "Vote" not in allowed["broker"] | allowed["administrator"]
    assert "CreateAcls" not in allowed["broker"]
    assert allowed["administrator"]


def test_kafkas_requests_are_decided_as_the_method_of_the_table() -> None:
    """The authorizer is asked with the method of what a body becomes (`bridge.Bridge`)."""
    for key in BARE.keys() - access_kafka.TOKENS:
        api = KAFKA_APIS[key]
        value = access_kafka.value_of(api, node=7)
        assert (REQUEST_METHODS | QUORUM_METHODS)[type(value)] == api.method, api


def test_at_the_kafka_listener_nobody_is_allowed_what_its_acls_do_not_say() -> None:
    page = access_kafka.rows(authorizer())
    # Everybody who is authenticated may have tokens: `test_access_matrix` has those of others.
    own = {KAFKA_APIS[key].name for key in access_kafka.TOKENS}
    free = {KAFKA_APIS[key].name for key in access_kafka.OPEN}
    allowed = {
        title: {api.name for api, decided in page if decided[number]}
        for number, title in enumerate(access_kafka.TITLES)
    }
    assert not allowed["no certificate"]
    assert allowed["plaintext"] == free
    assert allowed["client"] == free | own
    assert allowed["broker for client"] == own - {"DescribeDelegationToken"}
    assert not allowed["broker for administrator"]
    assert "Envelope" in allowed["broker"] < allowed["controller"]
    assert allowed["broker"].isdisjoint({"CreateAcls", "CreateTopics", "UnregisterBroker"})
    assert "Fetch" not in allowed["administrator"]


def test_the_console_lets_in_who_has_the_token_and_asks_its_own_page() -> None:
    titles, found = access_web.console_rows()
    allowed = {
        title: [request for request, decided in found if decided[number]]
        for number, title in enumerate(titles)
    }
    assert allowed.pop("token in the cookie") == list(access_web.REQUESTS)
    assert allowed.pop("token in the URL") == ["the page `/`"]
    assert not any(allowed.values())
