"""OAUTHBEARER: which tokens are accepted, and where keys come from."""

from __future__ import annotations

import asyncio
import base64
import hmac
import json
import threading
import time
from collections.abc import AsyncIterator, Callable
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm
from quorate.bridge.authentication import oauth
from quorate.bridge.authentication.mechanisms import SaslError
from quorate.bridge.authentication.oauth import TokenValidator, parse_keys
from quorate.bridge.authentication.sasl_config import OAuthConfig, SaslConfig
from quorate.common.error_codes import ErrorCode

from tests.unit.bridge.sasl_support import FailureError, SaslLab

RSA, OTHER_RSA = (rsa.generate_private_key(65537, 2048) for _ in range(2))
EC = ec.generate_private_key(ec.SECP256R1())
ED = ed25519.Ed25519PrivateKey.generate()
KEYS = {
    "rsa": (RSA, "RS256", RSAAlgorithm.to_jwk(RSA.public_key())),
    "ec": (EC, "ES256", ECAlgorithm.to_jwk(EC.public_key())),
    "ed": (ED, "EdDSA", OKPAlgorithm.to_jwk(ED.public_key())),
}
NOW_S = int(time.time())
CLAIMS = {"sub": "alice", "iat": NOW_S, "exp": NOW_S + 600, "aud": "kafka", "iss": "https://idp"}


def key_set(*names: str, **fields: Any) -> bytes:
    found = [json.loads(KEYS[name][2]) | {"kid": name} | fields for name in names]
    return json.dumps({"keys": found}).encode()


def token(name: str = "rsa", headers: Any = None, algorithm: str = "", **claims: Any) -> str:
    key, usual, _ = KEYS[name]
    found = {key: value for key, value in (CLAIMS | claims).items() if value is not None}
    headers = {"kid": name} if headers is None else headers
    return jwt.encode(found, key, algorithm or usual, headers)


Make = Callable[..., Any]


@pytest.fixture
async def validator(tmp_path: Path) -> AsyncIterator[Make]:
    made: list[TokenValidator] = []

    async def make(keys: bytes = key_set(*KEYS), **fields: Any) -> TokenValidator:
        path = tmp_path / "keys.json"
        path.write_bytes(keys)
        found = TokenValidator(OAuthConfig(f"file://{path}", **fields))
        made.append(found)
        found.start()
        async with asyncio.timeout(10):
            while not found._keys:  # noqa: ASYNC110 - a set of keys has no event
                await asyncio.sleep(0.01)
        return found

    yield make
    for each in made:
        await each.close()


@pytest.mark.parametrize("name", KEYS)
async def test_signed_tokens_are_accepted(validator: Make, name: str) -> None:
    identity = await (await validator()).validate(token(name))
    assert (identity.user, identity.expires_ms) == ("alice", (NOW_S + 600) * 1000)


async def test_an_expiry_may_be_text(validator: Make) -> None:
    identity = await (await validator()).validate(token(exp=str(NOW_S + 600)))
    assert identity.expires_ms == (NOW_S + 600) * 1000


@pytest.mark.parametrize("algorithm", ["RS384", "RS512", "PS256"])
async def test_other_algorithms_of_the_key(validator: Make, algorithm: str) -> None:
    made = await validator()
    assert (await made.validate(token(algorithm=algorithm))).user == "alice"
    bound = await validator(key_set("rsa", alg="RS256"))
    with pytest.raises(SaslError):
        await bound.validate(token(algorithm=algorithm))


async def test_settings_that_tokens_must_match(validator: Make) -> None:
    made = await validator(audiences=("other", "kafka"), issuer="https://idp", subject_claim="name")
    claims = CLAIMS | {"name": "n", "aud": ["x", "kafka"]}
    assert (await made.validate(jwt.encode(claims, RSA, "RS256", {"kid": "rsa"}))).user == "n"


BAD_CLAIMS: list[dict[str, Any]] = [
    {"exp": NOW_S - 31},
    {"exp": None},
    {"iat": None},
    {"iat": NOW_S + 3_000},
    {"nbf": NOW_S + 3_000},
    {"sub": None},
    {"sub": ""},
    {"sub": " "},
    {"aud": "other"},
    {"aud": None},
    {"iss": "https://other"},
    {"iss": None},
    {"exp": "soon"},
    {"exp": 1e400},
]


@pytest.mark.parametrize("claims", BAD_CLAIMS)
async def test_claims_that_are_rejected(validator: Make, claims: dict[str, Any]) -> None:
    made = await validator(audiences=("kafka",), issuer="https://idp")
    with pytest.raises(SaslError):
        await made.validate(token(**claims))


async def test_the_clocks_may_differ(validator: Make) -> None:
    made = await validator(clock_skew_s=60)
    now_s = int(time.time())
    assert await made.validate(token(exp=now_s - 5))
    with pytest.raises(SaslError):
        await made.validate(token(exp=now_s - 600))


def unsigned() -> str:
    return jwt.encode(CLAIMS, None, "none", {"kid": "rsa"})


def signed_with_the_public_key() -> str:
    """The confusion of an RSA key with the secret of an HMAC."""
    pem = RSA.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    parts = [{"alg": "HS256", "typ": "JWT", "kid": "rsa"}, CLAIMS]
    text = b".".join(base64.urlsafe_b64encode(json.dumps(e).encode()).rstrip(b"=") for e in parts)
    signature = hmac.digest(pem, text, "sha256")
    return (text + b"." + base64.urlsafe_b64encode(signature).rstrip(b"=")).decode()


