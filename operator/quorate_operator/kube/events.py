"""Records the Events of one custom resource, and limits how many there are.

1. An Event that was recorded before is not created again: its count and time change.
2. When many Events have the same reason but different texts, they are combined into one.
3. Each type has a budget of BURST Events, of which one comes back every REFILL_S. Without budget,
   an Event is dropped. Normal Events cannot use up the budget of warnings.

Source: client-go, tools/record/events_cache.go (EventCorrelator), with its limits.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from quorate_operator import naming
from quorate_operator.kube.api import Kube, KubeError
from quorate_operator.kube.writer import Owner
from quorate_operator.naming import Object

MANAGER = "quorate-operator"
BURST = 25
REFILL_S = 300.0
SIMILAR_MAX = 10
"""Beyond this number of texts within SIMILAR_S, the Events of one reason are combined."""
SIMILAR_S = 600.0
REMEMBERED_MAX = 64
"""The number of Events that can be counted on; the oldest is forgotten first."""
TEXT_CHARACTERS_MAX = 1024
COMBINED = "(combined from similar events): "


class _Key(NamedTuple):
    kind: str
    reason: str
    text: str


@dataclass(slots=True)
class _Recorded:
    name: str
    count: int


@dataclass(slots=True)
class _Budget:
    left: float = BURST
    at: float = 0.0

    def take(self, now: float) -> bool:
        self.left = min(BURST, self.left + (now - self.at) / REFILL_S)
        self.at = now
        if self.left < 1:
            return False
        self.left -= 1
        return True


@dataclass(slots=True)
class EventRecorder:
    """The Events of one resource. Its method blocks; call it on a thread."""

    clock: Callable[[], float] = time.monotonic
    _recorded: dict[_Key, _Recorded] = field(default_factory=dict)
    _budgets: dict[str, _Budget] = field(default_factory=dict)
    _texts: dict[tuple[str, str], dict[str, float]] = field(default_factory=dict)

    def record(self, kube: Kube, owner: Owner, kind: str, reason: str, text: str) -> None:
        """Create an Event of type `kind`, or count one that exists. Raises KubeError."""
        now = self.clock()
        if not self._budgets.setdefault(kind, _Budget(at=now)).take(now):
            return
        key = _Key(kind, reason, "" if self._is_one_of_many(kind, reason, text, now) else text)
        shown = text if key.text else COMBINED + text
        known = self._recorded.get(key)
        if known is None or not self._count(kube, owner, known, shown):
            made = kube.create("Event", owner.namespace, _body(owner, kind, reason, shown), MANAGER)
            self._recorded[key] = _Recorded(made["metadata"]["name"], 1)
            if len(self._recorded) > REMEMBERED_MAX:
                del self._recorded[next(iter(self._recorded))]

    def _is_one_of_many(self, kind: str, reason: str, text: str, now: float) -> bool:
        texts = self._texts.setdefault((kind, reason), {})
        for old in [known for known, at in texts.items() if now - at > SIMILAR_S]:
            del texts[old]
        if len(texts) >= SIMILAR_MAX and text not in texts:
            return True
        texts[text] = now
        return False

    def _count(self, kube: Kube, owner: Owner, known: _Recorded, text: str) -> bool:
        """Count an Event once more. Return False if it has expired."""
        changed = {
            "count": known.count + 1,
            "lastTimestamp": _timestamp(),
            "message": text[:TEXT_CHARACTERS_MAX],
        }
        try:
            kube.merge("Event", owner.namespace, known.name, changed)
        except KubeError as error:
            if error.status == 404:
                return False
            raise
        known.count += 1
        return True


def _timestamp() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def _body(owner: Owner, kind: str, reason: str, text: str) -> Object:
    now = _timestamp()
    return {
        "metadata": {"generateName": f"{owner.name}-", "namespace": owner.namespace},
        "involvedObject": {
            "apiVersion": naming.API_VERSION,
            "kind": owner.kind,
            "name": owner.name,
            "namespace": owner.namespace,
            "uid": owner.uid,
        },
        "type": kind,
        "reason": reason,
        "message": text[:TEXT_CHARACTERS_MAX],
        "source": {"component": MANAGER},
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
    }
