"""The states of an authentication, over real sockets."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
from dataclasses import replace
from typing import Any

import pytest
from quorate.bridge.listener import server as module
from quorate.bridge.listener.connections import Connections
from quorate.bridge.listener.server import api_versions
from quorate.bridge.messages import schemas as s
from quorate.common.error_codes import ErrorCode
from quorate.common.scram import MECHANISM_NUMBERS
from quorate.rpc.framing.frame_stream import INLINE_BYTES
from scramp import ScramClient, ScramException

from tests.unit.bridge.client_frames import write_frame
from tests.unit.bridge.sasl_support import (
    CONFIG,
    PASSWORD,
    USERS,
    Client,
    FailureError,
    SaslLab,
    base64_text,
    plain,
)
from tests.unit.bridge.test_server import heartbeat

FAILED = ErrorCode.SASL_AUTHENTICATION_FAILED


async def test_a_client_authenticates_as_kafkas_do() -> None:
    async with SaslLab() as lab:
        client = await lab.dial()
        versions = await client.versions()
        assert {each.api_key for each in versions.api_keys} >= {17, 36}
        answer = await client.handshake("PLAIN")
        assert (int(answer.error_code), answer.mechanisms) == (0, CONFIG.mechanisms)
        assert await client.token(plain("alice")) == b""
        assert client.lifetime_ms == 0
        assert await client.works()
        (caller,) = lab.heard.callers
        assert (caller.principal, caller.used_sasl, caller.used_token) == (
            "User:alice",
            True,
            False,
        )
        assert caller.is_authenticated
        assert not caller.has_certificate


@pytest.mark.parametrize("mechanism", MECHANISM_NUMBERS)
async def test_scram_with_another_implementation(mechanism: str) -> None:
    async with SaslLab() as lab:
        client = await lab.dial()
        await client.handshake(mechanism)
        await client.scram(mechanism, "bob", USERS["bob"])
        assert await client.works()
        assert lab.heard.callers[0].principal == "User:bob"


@pytest.mark.parametrize("version", [0, 1, 2])
async def test_every_version_of_sasl_authenticate(version: int) -> None:
    async with SaslLab() as lab:
        client = await lab.dial()
        await client.handshake("PLAIN")
        assert await client.token(plain("alice"), version) == b""
        assert await client.works()


async def test_messages_without_headers_after_version_0_of_the_handshake() -> None:
    async with SaslLab() as lab:
        client = await lab.dial()
        await client.handshake("PLAIN", version=0)
        assert await client.raw(plain("alice")) == b""
        assert await client.works()
        other = await lab.dial()
        await other.handshake("PLAIN", version=0)
        assert await other.raw(plain("alice", "wrong")) is None


async def test_a_client_that_sends_much_before_it_authenticates_is_not_served_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """ApiVersions in an unknown version may be repeated."""
    answered = 0

    def counted(*args: Any, **options: Any) -> Any:
        nonlocal answered
        answered += 1
        return api_versions(*args, **options)

    monkeypatch.setattr(module, "api_versions", counted)
    async with SaslLab() as lab:
        hasty, other = await lab.dial(), await lab.dial()
        await asyncio.sleep(0.05)  # both are accepted
        unknown = b"\0\x12\0\x63\0\0\0\x09"
        for _ in range(1_000):
            write_frame(hasty.writer, unknown)
        assert await other.versions()
        assert answered < 100


# --- what is refused ------------------------------------------------------------------------------

BAD_PLAIN = [
    plain("alice", "wrong"),
    plain("alice", PASSWORD + "x"),
    plain("alice", PASSWORD[:-1]),
    plain("nobody"),
    plain("alice", ""),
    plain("", PASSWORD),
    plain("alice", authorization_id="bob"),
    plain("alice") + b"\0",
    b"",
    b"\0\0",
    b"alice",
    b"\0alice\0" + PASSWORD.encode("utf-16"),
    b"\xff\0alice\0x",
    b"\0alice\0" + b"x" * 100_000,
]


@pytest.mark.parametrize("token", BAD_PLAIN)
async def test_failures_of_plain_are_alike(token: bytes, caplog: pytest.LogCaptureFixture) -> None:
    async with SaslLab() as lab:
        client = await lab.dial()
        await client.handshake("PLAIN")
        with pytest.raises(FailureError) as caught:
            await client.token(token)
        assert caught.value.error == FAILED
        assert caught.value.message == (
            "Authentication failed during authentication due to invalid credentials with SASL "
            "mechanism PLAIN"
        )
        assert await client.is_closed()
        assert not lab.heard.callers
    assert PASSWORD not in caplog.text
    assert "SASL: PLAIN: " in caplog.text


async def test_an_authorization_id_that_is_the_user() -> None:
    async with SaslLab() as lab:
        client = await lab.dial()
        await client.handshake("PLAIN")
        assert await client.token(plain("alice", authorization_id="alice")) == b""


@pytest.mark.parametrize("mechanism", ["GSSAPI", "SCRAM-SHA-1", "plain", "OAUTHBEARER", ""])
async def test_an_unknown_mechanism_hears_which_there_are(mechanism: str) -> None:
    async with SaslLab() as lab:
        client = await lab.dial()
        answer = await client.handshake(mechanism)
        assert int(answer.error_code) == ErrorCode.UNSUPPORTED_SASL_MECHANISM
        assert answer.mechanisms == CONFIG.mechanisms
        assert await client.is_closed()


async def before_handshake(client: Client) -> None:
    """Nothing yet."""


async def after_versions(client: Client) -> None:
    await client.versions()


async def after_handshake(client: Client) -> None:
    await client.handshake("SCRAM-SHA-256")


async def in_scram(client: Client) -> None:
    await client.handshake("SCRAM-SHA-256")
    scram = ScramClient(["SCRAM-SHA-256"], "alice", PASSWORD)
    await client.token(scram.get_client_first().encode())


@pytest.mark.parametrize("stage", [before_handshake, after_versions, after_handshake, in_scram])
async def test_requests_before_authentication_are_not_decoded(
    stage: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with SaslLab() as lab:
        client = await lab.dial()
        await stage(client)
        read: list[int] = []
        monkeypatch.setattr(s, "read_call", lambda frame: read.append(frame[1]))
        monkeypatch.setattr(s, "check_start", lambda frame: read.append(frame[1]))
        long = heartbeat() + b"\0" * 2 * INLINE_BYTES
        assert await client.raw(long) is None
        assert read == []
        assert not lab.heard.callers


async def switch(client: Client) -> Any:
    return await client.handshake("PLAIN")


async def versions_again(client: Client) -> Any:
    return await client.versions()


async def authenticate_at_once(client: Client) -> Any:
    return await client.token(plain("alice"))


@pytest.mark.parametrize(
    ("stage", "step"),
    [
        (before_handshake, authenticate_at_once),
        (after_versions, authenticate_at_once),
        (after_versions, versions_again),
        (after_handshake, switch),
        (after_handshake, versions_again),
        (in_scram, switch),
        (in_scram, versions_again),
    ],
)
async def test_steps_out_of_order_end_the_connection(stage: Any, step: Any) -> None:
    async with SaslLab() as lab:
        client = await lab.dial()
        await stage(client)
        assert await step(client) is None
        assert await client.is_closed()


async def test_an_unknown_version_of_api_versions_may_be_followed_by_a_known_one() -> None:
    async with SaslLab() as lab:
        client = await lab.dial()
        assert await client.raw(b"\0\x12\0\x63\0\0\0\x09" + b"\xff" * 9) is not None
        assert await client.versions() is not None
        assert await client.versions() is None


async def test_large_and_truncated_frames() -> None:
    async with SaslLab(replace(CONFIG, receive_bytes_max=1_000)) as lab:
        client = await lab.dial()
        assert await client.raw(b"\0" * 1_001) is None
        client = await lab.dial()
        await client.handshake("PLAIN")
        assert await client.token(plain("alice", "x" * 1_000)) is None
        for frame in (b"", b"\0\x11", b"\0\x11\0\x01\0\0\0\0\xff\xff", b"\0\x11\0\x05\0\0\0\0"):
            assert await (await lab.dial()).raw(frame) is None


async def test_the_same_requests_after_authentication() -> None:
    async with SaslLab() as lab:
        client = await lab.dial()
        await client.handshake("PLAIN")
        await client.token(plain("alice"))
        illegal = ErrorCode.ILLEGAL_SASL_STATE
        assert int((await client.handshake("PLAIN")).error_code) == illegal
        with pytest.raises(FailureError) as caught:
            await client.token(plain("alice"))
        assert caught.value.error == illegal
        assert await client.works()


# --- SCRAM ----------------------------------------------------------------------------------------


def final_for(client: ScramClient, change: Any) -> bytes:
    return change(client.get_client_final()).encode()


@pytest.mark.parametrize(
    ("user", "password"), [("alice", "wrong"), ("nobody", PASSWORD), ("bob", PASSWORD)]
)
async def test_wrong_passwords_and_unknown_users_fail_at_the_same_point(
    user: str, password: str
) -> None:
    async with SaslLab() as lab:
        client = await lab.dial()
        await client.handshake("SCRAM-SHA-512")
        with pytest.raises(FailureError) as caught:
            await client.scram("SCRAM-SHA-512", user, password)
        assert caught.value.error == FAILED
        assert await client.is_closed()


async def test_an_unknown_user_always_has_the_same_salt() -> None:
    async with SaslLab() as lab:
        salts = set()
        for _ in range(2):
            client = await lab.dial()
            await client.handshake("SCRAM-SHA-256")
            scram = ScramClient(["SCRAM-SHA-256"], "nobody", "x")
            answer = await client.token(scram.get_client_first().encode())
            assert answer is not None
            salts.add(answer.decode().split(",")[1])
        assert len(salts) == 1


FIRST = "n,,n=alice,r=abcdef"


@pytest.mark.parametrize(
    "first",
    [
        "",
        "n,,",
        "n,,n=alice",
        "n,,r=abc,n=alice",
        "n,,n=,r=abc",
        "n,,n=alice,r=",
        "n,,n=al=ice,r=abc",
        "n,,m=1,n=alice,r=abc",
        "n,,n=alice,r=abc,m=1",
        "n,,n=alice,r=abc,tokenauth=true,tokenauth=false",
        "n,a=bob,n=alice,r=abc",
        "p=tls-unique,,n=alice,r=abc",
        "x,,n=alice,r=abc",
        "n,,n=alice,r=a\u00e9c",
        "n,,n=ali\0ce,r=abc",
        "n,,n=unknown,r=abc,tokenauth=true\0",
        FIRST[:-8],
    ],
)
async def test_malformed_first_messages(first: str) -> None:
    async with SaslLab() as lab:
        client = await lab.dial()
        await client.handshake("SCRAM-SHA-256")
        with pytest.raises(FailureError) as caught:
            await client.token(first.encode())
        assert caught.value.error == FAILED


def by_hand(
    first: str, server_first: str, binding: str, extra: str = "", password: str = PASSWORD
) -> str:
    """A client's final message with the right proof."""
    attributes = dict(each.split("=", 1) for each in server_first.split(","))
    salt, count = base64.b64decode(attributes["s"]), int(attributes["i"])
    salted = hashlib.pbkdf2_hmac("sha256", password.encode(), salt, count)
    key = hmac.digest(salted, b"Client Key", "sha256")
    without_proof = f"c={base64_text(binding.encode())},r={attributes['r']}{extra}"
    bare = first.split(",", 2)[2]
    message = f"{bare},{server_first},{without_proof}".encode()
    signature = hmac.digest(hashlib.sha256(key).digest(), message, "sha256")
    proof = bytes(a ^ b for a, b in zip(key, signature, strict=True))
    return f"{without_proof},p={base64_text(proof)}"