@pytest.mark.parametrize(
    "bad",
    [
        unsigned(),
        signed_with_the_public_key(),
        jwt.encode(CLAIMS, OTHER_RSA, "RS256", {"kid": "rsa"}),
        jwt.encode(CLAIMS, RSA, "RS256", {"kid": "unknown"}),
        jwt.encode(CLAIMS, RSA, "RS256"),
        jwt.encode(CLAIMS, RSA, "RS256", {"kid": "ec"}),
        token()[:-10],
        token()[:50],
        token() + "x",
        token() + ".x",
        "",
        "...",
        "a.b.c",
        "x" * 100_000,
        token(padding="x" * 70_000),
    ],
)
async def test_tokens_that_are_rejected(validator: Make, bad: str) -> None:
    with pytest.raises(SaslError):
        await (await validator()).validate(bad)


async def test_a_set_of_one_key_needs_no_name(validator: Make) -> None:
    made = await validator(key_set("ec"))
    assert await made.validate(token("ec", headers={}))


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{}",
        b"[]",
        b'{"keys": []}',
        b'{"keys": [1]}',
        b'{"keys": [{"kty": "oct", "k": "AAAA", "kid": "rsa"}]}',
        b'{"keys": [{"kty": "RSA"}]}',
        b"\xff",
        key_set("rsa", use="enc"),
        key_set("rsa", alg="HS256"),
    ],
)
def test_sets_without_a_usable_key(text: bytes) -> None:
    with pytest.raises(ValueError, match="key"):
        parse_keys(text)


async def test_changed_keys_are_read_again(
    validator: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = await validator(key_set("rsa"))
    monkeypatch.setattr(oauth, "UNKNOWN_KEY_S", 0.0)
    (tmp_path / "keys.json").write_bytes(key_set("ec"))
    with pytest.raises(SaslError):
        await made.validate(token("ec"))
    async with asyncio.timeout(10):
        while "ec" not in made._keys:  # noqa: ASYNC110 - a set of keys has no event
            await asyncio.sleep(0.01)
    assert await made.validate(token("ec"))
    (tmp_path / "keys.json").write_bytes(b"no keys")
    with pytest.raises(SaslError):
        await made.validate(token("rsa"))
    await asyncio.sleep(0.2)
    assert await made.validate(token("ec")), "the old keys remain"


async def test_unknown_keys_do_not_cause_a_flood_of_reads() -> None:
    reads: list[str] = []

    def read(url: str) -> Any:
        reads.append(url)
        return parse_keys(key_set("rsa"))

    made = TokenValidator(OAuthConfig("file:///x"), read)
    made.start()
    try:
        for _ in range(100):
            with pytest.raises(SaslError):
                await made.validate(token("ec"))
            await asyncio.sleep(0)
        await asyncio.sleep(0.1)
    finally:
        await made.close()
    assert len(reads) == 1


async def test_keys_over_http_are_retried() -> None:
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            text = key_set("rsa") if len(asked) > 2 else b"x" * (oauth.KEYS_BYTES_MAX + 1)
            self.send_response(200)
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}/keys"
    made = TokenValidator(OAuthConfig(url, retry_backoff_ms=1, retry_backoff_max_ms=2))
    made.start()
    try:
        async with asyncio.timeout(10):
            while not made._keys:  # noqa: ASYNC110 - a set of keys has no event
                await asyncio.sleep(0.01)
        assert await made.validate(token())
        assert len(asked) == 3
    finally:
        await made.close()
        server.shutdown()
        server.server_close()


# --- the exchange ---------------------------------------------------------------------------------


def initial(bearer: str, authorization_id: str = "") -> bytes:
    named = f"a={authorization_id}" if authorization_id else ""
    return f"n,{named},\x01auth=Bearer {bearer}\x01\x01".encode()


def config() -> SaslConfig:
    return SaslConfig(
        ("OAUTHBEARER",), failure_delay_ms=1, reauth_ms={"OAUTHBEARER": 0}, oauth=OAuthConfig("x")
    )


async def test_a_client_authenticates_with_a_token(validator: Make) -> None:
    made = await validator()
    async with SaslLab(config(), made.validate) as lab:
        lab.wall_ms = NOW_S * 1000
        client = await lab.dial()
        await client.handshake("OAUTHBEARER")
        assert await client.token(initial(token(), "alice")) == b""
        assert client.lifetime_ms == 600_000
        assert await client.works()
        assert lab.heard.callers[0].principal == "User:alice"


async def test_a_rejected_token_is_challenged_and_then_fails(
    validator: Make, caplog: pytest.LogCaptureFixture
) -> None:
    made = await validator()
    bad = token(exp=NOW_S - 1_000)
    async with SaslLab(config(), made.validate) as lab:
        for answer in (b"\x01", initial(token())):
            client = await lab.dial()
            await client.handshake("OAUTHBEARER")
            assert await client.token(initial(bad)) == b'{"status": "invalid_token"}'
            with pytest.raises(FailureError) as caught:
                await client.token(answer)
            assert caught.value.error == ErrorCode.SASL_AUTHENTICATION_FAILED
            assert await client.is_closed()
        assert not lab.heard.callers
    assert bad not in caplog.text
    assert "ExpiredSignatureError" in caplog.text


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"n,,\x01\x01",
        b"n,,\x01auth=Basic eA\x01\x01",
        b"n,,\x01auth=Bearer \x01\x01",
        f"n,,\x01auth=Bearer {token()}\x01".encode(),
        f"n,,\x01auth=Bearer {token()}\x01auth=Bearer {token()}\x01\x01".encode(),
        initial(token(), "bob"),
        b"\xff",
    ],
)
async def test_malformed_messages(validator: Make, message: bytes) -> None:
    made = await validator()
    async with SaslLab(config(), made.validate) as lab:
        client = await lab.dial()
        await client.handshake("OAUTHBEARER")
        with pytest.raises(FailureError):
            await client.token(message)
        assert not lab.heard.callers
