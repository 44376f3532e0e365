"""The file of a run: lines of JSON.

    {"run": {"seed": 1}}
    {"kind": "BrokerHeartbeat: …", "reproduce": …, …}    the first difference of a kind, when found
    {"pair": {"seed": 1, "requests": {…}, …}}            the report of a pair, when it is done

A run that was killed, or whose last pair failed, goes on with the seed after those that are done.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.kafka_differential.report import Kind, Report


def _ignore(*_: object) -> None:
    pass


class Results:
    """Appends to the file. done: the pairs that are done, also those that it had, as one report.

    path: None for no file. show: called with the first difference of each kind, when it is found.
    advance: called after each request, with `done` and the report of this pair so far.
    """

    def __init__(
        self,
        path: Path | None,
        seed: int,
        show: Callable[[str, Kind], None] = _ignore,
        advance: Callable[[Report, Report], None] = _ignore,
    ) -> None:
        self.done = Report(seed)
        self._show = show
        self._advance = advance
        self._path = path
        self._seen: set[str] = set()
        if path is None:
            return
        if path.exists():
            self._read(path, seed)
        else:
            self._append({"run": {"seed": seed}})

    def _read(self, path: Path, seed: int) -> None:
        """Raises ValueError if the file is of another run."""
        # A run that was killed may have left a part of a line.
        *lines, rest = path.read_text().split("\n")
        if not lines or lines[0] != json.dumps({"run": {"seed": seed}}):
            raise ValueError(f"{path} is not of a run with seed {seed}")
        if rest:
            path.write_text("".join(f"{line}\n" for line in lines))
        found = [json.loads(line) for line in lines]
        for each in found:
            if "pair" in each and not each["pair"]["failure"]:
                report = Report.from_json(each["pair"])
                self.done.merge(report)
                self._seen |= report.kinds.keys()

    def difference(self, name: str, kind: Kind) -> None:
        """Note a difference if it is the first of its kind."""
        if name not in self._seen:
            self._seen.add(name)
            self._append({"kind": name, **kind.as_json()})
            self._show(name, kind)

    def advance(self, pair: Report) -> None:
        """Count a request."""
        self._advance(self.done, pair)

    def pair(self, report: Report) -> None:
        """Note that a pair of controllers is done."""
        self._append({"pair": report.as_json()})
        self.done.merge(report)

    def _append(self, found: dict[str, Any]) -> None:
        if self._path is not None:
            with self._path.open("a") as file:
                file.write(json.dumps(found) + "\n")
