"""What a run of the protocol may break."""

from __future__ import annotations


class InvariantError(AssertionError):
    """An invariant of the protocol, of its contract with the driver, or of its clients broke.

    name: the invariant's, as in `tests/simulation/invariants.py` or `tests/logs/checks.py`.
    """

    def __init__(self, name: str, text: str) -> None:
        super().__init__(f"{name}: {text}")
        self.name = name
        self.text = text
