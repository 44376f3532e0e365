"""What users can name: commands with their options. Release 0.1.0 can run it, too.

python tests/releases/probe.py        with 0.1.0: prints its commands and settings as JSON
"""

from __future__ import annotations

import json
from typing import Any

try:
    from quorate.cli.commands import COMMANDS, load
except ImportError:  # release 0.1.0
    from quorate.cli.main import COMMANDS, load


def commands() -> dict[str, list[str]]:
    """The options of each command, all their names."""
    found: dict[str, list[str]] = {}

    def walk(path: str, command: Any) -> None:
        names = {name for each in command.params for name in (*each.opts, *each.secondary_opts)}
        found[path] = sorted(name for name in names if name.startswith("-"))
        for name, child in getattr(command, "commands", {}).items():
            walk(f"{path} {name}", child)

    for name, lazy in COMMANDS.items():
        walk(name, load(name, lazy))
    return found


if __name__ == "__main__":
    from quorate.cli import broker_settings
    from quorate.controller import settings

    names = {
        "controller": sorted(settings.BY_NAME),
        "broker": sorted(broker_settings.SETTINGS),
    }
    print(json.dumps({"commands": commands(), "settings": names}))