@pytest.mark.parametrize(
    ("first", "binding", "extra"),
    [
        (FIRST, "n,,", ""),
        ("y,,n=alice,r=abc", "y,,", ""),
        ("n,a=alice,n=alice,r=abc", "n,a=alice,", ""),
        ("n,,n=alice,r=abc,other=x", "n,,", ""),
        ("n,,n=alice,r=abc", "n,,", ",other=x"),
    ],
)
async def test_first_messages_that_kafka_takes_too(first: str, binding: str, extra: str) -> None:
    async with SaslLab() as lab:
        client = await lab.dial()
        await client.handshake("SCRAM-SHA-256")
        answer = await client.token(first.encode())
        assert answer is not None
        final = by_hand(first, answer.decode(), binding, extra)
        assert (await client.token(final.encode()) or b"").startswith(b"v=")
        assert await client.works()


async def test_a_changed_channel_binding_fails() -> None:
    async with SaslLab() as lab:
        client = await lab.dial()
        await client.handshake("SCRAM-SHA-256")
        answer = await client.token(FIRST.encode())
        assert answer is not None
        with pytest.raises(FailureError):
            await client.token(by_hand(FIRST, answer.decode(), "y,,").encode())


async def test_a_replayed_exchange_fails() -> None:
    async with SaslLab() as lab:
        client = await lab.dial()
        await client.handshake("SCRAM-SHA-256")
        first = await client.token(FIRST.encode())
        assert first is not None
        final = by_hand(FIRST, first.decode(), "n,,").encode()
        assert await client.token(final)
        again = await lab.dial()
        await again.handshake("SCRAM-SHA-256")
        second = await again.token(FIRST.encode())
        assert second != first, "the server's nonce is new"
        with pytest.raises(FailureError):
            await again.token(final)


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text[: len(text) // 2],
        lambda text: text.rpartition(",p=")[0],
        lambda text: text.rpartition(",p=")[0] + ",p=",
        lambda text: text.rpartition(",p=")[0] + ",p=AAAA",
        lambda text: text + "=",
        lambda text: text.replace("r=", "r=x"),
        lambda _text: "n,,n=alice,r=again",
        lambda _text: "\0",
    ],
)
async def test_malformed_final_messages(change: Any) -> None:
    async with SaslLab() as lab:
        client = await lab.dial()
        await client.handshake("SCRAM-SHA-256")
        scram = ScramClient(["SCRAM-SHA-256"], "alice", PASSWORD)
        first = await client.token(scram.get_client_first().encode())
        assert first is not None
        scram.set_server_first(first.decode())
        with pytest.raises(FailureError) as caught:
            await client.token(final_for(scram, change))
        assert caught.value.error == FAILED
        assert await client.is_closed()


