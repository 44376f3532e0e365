"""Failpoints: named places in the code where a test can step in.

A failpoint does nothing unless a test has registered an action for it in `ACTIONS`, in the same
process. No setting and no environment variable reaches it: `tests/launcher.py` starts processes
with actions.
"""

from __future__ import annotations

from collections.abc import Callable

ACTIONS: dict[str, Callable[[], None]] = {}
"""What happens at a failpoint, by its name."""


def failpoint(name: str) -> None:
    """Run the action that is registered for this place, if any."""
    action = ACTIONS.get(name)
    if action is not None:
        action()
