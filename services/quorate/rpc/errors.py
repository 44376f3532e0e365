"""The exceptions of this package. A server's error responses are values until a client raises.

RpcError
├── TransportError        a peer gave no response, for the reason in `kind`
├── ListenError           a server cannot listen on an address
│   └── PortInUseError    because another process does
├── TlsError              a certificate, key or authority cannot be used
├── BadMessageError       the bytes are not a message that is served here
└── ClientError           errors that the client library raises
    ├── AdminError            the quorum rejected the request: `code`, `message`
    │   ├── OffsetCompactedError  a snapshot has replaced the requested records: `snapshot`
    │   └── ConditionFailedError  a condition of an append does not hold: the actual offsets
    ├── NoLeaderError         nodes answer, but no leader was found in time
    ├── UnreachableError      no node answers: `attempts` says which and why
    ├── OutcomeUnknownError   the request was sent and may have been executed
    └── ReadBrokenError       a read broke and cannot be resumed
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from quorate.common.error_codes import ErrorCode
from quorate.raft.types import OffsetAndEpoch


class RpcError(Exception):
    """The root of this package's exceptions."""


class TransportKind(StrEnum):
    """Why there is no response."""

    REFUSED = "refused"
    """No process listens there; nothing was sent."""
    UNREACHABLE = "unreachable"
    """No connection was established in time, or the name cannot be resolved; nothing was sent."""
    BROKEN = "broken"
    """The connection was closed during the call: the peer's process died or stopped."""
    TIMEOUT = "timeout"
    """The peer did not answer in time."""
    UNAUTHENTICATED = "unauthenticated"
    """The TLS handshake failed, or the peer denies access."""
    NOT_SERVED = "not_served"
    """The node does not serve this: unformatted, or another version. Nothing was done."""
    OTHER_CLUSTER = "other_cluster"
    """The node belongs to another cluster. Nothing was done to the client's."""
    TOO_LARGE = "too_large"
    """A message is over the limit."""
    OVERLOADED = "overloaded"
    """The peer rejected the call because of its load. Nothing was done."""
    CLOSED = "closed"
    """This client was closed before the call; nothing was sent."""
    FAILED = "failed"
    """Anything else."""


class TransportError(RpcError):
    """The peer at `address` gave no response."""

    def __init__(self, kind: TransportKind, address: str, text: str) -> None:
        super().__init__(f"{address}: {text}")
        self.kind = kind
        self.address = address
        self.text = text

    @property
    def refused(self) -> bool:
        """Whether the peer is gone, rather than slow."""
        return self.kind in (TransportKind.REFUSED, TransportKind.BROKEN)

    @property
    def nothing_done(self) -> bool:
        """Whether the peer certainly did not act on the request."""
        return self.kind in (
            TransportKind.REFUSED,
            TransportKind.UNREACHABLE,
            TransportKind.UNAUTHENTICATED,
            TransportKind.NOT_SERVED,
            TransportKind.OTHER_CLUSTER,
            TransportKind.OVERLOADED,
            TransportKind.CLOSED,
        )


class ListenError(RpcError):
    """A server cannot listen at `address`."""

    def __init__(self, address: str, reason: str) -> None:
        super().__init__(f"cannot listen at {address}: {reason}")
        self.address = address
        self.reason = reason


class PortInUseError(ListenError):
    """Another process listens at `address`."""

    def __init__(self, address: str) -> None:
        super().__init__(address, "another process listens there")


class TlsError(RpcError):
    """A file that TLS needs cannot be used; the text names it."""


class BadMessageError(RpcError):
    """The bytes are not a message that is served here; the text says why."""


class ClientError(RpcError):
    """An error that the client library raises.

    Example:
        try:
            await client.describe_quorum()
        except quorate.ClientError as error:
            print(error)
    """

    def __reduce__(self) -> tuple[object, ...]:
        """How to pickle and copy it: the parameters of subclasses are not its `args`."""
        return _restored, (type(self), self.args), self.__dict__


class AdminError(ClientError):
    """The quorum rejected the request.

    Example:
        try:
            await client.transfer_leadership(quorate.ReplicaKey(9))
        except quorate.AdminError as error:
            print(error.code.name, error.message)
    """

    def __init__(self, code: ErrorCode, message: str = "") -> None:
        super().__init__(f"{code.name}: {message}" if message else code.name)
        self.code = code
        self.message = message


