"""Some hostile requests against real controllers; `python -m tests.hostile.live` sends more."""

from __future__ import annotations

import os
import random
from pathlib import Path

from tests.certificates import needs_openssl
from tests.hostile.live import Plan, attack_closed, attack_open
from tests.hostile.messages import methods

COUNT = int(os.environ.get("QUORATE_HOSTILE_REQUESTS", "600"))
SEED = os.environ.get("QUORATE_HOSTILE_SEED", str(random.randrange(1 << 31)))


@needs_openssl
def test_an_attacker_without_rights_changes_nothing(tmp_path: Path) -> None:
    report = attack_closed(tmp_path / "closed", Plan(SEED, COUNT))
    assert {"INVALID_ARGUMENT", "PERMISSION_DENIED"} <= report.ended.keys(), (SEED, report)


def test_where_everybody_may_ask_promises_are_kept(tmp_path: Path) -> None:
    report = attack_open(tmp_path, Plan(SEED, COUNT))
    assert {"OK", "INVALID_ARGUMENT"} <= report.ended.keys(), (SEED, report)


def test_every_service_is_attacked() -> None:
    served = {method.path.split("/")[1] for method in methods()}
    assert {
        *("quorate.v1.Raft", "quorate.v1.Quorum", "quorate.v1.Metadata"),
        *("quorate.v1.BrokerLifecycle", "grpc.health.v1.Health"),
        "grpc.reflection.v1alpha.ServerReflection",
    } == served
