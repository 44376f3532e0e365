"""The bridge of one controller: what its listener for Kafka's nodes and tools serves.

The node passes in its dependencies: `handle` for metadata requests, and the driver for the log. The
bridge listens from `open` to `close`.

Rules:
1. A caller has the principal of its certificate or its SASL authentication, otherwise
   `User:ANONYMOUS`.
2. With an authorizer, requests that only brokers send are rejected before they are decoded, and
   long frames before they are read, unless the caller is authenticated and has CLUSTER_ACTION.
   Without an authorizer this rule does not apply.
3. The sender of an envelope acts for any client, so only the callers of rule 2 may send one. They
   may not act for super users unless the settings allow it (`BridgeSettings.not_forwarded`).
4. Nodes are served only if the quorum has no applications (`admission`).
5. Voters are served only if controllers talk to each other over this listener
   (`BridgeSettings.serves_voters`). Then it opens before the committed metadata is loaded, because
   no leader is elected otherwise; until then every other request ends its connection.

Source: KIP-866; KIP-590 "Envelope"; Kafka's EnvelopeUtils.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

from quorate.bridge.authentication import tokens
from quorate.bridge.listener.connections import KafkaConnection
from quorate.bridge.listener.listening import ListenerSettings, Listening
from quorate.bridge.listener.server import api_versions
from quorate.bridge.messages import schemas as s
from quorate.bridge.messages.fetch_messages import LogFetch
from quorate.bridge.requests.admission import Admission, Admit
from quorate.bridge.requests.apis import KAFKA_APIS
from quorate.bridge.requests.direct import DIRECT
from quorate.bridge.requests.exchange import answer_bare
from quorate.bridge.requests.forwarding import FORWARDED, answer_envelope, envelope_response
from quorate.bridge.requests.lifecycle import LIFECYCLE
from quorate.bridge.requests.quorum_requests import Describe, Handle, QuorumRequests
from quorate.bridge.requests.quotas import STRICT_SINCE, MutationQuotas
from quorate.bridge.requests.raft_requests import RaftRequests, refused
from quorate.bridge.requests.replication import (
    PEER_CLIENT_ID,
    PEER_IDLE_S,
    Replication,
    respond,
)
from quorate.bridge.requests.topics import describe_creation
from quorate.common.error_codes import ErrorCode
from quorate.metadata import requests as r
from quorate.metadata.authorizer import Operation, Resource, ResourceType
from quorate.metadata.image.configs import ConfigResourceType
from quorate.metadata.image.metadata_image import MetadataImage
from quorate.raft.messages import FetchRequest, FetchSnapshotRequest
from quorate.rpc.errors import BadMessageError
from quorate.rpc.framing.frame_stream import FRAME_BYTES_MAX
from quorate.rpc.principals import Caller
from quorate.rpc.server.authorizer import Denial, answer_authorized
from quorate.rpc.server.framed_appends import FramedAppends
from quorate.rpc.wire.convert_metadata import METADATA_CODECS, MetadataAnswer
from quorate.runtime.authorizer import NodeAuthorizer
from quorate.runtime.driver import RaftDriver
from quorate.telemetry.limited_log import LimitedLog

LOGGER = logging.getLogger(__name__)

LOG_INTERVAL_S = 60.0
STRANGERS_FRAME_BYTES_MAX = 256 * 1024
"""The longest frame of a caller that lacks what rule 2 demands."""

BARE: Final = LIFECYCLE | FORWARDED | DIRECT
"""The exchanges of all APIs that `Bridge.answer` does not handle itself, without an envelope."""
_EARLY: Final = s.VOTERS_APIS | {s.FETCH, s.FETCH_SNAPSHOT, s.API_VERSIONS}
"""What is served before the committed metadata is loaded (rule 5)."""
_APART: Final = s.VOTERS_APIS | {
    s.FETCH,
    s.FETCH_SNAPSHOT,
    s.ENVELOPE,
    s.API_VERSIONS,
    s.SASL_HANDSHAKE,
    s.SASL_AUTHENTICATE,
    s.DESCRIBE_DELEGATION_TOKEN,
}
assert BARE.keys() | _APART == KAFKA_APIS.keys() == s.SERVED.keys(), "an API without a handler"
assert FORWARDED.keys() == {api.key for api in KAFKA_APIS.values() if api.forwarded}

REQUEST_METHODS: Final[dict[type, str]] = {
    kind: each.method.name for kind, each in METADATA_CODECS.items()
} | {r.AlterConfigs: "IncrementalAlterConfigs"}
"""The method by which a request to the metadata controller is authorized."""


@dataclass(frozen=True, slots=True)
class BridgeSettings:
    """The configuration of the bridge."""

    node_id: int
    """The node id of this controller."""
    cluster_id: str
    """The cluster id of this controller."""
    listening: ListenerSettings
    """The listener, whose name the controllers' endpoints for brokers have."""
    not_forwarded: frozenset[str] = frozenset()
    """Principals whose requests brokers may not forward."""
    quota_window_count: int = 11
    quota_window_s: int = 1
    """For `quota_window_count` and `quota_window_s`, see `MutationQuotas`."""
    serves_voters: bool = False
    """Whether it also serves voters: see rule 5."""
    nodes: tuple[tuple[str, int], ...] = ()
    """One (principal, node id) for each node that a principal may act for as a voter, whatever its
    certificate names.
    """

    @property
    def listener(self) -> str:
        """The name of the listener."""
        return self.listening.name


