"""`quorate config-docs`: the table of a controller's settings."""

from __future__ import annotations

import shutil
import textwrap
from enum import StrEnum
from typing import Annotated

import typer

from quorate.cli.output import AsJson, print_json


class Layout(StrEnum):
    TEXT = "text"
    MARKDOWN = "markdown"


def config_docs(
    as_json: AsJson = False,
    layout: Annotated[
        Layout, typer.Option("--format", help="How to print the table.")
    ] = Layout.TEXT,
) -> None:
    """List a controller's settings: names, forms, defaults, what they mean.

    Each can be in the properties file or, with more weight, in the environment: node.id is
    QUORATE_NODE_ID.
    """
    from quorate.controller.settings import SETTINGS

    if as_json:
        print_json(
            [
                {
                    "name": setting.name,
                    "variable": setting.variable,
                    "type": setting.form.type,
                    "default": setting.default,
                    "accepts": setting.form.accepts,
                    "doc": setting.doc,
                }
                for setting in SETTINGS
            ]
        )
    elif layout is Layout.MARKDOWN:
        print("| setting | type | default | accepted | meaning |\n|---|---|---|---|---|")
        for setting in SETTINGS:
            form = setting.form
            print(
                f"| `{setting.name}` | {form.type} | {setting.default or ''} | {form.accepts} "
                f"| {setting.doc} |"
            )
    else:
        print(settings_text(min(100, shutil.get_terminal_size().columns)))


def settings_text(width: int) -> str:
    """Every setting with its form, default, variable and meaning, in `width` columns."""
    from quorate.controller.settings import SETTINGS

    blocks = []
    for setting in SETTINGS:
        form = setting.form
        default = f", default {setting.default}" if setting.default else ""
        body = [f"{form.type}: {form.accepts}{default}", setting.variable, setting.doc]
        blocks.append(
            "\n".join(
                [
                    setting.name,
                    *(
                        textwrap.fill(line, width, initial_indent="    ", subsequent_indent="    ")
                        for line in body
                    ),
                ]
            )
        )
    return "\n\n".join(blocks)
