"""Options that several commands share.

A dataclass declares them: its fields are Typer's annotated parameters with defaults. A command that
`with_groups` decorates takes an instance of the dataclass as one parameter, in whose place its help
lists the options.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any, get_type_hints


def with_groups(command: Callable[..., None]) -> Callable[..., None]:
    """Replace each parameter whose type is a dataclass by the fields, as options of the command."""
    parameters: list[inspect.Parameter] = []
    groups: dict[str, tuple[Any, list[str]]] = {}
    for parameter in inspect.signature(command, eval_str=True).parameters.values():
        group = parameter.annotation
        if dataclasses.is_dataclass(group):
            fields = _parameters(group)
            parameters += fields
            groups[parameter.name] = group, [field.name for field in fields]
        else:
            parameters.append(parameter)

    @functools.wraps(command)
    def run_command(*args: Any, **given: Any) -> None:
        for name, (group, fields) in groups.items():
            given[name] = group(**{field: given.pop(field) for field in fields})
        command(*args, **given)

    declare(run_command, parameters)
    return run_command


def _parameters(group: Any) -> list[inspect.Parameter]:
    hints = get_type_hints(group, include_extras=True)
    return [
        inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=field.default,
            annotation=hints[field.name],
        )
        for field in dataclasses.fields(group)
    ]


def declare(command: Any, parameters: Sequence[inspect.Parameter]) -> None:
    """Set the signature of a wrapped command, from which Typer derives the options."""
    command.__signature__ = inspect.Signature(parameters)
    command.__annotations__ = {each.name: each.annotation for each in parameters}