class OffsetCompactedError(AdminError):
    """A snapshot has replaced the records at the requested offset, on every node that answers.

    snapshot: the newest one of the node with the oldest log, None if that node named none.
    log_start_offset: where that log starts. To continue, load the snapshot: a read without `follow`
    from the requested offset returns it, and the records after it.

    Example:
        try:
            async for record in client.read(0, follow=True):
                print(record.value)
                break
        except quorate.OffsetCompactedError as error:
            print("load the snapshot at", error.snapshot)
    """

    def __init__(
        self, message: str, snapshot: OffsetAndEpoch | None, log_start_offset: int
    ) -> None:
        super().__init__(ErrorCode.OFFSET_OUT_OF_RANGE, message)
        self.snapshot = snapshot
        self.log_start_offset = log_start_offset


def compacted(asked: int, start: int) -> OffsetCompactedError:
    """The error for an offset that a snapshot has replaced. start: where the log begins."""
    text = (
        f"offset {asked} was compacted away: the log begins at {start}, and a snapshot replaced "
        "the records before it"
    )
    return OffsetCompactedError(text, None, start)


class ConditionFailedError(AdminError):
    """A condition of an append does not hold, so nothing was appended.

    last_offset: of the log's last application record, None if that was not expected, or as it was
    expected. key_offsets: the offsets of the last records of the keys whose condition does not
    hold. -1: there is no record, or the value of the last one is None; -2: unknown, because it is
    from a snapshot of an earlier version. All of it was committed when the leader answered.

    Example:
        try:
            await client.append([(b"key", b"first")], if_key_offsets={b"key": -1})
            await client.append([(b"key", b"again")], if_key_offsets={b"key": -1})
        except quorate.ConditionFailedError as error:
            print("somebody was faster, at offset", error.key_offsets[b"key"])
    """

    def __init__(
        self, message: str, last_offset: int | None, key_offsets: Mapping[bytes, int]
    ) -> None:
        super().__init__(ErrorCode.CONDITION_FAILED, message)
        self.last_offset = last_offset
        self.key_offsets = dict(key_offsets)


def _listed(attempts: Mapping[str, str]) -> str:
    return "; ".join(f"{address}: {reason}" for address, reason in attempts.items())


class NoLeaderError(ClientError):
    """Nodes answer, but none led in time. `attempts`: each address and its last error.

    Example:
        try:
            await client.append_value(b"value")
        except quorate.NoLeaderError as error:
            print("nothing was appended:", error.attempts)
    """

    def __init__(self, waited_ms: int, attempts: Mapping[str, str]) -> None:
        super().__init__(f"no leader within {waited_ms} ms ({_listed(attempts)})")
        self.attempts = dict(attempts)


class UnreachableError(ClientError):
    """No node answers. `attempts`: each address that was tried and why it failed.

    Example:
        async with quorate.Client(["127.0.0.1:1"], request_timeout_ms=200) as other:
            try:
                await other.append_value(b"value")
            except quorate.UnreachableError as error:
                print("nothing was appended:", error.attempts)
    """

    def __init__(self, attempts: Mapping[str, str]) -> None:
        super().__init__(f"cannot reach any node ({_listed(attempts)})")
        self.attempts = dict(attempts)


class OutcomeUnknownError(ClientError):
    """A request may have been executed: its response is missing or does not tell.

    Example:
        try:
            await client.append_value(b"value")
        except quorate.OutcomeUnknownError:
            print([record.value async for record in client.read()])
    """


class ReadBrokenError(ClientError):
    """A read broke where it cannot resume, or returned bytes that are not valid records.

    Example:
        values = []
        try:
            async for record in client.read(0):
                values.append(record.value)
        except quorate.ReadBrokenError:
            values.clear()  # read again from the beginning
    """


def renewed(error: ClientError) -> ClientError:
    """A copy of the error for another caller: an exception collects the traceback of each raise."""
    fresh = _restored(type(error), error.args)
    fresh.__dict__.update(error.__dict__)
    return fresh


def _restored(kind: type[ClientError], arguments: tuple[object, ...]) -> ClientError:
    return kind.__new__(kind, *arguments)
