"""Reads the argument of `storage format --add-scram`.

    SCRAM-SHA-256=[name=alice,password=alice-secret,iterations=8192,salt="MTIzNA=="]

Instead of the password the salted one can be given, `saltedpassword`, with its salt: in Base64.
Errors never quote the argument, because it contains a password.

Source: KIP-900; Kafka's ScramParser.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
import secrets

from quorate.common.scram import MECHANISM_NAMES
from quorate.metadata.image.scram import HASHES, MAX_ITERATIONS, MIN_ITERATIONS
from quorate.metadata.managers.controller_context import RefusedError
from quorate.metadata.managers.principal_manager import credential_of
from quorate.metadata.requests import ScramUpsertion
from quorate.records.metadata import UserScramCredentialRecord

SALT_BYTES = 20
_ARGUMENT = re.compile(r"(?P<mechanism>[^=]+)=\[(?P<pairs>.*)\]", re.DOTALL)
_PAIR = re.compile(r'(?P<key>[a-z]+)=(?:"(?P<quoted>[^"]*)"|(?P<bare>[^,"]*))(?:,|$)')
_KEYS = frozenset({"name", "password", "iterations", "salt", "saltedpassword"})


def parse_scram(text: str) -> UserScramCredentialRecord:
    """Parse one credential. Raises ValueError with a reason that quotes no part of the text."""
    found = _ARGUMENT.fullmatch(text.strip())
    number = next(
        (n for n, name in MECHANISM_NAMES.items() if found and name == found["mechanism"]), 0
    )
    if found is None or not number:
        raise ValueError(f"expected MECHANISM=[name=…,password=…], with {_mechanisms()}")
    values = _values(found["pairs"])
    if not values.get("name"):
        raise ValueError("name is missing")
    if ("password" in values) is ("saltedpassword" in values):
        raise ValueError("it needs either password or saltedpassword")
    if "saltedpassword" in values and "salt" not in values:
        raise ValueError("saltedpassword needs its salt")
    iterations = values.get("iterations", str(MIN_ITERATIONS))
    if not (iterations.isascii() and iterations.isdigit() and len(iterations) < 10):
        raise ValueError("iterations is not a number")
    salt = _decoded(values, "salt") if "salt" in values else secrets.token_bytes(SALT_BYTES)
    if "saltedpassword" in values:
        salted = _decoded(values, "saltedpassword")
    else:
        # A number outside these limits is rejected below, without the work.
        count = min(max(MIN_ITERATIONS, int(iterations)), MAX_ITERATIONS)
        password = values["password"].encode()
        salted = hashlib.pbkdf2_hmac(HASHES[number], password, salt, count)
    try:
        return credential_of(ScramUpsertion(values["name"], number, int(iterations), salt, salted))
    except RefusedError as refused:
        raise ValueError(refused.message) from None


def _mechanisms() -> str:
    return " or ".join(MECHANISM_NAMES.values())


def _values(text: str) -> dict[str, str]:
    values: dict[str, str] = {}
    position = 0
    while position < len(text):
        pair = _PAIR.match(text, position)
        if pair is None or pair["key"] not in _KEYS or pair["key"] in values:
            raise ValueError(f"expected {', '.join(sorted(_KEYS))}, each at most once")
        values[pair["key"]] = pair["bare"] if pair["quoted"] is None else pair["quoted"]
        position = pair.end()
    return values


def _decoded(values: dict[str, str], key: str) -> bytes:
    try:
        return base64.b64decode(values[key], validate=True)
    except binascii.Error:
        raise ValueError(f"{key} is not Base64") from None
