"""Pages with a generated part, between two comments in Markdown."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Page:
    """task: the poe task that writes the page. generate: makes the part between the comments."""

    path: Path
    task: str
    generate: Callable[[], str]

    def wanted(self) -> str:
        """The whole page, as it should be."""
        begin, end = f"<!-- poe {self.task}: begin -->", f"<!-- poe {self.task}: end -->"
        before, _, rest = self.path.read_text().partition(begin)
        _, _, after = rest.partition(end)
        return f"{before}{begin}\n\n{self.generate()}\n\n{end}{after}"

    def run(self, arguments: Sequence[str], usage: str | None) -> int:
        """Run `write` or `check`; the exit status."""
        match arguments:
            case ["write"]:
                self.path.write_text(self.wanted())
                return 0
            case ["check"]:
                if self.path.read_text() == self.wanted():
                    return 0
                print(f"{self.path.name} is out of date: poe {self.task}")
                return 1
        print(usage)
        return 2
