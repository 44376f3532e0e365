"""The reference pages that are generated: settings, metrics and commands.

    python tests/tools/reference.py write
    python tests/tools/reference.py check        exit status 1 if a page is out of date

Settings are as the configurations of controllers and brokers declare them (`common.setting`),
metrics as `telemetry.catalogue` does.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "services"), str(ROOT)]

from quorate.cli.broker_settings import BROKER  # noqa: E402
from quorate.common.setting import Setting  # noqa: E402
from quorate.controller.config import CONTROLLER  # noqa: E402
from quorate.telemetry.catalogue import table  # noqa: E402

from tests.tools.command_pages import commands  # noqa: E402
from tests.tools.pages import Page  # noqa: E402

SETTINGS_PAGE = ROOT / "docs" / "configuration.md"

HEAD = """# Configuration

`poe reference` generates this page from the declarations of the settings.

A setting is in the properties file that a process is started with, or in its environment, which
overrides the file. The settings of Kafka have Kafka's defaults unless stated otherwise. The
description of any other setting begins with "Quorate-specific". `quorate config-docs` and
`quorate broker --help-settings` print the settings of one role.
"""
METRICS_PAGE = Page(ROOT / "docs" / "metrics.md", "reference", table)
COMMANDS_PAGE = Page(ROOT / "docs" / "cli.md", "reference", commands)


def settings_page() -> str:
    """The page of the settings as the declarations have it."""
    return "\n".join((HEAD, settings_table(), ""))


def settings_table() -> str:
    columns = ("setting", "role", "type", "default", "accepted", "environment", "meaning")
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    roles: dict[tuple[str, Setting], list[str]] = {}
    for config_def in (CONTROLLER, BROKER):
        for name, setting in config_def.settings.items():
            roles.setdefault((name, setting), []).append(config_def.process)
    for (name, setting), of in sorted(roles.items(), key=lambda item: (item[0][0], item[1])):
        cells = (
            f"`{name}`",
            ", ".join(of),
            setting.type.name,
            f"`{setting.default}`" if setting.default else "",
            setting.type.accepts,
            f"`{setting.variable}`",
            setting.doc,
        )
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines)


def pages() -> Mapping[Path, str]:
    """Each page as it should be."""
    parts = {page.path: page.wanted() for page in (METRICS_PAGE, COMMANDS_PAGE)}
    return {SETTINGS_PAGE: settings_page(), **parts}


def main(command: str) -> int:
    status = 0
    for path, text in pages().items():
        if command == "write":
            path.write_text(text)
        elif not path.exists() or path.read_text() != text:
            print(f"{path} is out of date: poe reference", file=sys.stderr)
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
