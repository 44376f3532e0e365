"""Strangers at a Kafka listener over which controllers talk to each other.

Their Vote, BeginQuorumEpoch, EndQuorumEpoch, UpdateRaftVoter and Fetch as a voter change nothing,
as over gRPC: a real controller with an authorizer, TLS and `quorate.controller.principals`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from quorate.bridge.messages import schemas as s
from quorate.bridge.messages.peer_messages import API_KEYS, write_request
from quorate.common.endpoints import Endpoint
from quorate.common.error_codes import ErrorCode
from quorate.raft import messages as m
from quorate.raft.types import ReplicaKey, Voter
from quorate.rpc.errors import BadMessageError

from tests.attacks.kafka_listener import ACTION, AUTHORIZER, BROKER, Lab, controller
from tests.certificates import needs_openssl
from tests.integration.support import CLUSTER, HOST, OTHER_CLUSTER, until
from tests.integration.test_bridge import Asker

pytestmark = needs_openssl

REFUSED = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
SERVED: dict[str, object] = {"quorate.peer.protocol": "kafka"}
PRINCIPALS = {"quorate.controller.principals": "User:CN=node-1"}
FAR = 1_000
"""An epoch that the leader would step down for."""


def requests(lab: Lab, sender: int = 2000, cluster: str = CLUSTER) -> dict[str, Any]:
    """What a voter sends, in the name of `sender`, to depose the leader or to replace its entry."""
    key, receiver = ReplicaKey(sender, "B" * 21 + "A"), ReplicaKey(1, lab.node.directory_id)
    voter = Voter(key, (Endpoint("KAFKA", HOST, 9),))
    return {
        "vote": m.VoteRequest(cluster, FAR, key, receiver, FAR - 1, 1 << 40),
        "pre-vote": m.VoteRequest(cluster, FAR, key, receiver, FAR - 1, 1 << 40, True),
        "begin": m.BeginQuorumEpochRequest(cluster, FAR, key, voter.endpoints, receiver),
        "end": m.EndQuorumEpochRequest(cluster, FAR, key, (key,), voter.endpoints),
        "update": m.UpdateVoterRequest(cluster, 1, voter),
    }


def error_of(asker: Asker, request: Any) -> ErrorCode:
    """The first error of the response, at the top level or in the partition."""
    key = API_KEYS[type(request)]
    answer = asker.ask(key, write_request(request, s.SERVED[key][1]))
    error = ErrorCode(int(answer.error_code))
    if error is ErrorCode.NONE and getattr(answer, "topics", ()):
        part = answer.topics[0].partitions[0]
        assert not getattr(part, "vote_granted", False)
        return ErrorCode(int(part.error_code))
    return error


def still_leads(lab: Lab) -> bool:
    return "leads epoch 1" in lab.node.said() and "resigned" not in lab.node.said()


@pytest.mark.parametrize("name", ["alice", "broker", "stranger"])
def test_only_controllers_vote(tmp_path: Path, name: str) -> None:
    with controller(tmp_path, "SSL", **AUTHORIZER, **SERVED, **PRINCIPALS) as lab:
        lab.allow(f"User:CN={name}", ACTION)
        if name == "alice":  # its certificate names no node
            lab.files[name] = lab.files["admin"]
        asker = lab.asker(name)
        for sender in (1, BROKER, 2000):
            for what, request in requests(lab, sender).items():
                assert error_of(asker, request) is REFUSED, (what, sender)
            fetched = asker.fetch(replica=sender) if sender == 1 else None
            assert fetched is None or int(fetched.error_code) == REFUSED
        asker.close()
        assert still_leads(lab)


def test_without_the_right_nobody_votes_in_clear(tmp_path: Path) -> None:
    in_clear = {"listener.security.protocol.map": "CONTROLLER:PLAINTEXT,KAFKA:PLAINTEXT"}
    with controller(tmp_path, **in_clear, **AUTHORIZER, **SERVED) as lab:
        asker = lab.asker()
        for what, request in requests(lab).items():
            assert error_of(asker, request) is REFUSED, what
        assert int(asker.fetch(replica=1).error_code) == REFUSED
        asker.close()
        assert still_leads(lab)


def test_another_cluster_or_receiver_is_rejected(tmp_path: Path) -> None:
    with controller(tmp_path, "SSL", **SERVED) as lab:
        asker = lab.asker("stranger")
        for what, request in requests(lab, cluster=OTHER_CLUSTER).items():
            assert error_of(asker, request) is ErrorCode.INCONSISTENT_CLUSTER_ID, what
        wrong = ErrorCode.INVALID_VOTER_KEY
        for receiver in (ReplicaKey(7, lab.node.directory_id), ReplicaKey(1, "C" * 21 + "A")):
            key = ReplicaKey(2000, "B" * 21 + "A")
            vote = m.VoteRequest(CLUSTER, FAR, key, receiver, FAR - 1, 1 << 40)
            assert error_of(asker, vote) is wrong
            begin = m.BeginQuorumEpochRequest(CLUSTER, FAR, key, (), receiver)
            assert error_of(asker, begin) is wrong
        # The leader hears a majority, itself, and ignores the epochs of others.
        vote = requests(lab)["vote"]
        assert error_of(asker, vote) is ErrorCode.NONE
        asker.close()
        assert still_leads(lab)


def test_without_the_setting_voters_are_not_served(tmp_path: Path) -> None:
    with controller(tmp_path) as lab:
        asker = lab.asker()
        kind = s.request_type(s.API_VERSIONS, 4)
        body = s.make(kind, client_software_name="x", client_software_version="1")
        served = {each.api_key for each in asker.ask(s.API_VERSIONS, body).api_keys}
        assert served == s.SERVED.keys() - s.VOTERS_APIS
        assert int(asker.fetch(replica=1).error_code) == ErrorCode.INVALID_REQUEST
        asker.close()
        for what, request in requests(lab).items():
            asker = lab.asker()
            with pytest.raises((OSError, BadMessageError)):
                error_of(asker, request)
            asker.close()
            assert still_leads(lab), what
        said = "which is not served here"
        until("it says so", lambda: said in lab.node.said())


def test_a_controller_speaks_in_its_own_name_only(tmp_path: Path) -> None:
    both = {"quorate.controller.principals": "User:CN=node-1;User:CN=stranger"}
    with controller(tmp_path, "SSL", **AUTHORIZER, **SERVED, **both) as lab:
        lab.allow("User:CN=stranger", ACTION)
        asker = lab.asker("stranger")
        for what, request in requests(lab, BROKER).items():
            assert error_of(asker, request) is REFUSED, what
        assert int(asker.fetch(replica=1).error_code) == REFUSED
        assert error_of(asker, requests(lab)["pre-vote"]) is not REFUSED
        asker.close()
        assert still_leads(lab)


def test_a_principal_speaks_for_the_node_that_the_settings_name(tmp_path: Path) -> None:
    both = {"quorate.controller.principals": "User:CN=node-1;7@User:CN=admin"}
    with controller(tmp_path, "SSL", **AUTHORIZER, **SERVED, **both) as lab:
        asker = lab.asker("admin")  # its certificate names no node
        assert error_of(asker, requests(lab, 7)["pre-vote"]) is not REFUSED
        assert error_of(asker, requests(lab, 8)["pre-vote"]) is REFUSED
        asker.close()
