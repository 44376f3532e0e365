"""`quorate config-docs`: the table of a controller's settings."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Iterable
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from quorate.cli.options import AsJson
from quorate.cli.output import print_json

if TYPE_CHECKING:
    from quorate.common.setting import Setting


class Layout(StrEnum):
    TEXT = "text"
    MARKDOWN = "markdown"


def config_docs(
    as_json: AsJson = False,
    layout: Annotated[
        Layout, typer.Option("--format", help="The format of the table.")
    ] = Layout.TEXT,
) -> None:
    """List a controller's settings: name, type, default and meaning.

    Each can be set in the properties file or in the environment, which takes precedence: node.id
    is QUORATE_NODE_ID.
    """
    from quorate.controller.config import CONTROLLER

    if as_json:
        print_json(
            [
                {
                    "name": setting.name,
                    "variable": setting.variable,
                    "type": setting.type.name,
                    "default": setting.default,
                    "accepts": setting.type.accepts,
                    "doc": setting.doc,
                }
                for setting in CONTROLLER.settings.values()
            ]
        )
    elif layout is Layout.MARKDOWN:
        print("| setting | type | default | accepted | meaning |\n|---|---|---|---|---|")
        for setting in CONTROLLER.settings.values():
            value = setting.type
            print(
                f"| `{setting.name}` | {value.name} | {setting.default or ''} | {value.accepts} "
                f"| {setting.doc} |"
            )
    else:
        print(settings_text(min(100, shutil.get_terminal_size().columns)))


def settings_text(width: int) -> str:
    """Explain every setting of a controller in `width` columns."""
    from quorate.controller.config import CONTROLLER

    return explained(CONTROLLER.settings.values(), width)


def explained(settings: Iterable[Setting], width: int) -> str:
    """Explain each setting: type, default, environment variable and meaning, in `width` columns."""
    blocks = []
    for setting in settings:
        value = setting.type
        default = f", default {setting.default}" if setting.default else ""
        body = (f"{value.name}: {value.accepts}{default}", setting.variable, setting.doc)
        lines = (
            textwrap.fill(line, width, initial_indent="    ", subsequent_indent="    ")
            for line in body
        )
        blocks.append("\n".join((setting.name, *lines)))
    return "\n\n".join(blocks)
