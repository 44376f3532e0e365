"""BrokerHeartbeat's own codec beside kio's, which reads Kafka's schemas."""

from __future__ import annotations

import random
from typing import Any

import pytest
from quorate.bridge.messages import schemas as s
from quorate.bridge.messages.heartbeat_messages import write_heartbeat_answer
from quorate.common.error_codes import ErrorCode
from quorate.common.identifiers import ZERO_UUID, uuid_from_bytes
from quorate.metadata import requests as r
from quorate.rpc.errors import BadMessageError

from tests.unit.bridge.test_bounds import tagged, varint
from tests.unit.bridge.test_isr_messages import some

VERSIONS = pytest.mark.parametrize("version", [0, 1, 2])
FIXED = bytes(20) + b"\0\1"
"""Everything before the tagged fields."""


def heartbeat(rng: random.Random, version: int) -> r.BrokerHeartbeat:
    def directories() -> tuple[str, ...]:
        count = rng.choice((0, 1, 3, 200))
        return tuple(
            rng.choice((ZERO_UUID, uuid_from_bytes(rng.randbytes(16)))) for _ in range(count)
        )

    return r.BrokerHeartbeat(
        some(rng, 32),
        some(rng, 64),
        some(rng, 64),
        rng.random() < 0.5,
        rng.random() < 0.5,
        directories() if version >= 1 else (),
        rng.choice((None, directories())) if version >= 2 else None,
    )


def message(request: r.BrokerHeartbeat, version: int) -> Any:
    """The request as kio's object."""
    cordoned = request.cordoned_log_dirs
    return s.make(
        s.request_type(s.BROKER_HEARTBEAT, version),
        broker_id=request.broker_id,
        broker_epoch=request.broker_epoch,
        current_metadata_offset=request.metadata_offset,
        want_fence=request.want_fence,
        want_shut_down=request.want_shutdown,
        offline_log_dirs=tuple(map(s.uuid_field, request.offline_log_dirs)),
        cordoned_log_dirs=None if cordoned is None else tuple(map(s.uuid_field, cordoned)),
    )


def header(version: int) -> bytes:
    return s.write_header(s.BROKER_HEARTBEAT, version, 11, "broker-1")


@VERSIONS
def test_requests_are_read_as_kio_writes_them(version: int) -> None:
    rng = random.Random(version)
    for _ in range(200):
        request = heartbeat(rng, version)
        found = s.read_call(header(version) + s.write(message(request, version)))
        assert (found.body, found.client_id) == (request, "broker-1")
        assert (found.api_key, found.version) == (s.BROKER_HEARTBEAT, version)


@VERSIONS
def test_responses_are_written_as_kio_writes_them(version: int) -> None:
    rng = random.Random(version)
    kind = s.response_type(s.BROKER_HEARTBEAT, version)
    for _ in range(50):
        error = rng.choice((ErrorCode.NONE, ErrorCode.STALE_BROKER_EPOCH))
        flags = [rng.random() < 0.5 for _ in range(3)]
        response = r.BrokerHeartbeatResponse(
            flags[0], flags[1], should_shut_down=flags[2], error=error
        )
        expected = kind(
            throttle_time=s.milliseconds(),
            error_code=s.error_field(error),
            is_caught_up=flags[0],
            is_fenced=flags[1],
            should_shut_down=flags[2],
        )
        assert write_heartbeat_answer(response) == s.write(expected)
        encoded = s.Encoded(kind, write_heartbeat_answer(response))
        assert s.write_response(-7, encoded) == s.write_response(-7, expected)


@VERSIONS
@pytest.mark.parametrize("tag", [0, 1, 2, 9_000])
def test_tagged_fields_of_later_versions_are_skipped(version: int, tag: int) -> None:
    is_known = tag < version
    content = varint(2) + bytes(range(16))
    first = header(version)
    assert first[-1] == 0, "the number of tagged fields"
    frame = first[:-1] + tagged((5, b"trace")) + FIXED + tagged((tag, content), (9_001, b"x"))
    found = s.read_call(frame).body
    directory = uuid_from_bytes(bytes(range(16)))
    assert found.want_shutdown
    assert found.offline_log_dirs == ((directory,) if is_known and tag == 0 else ())
    assert found.cordoned_log_dirs == ((directory,) if is_known and tag == 1 else None)


@VERSIONS
def test_a_truncated_request_is_rejected_wherever_it_ends(version: int) -> None:
    directory = uuid_from_bytes(bytes(range(16)))
    request = r.BrokerHeartbeat(1, 2, 3, False, True, (directory,), (directory,))
    whole = header(version) + s.write(message(request, version))
    for size in range(8, len(whole)):
        with pytest.raises(BadMessageError):
            s.read_call(whole[:size])


@pytest.mark.parametrize(
    ("tags", "reason"),
    [
        (b"\xff\xff\xff\xff\x0f", "more than 20000 items"),
        (tagged((0, b"\xff\xff\xff\xff\x0f")), "more than 20000 items"),
        (tagged((1, b"\xff\xff\xff\xff\x0f")), "more than 20000 items"),
        (tagged((0, b"\0")), "an array is null"),
        (b"\x80\x80\x80\x80\x80\x80", "a number of more than five bytes"),
    ],
)
def test_a_malformed_request_is_rejected(tags: bytes, reason: str) -> None:
    with pytest.raises(BadMessageError, match=reason):
        s.read_call(header(2) + FIXED + tags)
