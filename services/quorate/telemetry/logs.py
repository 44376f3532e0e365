"""The log of a process: text lines for people, or one JSON object per line for programs.

Every record of a node carries the node id and, once its replica runs, the epoch and the log end
offset at that time. An event may give its own epoch (`extra`): the current one may be later.
Secrets are never logged: messages name files, ids and addresses.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from enum import StrEnum
from typing import TextIO

Position = tuple[int, int]
"""The epoch and the log end offset."""


class LogFormat(StrEnum):
    TEXT = "text"
    JSON = "json"


class LogLevel(StrEnum):
    """The lowest level that is logged."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class NodeContext(logging.Filter):
    """Adds role, node id and position to each record.

    position: None while there is no replica. set_level: changes the level of the process if its
    log is configured here; that of a program that embeds a node is the program's.
    """

    def __init__(self, role: str, node_id: int) -> None:
        super().__init__()
        self._role = role
        self._node_id = node_id
        self.position: Callable[[], Position] | None = None
        self.set_level: Callable[[LogLevel], None] = lambda _level: None

    def filter(self, record: logging.LogRecord) -> bool:
        record.role, record.node_id = self._role, self._node_id
        epoch, record.offset = self.position() if self.position else (None, None)
        record.epoch = record.__dict__.get("epoch", epoch)
        return True


_CONTROLS = [*range(0x20), *range(0x7F, 0xA0), 0x061C, 0x200E, 0x200F, *range(0x2028, 0x202F)]
_CONTROLS += range(0x2066, 0x206A)
ESCAPES = {code: f"\\u{code:04x}" for code in _CONTROLS}
"""Characters that break a line, control a terminal or change the text direction.

Names and reasons come from callers. The escapes are those of JSON.
"""


class TextFormatter(logging.Formatter):
    """`time LEVEL [controller 1 epoch 3 offset 42] message`, in one line except for a traceback."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        where = f"{record.__dict__['role']} {record.__dict__['node_id']}"
        epoch = record.__dict__["epoch"]
        if epoch is not None:
            where += f" epoch {epoch} offset {record.__dict__['offset']}"
        message = record.message.translate(ESCAPES)
        return f"{record.asctime} {record.levelname} [{where}] {message}"

    def usesTime(self) -> bool:  # noqa: N802 - logging's name
        return True


class JsonFormatter(logging.Formatter):
    """One object per line: time, level, logger, node_id, epoch, offset, message, error.

    error is present only for an exception, node_id only in a node's process, epoch and offset only
    while there is a replica.
    """

    def format(self, record: logging.LogRecord) -> str:
        said: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
        }
        if "node_id" in record.__dict__:
            said["node_id"] = record.__dict__["node_id"]
        if record.__dict__.get("epoch") is not None:
            said["epoch"] = record.__dict__["epoch"]
            said["offset"] = record.__dict__["offset"]
        said["message"] = record.getMessage()
        if record.exc_info:
            said["error"] = self.formatException(record.exc_info)
        # JSON requires escapes for the characters below U+0020 only.
        return json.dumps(said, ensure_ascii=False).translate(ESCAPES)


def set_level(level: LogLevel) -> None:
    """Log at `level` and above from now on.

    Other libraries log at INFO at most: their details may contain what clients sent.
    """
    logging.getLogger("quorate").setLevel(level.name)
    logging.getLogger().setLevel(max(logging.INFO, getattr(logging, level.name)))


def configure(
    role: str,
    node_id: int,
    log_format: LogFormat = LogFormat.TEXT,
    stream: TextIO | None = None,
    *,
    level: LogLevel = LogLevel.INFO,
) -> NodeContext:
    """Make all loggers of this process write to `stream` (default: stderr), at `level` and above.

    role: controller or broker, which precedes the node id in a text line. Replaces the previous
    configuration. Returns the context, whose `position` the caller sets once the replica runs.
    """
    context = NodeContext(role, node_id)
    context.set_level = set_level
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.addFilter(context)
    handler.setFormatter(JsonFormatter() if log_format is LogFormat.JSON else TextFormatter())
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    set_level(level)
    # gRPC warns about each stream that a shutdown cuts off, which every shutdown does.
    logging.getLogger("grpc._cython").setLevel(logging.ERROR)
    return context
