"""The ACLs that the operator creates for brokers."""

from __future__ import annotations

from dataclasses import replace

from quorate.common.identifiers import INTERNAL_TOPICS
from quorate.metadata.authorizer import Operation, ResourceType
from quorate_operator.objects.broker_rights import ASKED, lacking, rights

ONE, OTHER = "User:CN=broker-0", "User:CN=client-kafka-101"


def test_kafkas_brokers_may_create_internal_topics_and_no_others() -> None:
    found = rights(ONE, is_kafka=True)
    topics = {acl.resource_name for acl in found if acl.resource_type == ResourceType.TOPIC}
    assert topics == set(INTERNAL_TOPICS)
    assert {acl.principal for acl in found} == {ONE}
    assert [acl.operation for acl in rights(ONE, is_kafka=False)] == [Operation.CLUSTER_ACTION]


def test_a_broker_that_has_the_cluster_action_only_lacks_the_rest() -> None:
    old = rights(ONE, is_kafka=False)
    assert lacking((ONE, OTHER), old, is_kafka=False) == (OTHER,)
    assert lacking((ONE, OTHER), old, is_kafka=True) == (ONE, OTHER)
    both = (*rights(ONE, is_kafka=True), *rights(OTHER, is_kafka=True))
    assert lacking((ONE, OTHER), both, is_kafka=True) == ()


def test_a_right_on_other_terms_does_not_count() -> None:
    *most, last = rights(ONE, is_kafka=True)
    for changed in ({"host": "10.0.0.1"}, {"principal": OTHER}, {"permission_type": 2}):
        assert lacking((ONE,), (*most, replace(last, **changed)), is_kafka=True) == (ONE,)


def test_all_rights_are_among_those_that_are_asked_for() -> None:
    for acl in rights(ONE, is_kafka=True):
        assert any(
            acl.resource_type == each.resource_type and acl.operation == each.operation
            for each in ASKED
        )