class Bridge:
    """Answers the requests that arrive at the listener for Kafka's protocol.

    handle: passes a request to the metadata controller, with its timeout in ms. describe: answers a
    read from this node's image. admit: admits Kafka's nodes. authorizer: authorizes requests; None
    accepts all. image: returns the committed image, with the SCRAM credentials and the delegation
    tokens. is_loaded: whether the committed metadata is loaded. appends: serves appends in frames,
    None if they are not served.
    """

    def __init__(
        self,
        settings: BridgeSettings,
        raft: RaftDriver,
        handle: Handle,
        describe: Describe,
        *,
        admit: Admit,
        authorizer: NodeAuthorizer | None = None,
        image: Callable[[], MetadataImage] = MetadataImage,
        is_loaded: Callable[[], bool] = lambda: True,
        appends: FramedAppends | None = None,
    ) -> None:
        self._settings = settings
        self._raft = raft
        self._handle = handle
        self._authorizer = authorizer
        self._admission = Admission(admit)
        self._is_loaded = is_loaded
        self._has_loaded = False
        self._replication = Replication(
            raft,
            settings.cluster_id,
            settings.listener,
            self._fetch_refused,
            self._admission,
            serves_voters=settings.serves_voters,
        )
        self._voters = RaftRequests(raft, settings.listener, self._refusal)
        self.listening = Listening(
            settings.listening, self, "Kafka's brokers", image, appends=appends
        )
        self._connections = self.listening.connections
        self._quorum = QuorumRequests(
            raft,
            handle,
            describe,
            authorizer,
            node_id=settings.node_id,
            cluster_id=settings.cluster_id,
            listener=settings.listener,
            serves_voters=settings.serves_voters,
            kafka_replicas=self._connections.replicas,
            image=image,
        )
        self._image = image
        self._quotas = MutationQuotas(
            lambda: image().quotas, settings.quota_window_count, settings.quota_window_s
        )
        self._token_secrets = self.listening.token_secrets
        self._unauthenticated = LimitedLog(LOGGER, interval_s=LOG_INTERVAL_S)

    async def open(self) -> None:
        """Start listening. Idempotent. Raises OSError, TlsError."""
        await self.listening.open()

    async def close(self) -> None:
        """Stop listening. Idempotent."""
        await self.listening.close()
        self._admission.close()

    # --- limits and authorization -----------------------------------------------------------------

    def frame_bytes_max(self, connection: KafkaConnection) -> int:
        """The longest frame that this connection may send (rule 2)."""
        if self._authorizer is None or may_forward(self._authorizer, connection.caller):
            return FRAME_BYTES_MAX
        return STRANGERS_FRAME_BYTES_MAX

    def refuse(self, head: s.Call, connection: KafkaConnection) -> Any:
        """The response that rejects a request by its header; None to decode it (rules 2 and 3).

        Raises BadMessageError for a request that is not served (rule 5).
        """
        api = KAFKA_APIS[head.api_key]
        self._check_served(head.api_key)
        if not api.from_brokers:
            return None
        caller = connection.caller
        if head.api_key == s.ENVELOPE and self._is_unauthenticated(caller):
            return envelope_response(head.version, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        denied = self._refusal(caller, api.method, None)
        if denied is None:
            return None
        if head.api_key == s.ENVELOPE:
            return envelope_response(head.version, denied.error)
        if head.api_key in (s.FETCH, s.FETCH_SNAPSHOT):
            return respond(head, denied.error)
        if head.api_key in s.VOTERS_APIS:
            return refused(head, denied.error)
        exchange = LIFECYCLE[head.api_key]
        module = s.response_module(head.api_key, head.version)
        return exchange.write(module, exchange.fail(None, denied.error, denied.message))

    def _check_served(self, api_key: int) -> None:
        """Raise BadMessageError for a request that ends its connection (rule 5)."""
        if not self._settings.serves_voters and api_key in s.VOTERS_APIS:
            raise BadMessageError(f"a request with API key {api_key}, which is not served here")
        self._has_loaded = self._has_loaded or self._is_loaded()
        if not self._has_loaded and api_key not in _EARLY:
            raise BadMessageError("the committed metadata is not loaded yet")

    def _is_unauthenticated(self, caller: Caller) -> bool:
        """Whether to reject an envelope because its sender is unauthenticated; logs one line."""
        if self._authorizer is None or not self._authorizer.authorizes or caller.is_authenticated:
            return False
        self._unauthenticated.warning(
            caller.host,
            "Envelope from %s at %s is refused: only an authenticated broker may forward "
            "requests; map %s to SSL, SASL_SSL or SASL_PLAINTEXT in "
            "listener.security.protocol.map, here and on the brokers",
            caller.principal or "nobody",
            caller.host,
            self._settings.listener,
        )
        return True

    # --- requests ---------------------------------------------------------------------------------

    async def answer(self, call: s.Call, connection: KafkaConnection) -> Any:
        """The response to a request, in the request's version."""
        if call.client_id == PEER_CLIENT_ID:
            connection.idle_s = PEER_IDLE_S
        if call.api_key == s.API_VERSIONS:
            serves_voters = self._settings.serves_voters
            return api_versions(call, *self._quorum.features(), serves_voters=serves_voters)
        if call.api_key in s.VOTERS_APIS:
            return await self._voters.answer(call, connection.caller)
        if call.api_key == s.FETCH:
            response = await self._replication.fetch(call, connection)
            if self._settings.serves_voters and self._is_voter(call):
                self._connections.note_broker(connection, int(response.error_code))
            return response
        if call.api_key == s.FETCH_SNAPSHOT:
            return await self._replication.fetch_snapshot(call, connection)
        if call.api_key == s.ENVELOPE:
            return await answer_envelope(
                call, self._ask_for_client, self.listening.decoder.call, self._quotas
            )
        if call.api_key == s.DESCRIBE_DELEGATION_TOKEN:
            allows = self._allows(connection.caller)
            image, keys = self._image(), self._token_secrets
            return tokens.describe(call, connection.caller, image, keys, allows)
        exchange = BARE[call.api_key]
        response = await answer_bare(exchange, call, self._ask, connection.caller, self._quotas)
        if call.api_key in STRICT_SINCE:
            connection.throttled_s = response.throttle_time.total_seconds()
        if call.api_key in (s.BROKER_REGISTRATION, s.BROKER_HEARTBEAT):
            self._connections.note_broker(connection, int(response.error_code))
        return response

    def _is_voter(self, call: s.Call) -> bool:
        """Whether the sender of a Fetch says that it is a voter."""
        if not isinstance(call.body, LogFetch):
            return False
        return self._raft.node.voters.get(call.body.replica_id) is not None

    def _fetch_refused(
        self, connection: KafkaConnection, request: FetchRequest | FetchSnapshotRequest
    ) -> ErrorCode:
        name = type(request).__name__.removesuffix("Request")
        refused = self._refusal(connection.caller, name, request)
        return ErrorCode.NONE if refused is None else refused.error

    def _refusal(self, caller: Caller, name: str, request: Any) -> Denial | None:
        if self._authorizer is None:
            return None
        named = frozenset(node for who, node in self._settings.nodes if who == caller.principal)
        if named and caller.has_certificate:
            caller = replace(caller, nodes=caller.nodes | named)
        return self._authorizer.refusal(caller, name, request)

    async def _ask_for_client(
        self, request: Any, timeout_ms: int, caller: Caller
    ) -> MetadataAnswer:
        """Process a request that a broker forwards (rule 3). caller: the client in the envelope."""
        denied = self._settings.not_forwarded
        owner = request.owner if isinstance(request, r.CreateDelegationToken) else None
        if caller.principal in denied or owner in denied:
            who = owner or caller.principal
            return MetadataAnswer(
                ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
                self._raft.node.current_leader,
                message=f"{who} is a super user, and brokers may not forward a super "
                "user's requests (quorate.kafka.forwarded.super.users): call a controller "
                "over gRPC, or use a principal that has ACLs",
            )
        # Its broker has authenticated it, unless it is anonymous.
        return await self._ask(request, timeout_ms, replace(caller, used_sasl=True))

    async def _ask(self, request: Any, timeout_ms: int, caller: Caller) -> MetadataAnswer:
        """Authorize and process a request, as `rpc.server.metadata_servicers` does for gRPC."""
        if self._quorum.answers(request):
            return await self._quorum.ask(request, timeout_ms, caller)
        if isinstance(request, r.TokenRequest):
            return await self._ask_about_token(request, timeout_ms, caller)
        if self._authorizer is None:
            answered = await self._serve(request, timeout_ms, caller)
        else:
            answered = await answer_authorized(
                self._authorizer.authorize(caller, REQUEST_METHODS[type(request)], request),
                self._raft.node.current_leader,
                lambda authorized: self._serve(authorized, timeout_ms, caller),
            )
        if isinstance(answered.response, r.CreateTopicsResponse):
            return self._with_topic_configs(answered, caller)
        return answered

    def _with_topic_configs(self, answered: MetadataAnswer, caller: Caller) -> MetadataAnswer:
        defaults = self._image().configs.of(ConfigResourceType.BROKER, "")
        allows = self._allows(caller)
        described = describe_creation(
            answered.response,
            defaults,
            lambda name: allows(Operation.DESCRIBE_CONFIGS, Resource(ResourceType.TOPIC, name)),
        )
        return replace(answered, response=described)

    async def _serve(self, request: Any, timeout_ms: int, caller: Caller) -> MetadataAnswer:
        """Process an authorized request; the registration of a node is admitted first (rule 4)."""
        node_id = self._registering(request)
        if node_id is not None:
            name = type(request).__name__
            error, text = await self._admission.check(name, node_id, caller.host)
            if error is not ErrorCode.NONE:
                return MetadataAnswer(error, self._raft.node.current_leader, message=text)
        return await self._handle(request, timeout_ms)

    def _registering(self, request: Any) -> int | None:
        """The id of the node that registers; None for any other request, and for a broker of
        another cluster, which the controller rejects.
        """
        match request:
            case r.RegisterBroker(broker_id, cluster_id=cluster_id):
                return broker_id if cluster_id in ("", self._settings.cluster_id) else None
            case r.RegisterController(controller_id):
                return controller_id
        return None

    async def _ask_about_token(
        self, request: r.TokenRequest, timeout_ms: int, caller: Caller
    ) -> MetadataAnswer:
        error = tokens.refusal(request, caller, self._allows(caller))
        if error is not ErrorCode.NONE:
            return MetadataAnswer(error, self._raft.node.current_leader)
        assert caller.principal is not None, "only authenticated callers are not rejected"
        return await self._handle(replace(request, requester=caller.principal), timeout_ms)

    def _allows(self, caller: Caller) -> tokens.Allows:
        authorizer = self._authorizer
        if authorizer is None:
            return lambda _operation, _resource: True
        return functools.partial(authorizer.allows, caller)


def may_forward(authorizer: NodeAuthorizer, caller: Caller) -> bool:
    """Whether this caller may send envelopes (rules 2 and 3). Logs nothing."""
    if not authorizer.authorizes:
        return True
    name = KAFKA_APIS[s.ENVELOPE].method
    return caller.is_authenticated and authorizer.is_authorized(caller, name)
