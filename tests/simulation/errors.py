"""How a run may end early."""

from __future__ import annotations


class NobodyCanWinError(Exception):
    """The run ends without a leader, as it must (see `electable`)."""
