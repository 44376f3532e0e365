"""The Markdown documents: their links, anchors, and blocks of code."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"

EXECUTABLE = frozenset({"", "python"})
"""The languages of blocks that a reader executes: commands and programs."""

_FENCED = re.compile(r"^( *)```(\w*)\n(.*?)^\1```$", re.DOTALL | re.MULTILINE)
_COMMENT = re.compile(r"(^\s*|\s{2,})# .*$")
_SPAN = re.compile(r"(`+)(.+?)\1")
_LINK = re.compile(r"\[(?:[^\[\]]|\[[^\]]*\])*\]\(([^()\s]+(?:\([^()]*\))?)\)")
_CODE_OR_LINK = re.compile(
    r"^( *)```\w*\n.*?^\1```$|(`+)[^\n]+?\2"
    r"|(?P<mark>!?)\[(?P<text>(?:[^\[\]]|\[[^\]]*\])*)\]\((?P<target>[^()\s]+(?:\([^()]*\))?)\)",
    re.DOTALL | re.MULTILINE,
)
_HEADING = re.compile(r"^#{1,6} (.+)$", re.MULTILINE)


class Block(NamedTuple):
    """A fenced block. page: its document, relative to the repository. language: "" for commands."""

    page: str
    line: int
    language: str
    text: str

    @property
    def is_executable(self) -> bool:
        return self.language in EXECUTABLE


def documents() -> list[Path]:
    """All documents whose links and commands users follow."""
    names = ("README", "ARCHITECTURE", "CHANGELOG", "CONTRIBUTING", "SECURITY")
    return [
        *(ROOT / f"{name}.md" for name in names),
        *sorted(DOCS.rglob("*.md")),
        *sorted((ROOT / "charts").rglob("*.md")),
        *sorted((ROOT / "examples").rglob("*.md")),
    ]


def code_blocks(text: str, language: str = "") -> list[str]:
    """The fenced blocks in one language; "" is none."""
    return [found[3] for found in _FENCED.finditer(text) if found[2] == language]


def blocks(document: Path) -> list[Block]:
    """The fenced blocks of a document, in order, without their indentation."""
    page, text = document.relative_to(ROOT).as_posix(), document.read_text()
    return [
        Block(page, text.count("\n", 0, at.start()) + 1, at[2], textwrap.dedent(at[3]))
        for at in _FENCED.finditer(text)
    ]


def find_block(page: str, content: str) -> Block:
    """The first block of a page that has `content`. LookupError if there is none."""
    found = next((each for each in blocks(ROOT / page) if content in each.text), None)
    if found is None:
        raise LookupError(f"{page} has no block with {content!r}")
    return found


def block(page: str, content: str) -> str:
    """The text of `find_block`, for a test that executes it.

    The arguments must be literals: test_docs_executed.py looks for these calls, and finds the
    blocks that no test executes.
    """
    return find_block(page, content).text


def command_lines(text: str) -> list[str]:
    """The lines of a block of commands without comments; continued ones are joined."""
    lines = (_COMMENT.sub("", line).strip() for line in text.replace("\\\n", " ").splitlines())
    return [line for line in lines if line]


def code_spans(text: str) -> list[str]:
    """The spans of code outside of blocks."""
    return [found[2] for found in _SPAN.finditer(_FENCED.sub("", text))]


def links(text: str) -> list[str]:
    """The targets of links and images, without those in code."""
    return _LINK.findall(_SPAN.sub("code", _FENCED.sub("", text)))


def rewrite_links(text: str, moved: Callable[..., str | None]) -> str:
    """Give links and images outside of code another target; None leaves only their text.

    moved: called with the target, and `is_image`.
    """

    def replaced(found: re.Match[str]) -> str:
        if found["text"] is None:  # code
            return found[0]
        is_image = found[0].startswith("!")
        shown = found["text"] if is_image else rewrite_links(found["text"], moved)
        target = moved(found["target"], is_image=is_image)
        return shown if target is None else f"{found['mark']}[{shown}]({target})"

    return _CODE_OR_LINK.sub(replaced, text)


def anchors(text: str) -> set[str]:
    """The anchors of a document's headings, as GitHub makes them."""
    found: set[str] = set()
    for heading in _HEADING.findall(_FENCED.sub("", text)):
        slug = base = slug_of(heading)
        number = 0
        while slug in found:
            number += 1
            slug = f"{base}-{number}"
        found.add(slug)
    return found


def slug_of(heading: str) -> str:
    """GitHub's anchor of a heading."""
    shown = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "")
    return re.sub(r"[^\w\- ]", "", shown.strip().lower()).replace(" ", "-")


def broken_links(document: Path, text: str) -> Iterator[str]:
    """The relative links of a document that lead nowhere. text: its contents."""
    for target in links(text):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        path = (document.parent / name).resolve() if name else document
        if not path.is_relative_to(ROOT) or not path.is_file():
            yield f"{target}: there is no such file"
        elif anchor:
            found = anchors(text if path == document else path.read_text())
            if anchor not in found:
                yield f"{target}: there is no such heading"
