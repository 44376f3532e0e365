"""A hook of MkDocs: pages of `docs` link to files beside it, such as ARCHITECTURE.md, as on GitHub.

The site gets these files below `repository/`, with those that they link to, and links lead there.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT)]

from tests.tools.documents import DOCS, links  # noqa: E402

PREFIX = "repository"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the files beside `docs` that pages link to, directly or through each other."""
    pages = sorted(DOCS.glob("*.md"))
    added: set[Path] = set()
    for page in pages:
        for path in sorted(linked_files(page)):
            if path in added or path.is_relative_to(DOCS):
                continue
            added.add(path)
            made = File.generated(config, site_path(path), abs_src_path=str(path))
            made.inclusion = InclusionLevel.NOT_IN_NAV
            files.append(made)
            if path.suffix == ".md":
                pages.append(path)
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Let the links of a page lead to the files of the site."""
    source = Path(str(page.file.abs_src_path))
    here = Path(page.file.src_uri).parent
    for target in set(links(markdown)):
        name, separator, anchor = target.partition("#")
        path = (source.parent / name).resolve()
        if name and path.is_relative_to(ROOT) and path.is_file():
            moved = os.path.relpath(site_path(path), here) + separator + anchor
            markdown = re.sub(rf"\]\({re.escape(target)}\)", f"]({moved})", markdown)
    return markdown


def linked_files(document: Path) -> set[Path]:
    """The files of the repository that a document links to."""
    names = {target.partition("#")[0] for target in links(document.read_text())}
    paths = {(document.parent / name).resolve() for name in names if name and ":" not in name}
    return {path for path in paths if path.is_relative_to(ROOT) and path.is_file()}


def site_path(path: Path) -> str:
    """Where the site has a file of the repository."""
    if path.is_relative_to(DOCS):
        return path.relative_to(DOCS).as_posix()
    return f"{PREFIX}/{path.relative_to(ROOT).as_posix()}"
