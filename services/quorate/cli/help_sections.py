"""Lists the options of a command's help in sections, such as those of the connection."""

from __future__ import annotations

from typing import Any


def list_in_sections(command: Any) -> None:
    """Do so for a command and its subcommands. An option's `rich_help_panel` names its section."""
    children = getattr(command, "commands", None)

    def format_options(context: Any, formatter: Any) -> None:
        sections: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": []}
        for param in command.get_params(context):
            record = param.get_help_record(context)
            if record is not None:
                sections.setdefault(_section(param), []).append(record)
        for title, records in sections.items():
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)
        if children is not None:
            command.format_commands(context, formatter)

    command.format_options = format_options
    for child in (children or {}).values():
        list_in_sections(child)


def _section(param: Any) -> str:
    default = "Arguments" if param.param_type_name == "argument" else "Options"
    return getattr(param, "rich_help_panel", None) or default
