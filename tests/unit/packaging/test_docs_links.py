"""Relative links and anchors of the documents resolve, on GitHub and on the site."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.tools.documents import DOCS, ROOT, anchors, broken_links, documents, links


@pytest.mark.parametrize("document", documents(), ids=lambda path: str(path.relative_to(ROOT)))
def test_links_resolve(document: Path) -> None:
    assert list(broken_links(document, document.read_text())) == []


def test_broken_links_are_found() -> None:
    text = """# One heading
[a](#one-heading) [b](#another) [c](README.md) [d](MISSING.md) [e](README.md#quickstart)
![f](README.md#missing) [g](../outside.md) [h](https://example.org/x#y) `[i](code.md)`
```
[j](block.md)
```
[[k]](absent.md) [l](docs)
"""
    broken = [each.partition(":")[0] for each in broken_links(ROOT / "README.md", text)]
    assert broken[:3] == ["#another", "MISSING.md", "README.md#quickstart"]
    assert broken[3:] == ["README.md#missing", "../outside.md", "absent.md", "docs"]


def test_anchors_are_those_of_github() -> None:
    text = "# Kafka's `tools`: a, b\n## Twice\n## Twice\n```\n# code\n```\n### [Linked](x.md) one\n"
    assert anchors(text) == {"kafkas-tools-a-b", "twice", "twice-1", "linked-one"}


@pytest.mark.parametrize("page", sorted(DOCS.glob("*.md")), ids=lambda page: page.stem)
def test_the_site_makes_the_same_anchors(page: Path) -> None:
    """MkDocs drops characters beyond ASCII, joins hyphens, and numbers headings in another way."""
    found = anchors(page.read_text())
    assert {each for each in found if not re.fullmatch(r"[a-z0-9_]+(-[a-z0-9_]+)*", each)} == set()
    assert {each for each in found if re.search(r"-[1-9]$", each) and each[:-2] in found} == set()


def test_every_page_can_be_reached_from_the_first() -> None:
    linked = links((DOCS / "index.md").read_text())
    assert {page.name for page in DOCS.glob("*.md")} - {"index.md"} <= set(linked)
