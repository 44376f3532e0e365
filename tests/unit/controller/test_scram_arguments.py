"""`storage format --add-scram`: its argument, and what the quorum starts with."""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path

import pytest
from quorate.controller.bootstrap import read_bootstrap
from quorate.controller.config_reader import load_config
from quorate.controller.formatting import FormatError, format_directory
from quorate.controller.scram_arguments import parse_scram
from quorate.records.metadata import FeatureLevelRecord, UserScramCredentialRecord
from quorate.rpc.wire.values import FormatMode
from scramp import ScramMechanism

from tests.unit.controller.test_controller_config import BASE

SALT = b"0123456789abcdef"
PASSWORD = "alice-secret"
ENCODED = base64.b64encode(SALT).decode()
CLUSTER = "AAAAAAAAAAAAAAAAAAAABA"


@pytest.mark.parametrize(
    ("mechanism", "number", "hashed"),
    [("SCRAM-SHA-256", 1, "sha256"), ("SCRAM-SHA-512", 2, "sha512")],
)
def test_keys_are_those_of_another_implementation(mechanism: str, number: int, hashed: str) -> None:
    _, stored, server, _ = ScramMechanism(mechanism).make_auth_info(PASSWORD, 5_000, SALT)
    expected = UserScramCredentialRecord("alice", number, SALT, stored, server, 5_000, version=0)
    salted = hashlib.pbkdf2_hmac(hashed, PASSWORD.encode(), SALT, 5_000)
    rest = f'iterations=5000,salt="{ENCODED}"'
    encoded = base64.b64encode(salted).decode()
    for secret in (f"password={PASSWORD}", f'saltedpassword="{encoded}"'):
        assert parse_scram(f"{mechanism}=[name=alice,{secret},{rest}]") == expected


def test_salts_are_random_and_quoted_passwords_may_have_commas() -> None:
    first, second = (parse_scram('SCRAM-SHA-256=[name=a,password="p,q=r"]') for _ in range(2))
    assert first.salt != second.salt
    assert first.iterations == 4_096
    info = ScramMechanism("SCRAM-SHA-256").make_auth_info("p,q=r", 4_096, first.salt)
    assert info[1] == first.stored_key


@pytest.mark.parametrize(
    "text",
    [
        "",
        PASSWORD,
        f"SCRAM-SHA-1=[name=a,password={PASSWORD}]",
        f"SCRAM-SHA-256=name=a,password={PASSWORD}",
        f"SCRAM-SHA-256=[password={PASSWORD}]",
        f"SCRAM-SHA-256=[name=,password={PASSWORD}]",
        "SCRAM-SHA-256=[name=a]",
        f"SCRAM-SHA-256=[name=a,password={PASSWORD},saltedpassword=AAAA]",
        f"SCRAM-SHA-256=[name=a,name=b,password={PASSWORD}]",
        f"SCRAM-SHA-256=[name=a,password={PASSWORD},other=1]",
        f"SCRAM-SHA-256=[name=a,password={PASSWORD},iterations=4095]",
        f"SCRAM-SHA-256=[name=a,password={PASSWORD},iterations=16385]",
        f"SCRAM-SHA-256=[name=a,password={PASSWORD},iterations=999999999]",
        f"SCRAM-SHA-256=[name=a,password={PASSWORD},iterations=x]",
        f"SCRAM-SHA-256=[name=a,password={PASSWORD},salt={PASSWORD}]",
        "SCRAM-SHA-256=[name=a,saltedpassword=AAAA]",
        f"SCRAM-SHA-256=[name=a,saltedpassword=AAAA,salt={ENCODED}]",
    ],
)
def test_what_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"\w") as caught:
        parse_scram(text)
    assert PASSWORD not in str(caught.value)


def test_a_quorum_is_formatted_with_credentials(tmp_path: Path) -> None:
    credential = parse_scram(f"SCRAM-SHA-256=[name=alice,password={PASSWORD}]")
    path = tmp_path / "controller.properties"
    settings = BASE | {"log.dirs": str(tmp_path / "data")}
    path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    config = load_config(path, {})
    with pytest.raises(FormatError, match="SCRAM is only supported in"):
        format_directory(
            config, CLUSTER, FormatMode.STANDALONE, release=8, credentials=[credential]
        )
    format_directory(config, CLUSTER, FormatMode.STANDALONE, credentials=[credential])
    records = read_bootstrap(config)
    assert isinstance(records[0], FeatureLevelRecord)
    assert records[-1] == credential