async def test_the_client_notices_a_server_without_the_credential(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The server proves that it knows the credential: a signature by another key is noticed."""
    from quorate.bridge.authentication import mechanisms

    digest = hmac.digest
    async with SaslLab() as lab:
        client = await lab.dial()
        await client.handshake("SCRAM-SHA-256")
        scram = ScramClient(["SCRAM-SHA-256"], "alice", PASSWORD)
        first = await client.token(scram.get_client_first().encode())
        assert first is not None
        scram.set_server_first(first.decode())
        message = scram.get_client_final().encode()
        calls: list[int] = []

        def second_is_wrong(key: bytes, text: bytes, hashed: str) -> bytes:
            calls.append(1)
            return digest(b"other" if len(calls) == 2 else key, text, hashed)

        monkeypatch.setattr(mechanisms.hmac, "digest", second_is_wrong)
        final = await client.token(message)
        assert final is not None
        with pytest.raises(ScramException):
            scram.set_server_final(final.decode())


# --- delays, limits and floods --------------------------------------------------------------------


async def test_a_failure_is_answered_late() -> None:
    async with SaslLab(replace(CONFIG, failure_delay_ms=300)) as lab:
        client = await lab.dial()
        await client.handshake("PLAIN")
        loop = asyncio.get_running_loop()
        began = loop.time()
        with pytest.raises(FailureError):
            await client.token(plain("alice", "wrong"))
        assert loop.time() - began >= 0.3


@pytest.mark.parametrize("stage", [before_handshake, after_versions, in_scram])
async def test_an_authentication_that_is_not_completed_ends(
    stage: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "AUTHENTICATION_S", 0.3)
    async with SaslLab() as lab:
        client = await lab.dial()
        await stage(client)
        assert await client.is_closed()
        assert len(lab.connections) == 0
    assert "authentication took more than 0.3 s" in caplog.text


async def test_unauthenticated_floods_give_way_to_others_of_the_address() -> None:
    """What is sent before authentication does not make a connection younger."""
    async with SaslLab(connections=Connections(100, 4)) as lab:
        strangers = [await lab.dial() for _ in range(4)]
        for each in strangers:
            await each.versions()
        await strangers[0].handshake("PLAIN")
        broker = await lab.dial()
        await broker.handshake("PLAIN")
        await broker.token(plain("alice"))
        assert await strangers[0].is_closed(), "it is the oldest, although it sent the last request"
        assert await broker.works()
        for _ in range(3):
            await lab.dial()
        assert await broker.works()
        assert len(lab.connections) == 4


# --- sessions -------------------------------------------------------------------------------------

LIMITED = replace(CONFIG, reauth_ms={"PLAIN": 10_000, "SCRAM-SHA-256": 10_000})


async def authenticated(lab: SaslLab) -> Client:
    client = await lab.dial()
    await client.handshake("PLAIN")
    await client.token(plain("alice"))
    return client


async def test_a_session_ends_and_can_be_renewed_before() -> None:
    async with SaslLab(LIMITED) as lab:
        client = await authenticated(lab)
        assert client.lifetime_ms == 10_000
        lab.now_s = 9.0
        answer = await client.handshake("PLAIN")
        assert int(answer.error_code) == 0
        assert await client.token(plain("alice")) == b""
        lab.now_s = 18.0
        assert await client.works()
        lab.now_s = 19.1
        assert not await client.works()


async def test_an_expired_session_may_still_be_renewed() -> None:
    async with SaslLab(LIMITED) as lab:
        client = await authenticated(lab)
        lab.now_s = 11.0
        await client.handshake("PLAIN")
        await client.token(plain("alice"))
        assert await client.works()


async def test_a_renewal_keeps_principal_and_mechanism() -> None:
    async with SaslLab(LIMITED) as lab:
        client = await authenticated(lab)
        lab.now_s = 5.0
        await client.handshake("PLAIN")
        with pytest.raises(FailureError) as caught:
            await client.token(plain("bob", USERS["bob"]))
        assert "during re-authentication" in (caught.value.message or "")
        assert await client.is_closed()
        other = await authenticated(lab)
        lab.now_s = 10.0
        assert await other.handshake("SCRAM-SHA-256") is None
        assert not lab.heard.callers


async def test_a_renewal_is_not_interrupted_by_requests() -> None:
    async with SaslLab(LIMITED) as lab:
        client = await authenticated(lab)
        lab.now_s = 5.0
        await client.handshake("PLAIN")
        assert not await client.works()
        assert not lab.heard.callers


async def test_renewals_in_quick_succession_are_refused() -> None:
    async with SaslLab(LIMITED) as lab:
        client = await authenticated(lab)
        lab.now_s = 0.9
        answer = await client.handshake("PLAIN")
        assert int(answer.error_code) == ErrorCode.ILLEGAL_SASL_STATE
        assert await client.works()


async def test_a_delegation_token_limits_the_session() -> None:
    async with SaslLab(LIMITED) as lab:
        client = await lab.dial()
        await client.handshake("SCRAM-SHA-256")
        scram = TokenClient("id", "secret")
        first = await client.token(scram.first.encode())
        assert first is not None
        assert await client.token(scram.final(first.decode()).encode())
        assert client.lifetime_ms == 4_000
        await client.works()
        (caller,) = lab.heard.callers
        assert (caller.principal, caller.used_token) == ("User:alice", True)
        lab.now_s = 4.1
        assert not await client.works()


class TokenClient:
    """A SCRAM-SHA-256 client with Kafka's extension tokenauth."""

    def __init__(self, token_id: str, password: str) -> None:
        self.first = f"n,,n={token_id},r=nonce,tokenauth=true"
        self._password = password

    def final(self, server_first: str) -> str:
        return by_hand(self.first, server_first, "n,,", password=self._password)


async def test_a_token_is_not_a_user_and_vice_versa() -> None:
    async with SaslLab() as lab:
        for first in ("n,,n=alice,r=nonce,tokenauth=true", "n,,n=id,r=nonce"):
            client = await lab.dial()
            await client.handshake("SCRAM-SHA-256")
            answer = await client.token(first.encode())
            assert answer is not None
            with pytest.raises(FailureError):
                await client.token(by_hand(first, answer.decode(), "n,,").encode())
