"""The Markdown documents: their links, anchors, and blocks of code."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"

_FENCED = re.compile(r"^( *)```(\w*)\n(.*?)^\1```$", re.DOTALL | re.MULTILINE)
_SPAN = re.compile(r"(`+)(.+?)\1")
_LINK = re.compile(r"\[(?:[^\[\]]|\[[^\]]*\])*\]\(([^()\s]+(?:\([^()]*\))?)\)")
_HEADING = re.compile(r"^#{1,6} (.+)$", re.MULTILINE)


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


def code_spans(text: str) -> list[str]:
    """The spans of code outside of blocks."""
    return [found[2] for found in _SPAN.finditer(_FENCED.sub("", text))]


def links(text: str) -> list[str]:
    """The targets of links and images, without those in code."""
    return _LINK.findall(_SPAN.sub("code", _FENCED.sub("", text)))


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
