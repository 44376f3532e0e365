"""What a run found: counts of requests and records, and the differences by kind."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from tests.kafka_differential.comparing import Difference
from tests.kafka_differential.reasons import Reason, reason_of

TEXT_MAX: Final = 3_000
COMMAND: Final = "python -m tests.kafka_differential"


@dataclass(slots=True)
class Kind:
    """Differences of one kind. seed, number, body, first: of the first one. reason: why it is
    meant.
    """

    seed: int
    number: int
    body: str
    first: Difference
    reason: Reason | None
    count: int = 0

    @property
    def command(self) -> str:
        """What shows the first one again: its pair of controllers alone."""
        return f"{COMMAND} --seed {self.seed} --requests {self.number}"

    def as_json(self) -> dict[str, Any]:
        return {
            "count": self.count,
            "reason": None if self.reason is None else self.reason.text,
            "seed": self.seed,
            "number": self.number,
            "request": self.body,
            "reproduce": self.command,
            "difference": {
                "request": self.first.request,
                "what": self.first.what,
                "detail": self.first.detail,
                "kafka": self.first.kafka,
                "quorate": self.first.quorate,
            },
        }

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> Kind:
        first = Difference(**found["difference"])
        where = found["seed"], found["number"], found["request"]
        return cls(*where, first, reason_of(first), found["count"])


@dataclass(slots=True)
class Report:
    """What one pair of controllers did, or several. seed: of the first pair; each has the next.
    requests: by name. records: written by Kafka's controller, by type. pairs: their number.
    repairs: how often the controllers were made to agree again (`repairing`). violations:
    invariants that do not hold in the logs (`tests/logs/checks.py`). seconds: of the requests
    alone. failure: why the run ended early.
    """

    seed: int
    requests: Counter[str] = field(default_factory=Counter)
    records: Counter[str] = field(default_factory=Counter)
    kinds: dict[str, Kind] = field(default_factory=dict)
    pairs: int = 0
    repairs: int = 0
    violations: list[str] = field(default_factory=list)
    seconds: float = 0.0
    failure: str = ""

    def add(self, number: int, body: str, difference: Difference) -> Kind:
        """Count a difference. number, body: of its request."""
        kind = self.kinds.get(difference.kind)
        if kind is None:
            kind = self.kinds[difference.kind] = Kind(
                self.seed, number, body[:TEXT_MAX], difference, reason_of(difference)
            )
        kind.count += 1
        return kind

    def merge(self, later: Report) -> None:
        """Add what later pairs did."""
        self.requests += later.requests
        self.records += later.records
        for name, kind in later.kinds.items():
            if name in self.kinds:
                self.kinds[name].count += kind.count
            else:
                self.kinds[name] = kind
        self.pairs += later.pairs
        self.repairs += later.repairs
        self.violations += later.violations
        self.seconds += later.seconds
        self.failure = self.failure or later.failure

    @property
    def total(self) -> int:
        return self.requests.total()

    @property
    def unlisted(self) -> list[Kind]:
        return [each for each in self.kinds.values() if each.reason is None]

    @property
    def rate(self) -> float:
        """Requests per second, each sent to both controllers."""
        return self.total / self.seconds if self.seconds else 0.0

    @property
    def is_clean(self) -> bool:
        return not (self.unlisted or self.violations or self.failure)

    def as_json(self) -> dict[str, Any]:
        return {
            "seed": self.seed,
            "requests": dict(self.requests),
            "records": dict(self.records),
            "pairs": self.pairs,
            "repairs": self.repairs,
            "violations": self.violations,
            "seconds": round(self.seconds, 1),
            "failure": self.failure,
            "differences": {name: kind.as_json() for name, kind in self.kinds.items()},
        }

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> Report:
        return cls(
            found["seed"],
            Counter(found["requests"]),
            Counter(found["records"]),
            {name: Kind.from_json(each) for name, each in found["differences"].items()},
            found["pairs"],
            found["repairs"],
            found["violations"],
            found["seconds"],
            found["failure"],
        )
