"""README.md as a package index shows it, and the metadata beside it."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from readme_renderer import markdown

from tests.tools.documents import ROOT, links, rewrite_links
from tests.tools.release_files import index_readme, prepare

README = (ROOT / "README.md").read_text()
URL = "https://example.org/owner/quorate"
TAG = "v9.8.7"


def rendered(text: str) -> str:
    html = markdown.render(text)
    assert html is not None
    return html


def targets(html: str) -> list[str]:
    return re.findall(r'(?:href|src)="([^"]*)"', html)


@pytest.mark.parametrize("url", ["", URL])
def test_the_readme_is_rendered_without_broken_links(url: str) -> None:
    html = rendered(index_readme(README, url, TAG))
    assert "<h1" in html
    assert "<table>" in html
    assert "pip install ." in html
    found = targets(html)
    headings = {f"#{each}" for each in re.findall(r'id="([^"]*)"', html)}
    assert len(headings) > 5
    broken = [each for each in found if not re.match("https?://", each) and each not in headings]
    assert broken == []
    own = [target for target in found if target.startswith("https://example.org")]
    assert (len(own) > 20) == bool(url)


def test_each_link_leads_to_a_file_of_the_tag() -> None:
    found = targets(rendered(index_readme(README, URL, TAG)))
    for target in found:
        if place := re.match(f"{URL}/(blob|raw)/{TAG}/([^#]+)", target):
            assert (ROOT / place[2]).is_file(), target
            assert (place[1] == "raw") == place[2].endswith(".png"), target
        else:
            assert not target.startswith(URL), target
    assert f"{URL}/blob/{TAG}/docs/kafka-brokers.md#applications-or-kafkas-nodes" in found


def test_without_a_url_the_text_stays() -> None:
    text = index_readme("[a `b`](x.md), ![c](d.png) and [e](https://example.org/f)", "", TAG)
    assert text == "a `b`, c and [e](https://example.org/f)"


def test_code_keeps_its_links() -> None:
    text = "`[a](b)` [c](d)\n```\n[e](f)\n```\n[![g](h)](i)\n"
    moved = rewrite_links(text, lambda target, is_image: target.upper() + "!" * is_image)
    assert moved == "`[a](b)` [c](D)\n```\n[e](f)\n```\n[![g](H!)](I)\n"


def test_all_links_are_found() -> None:
    seen: list[str] = []
    rewrite_links(README, lambda target, is_image: seen.append(target))
    assert seen == links(README)


def test_the_project_gets_its_urls(tmp_path: Path) -> None:
    for name in ("pyproject.toml", "README.md"):
        (tmp_path / name).write_text((ROOT / name).read_text())
    before = tomllib.loads((ROOT / "pyproject.toml").read_text())
    prepare(tmp_path, URL, TAG)
    after = tomllib.loads((tmp_path / "pyproject.toml").read_text())
    urls = after["project"].pop("urls")
    assert after == before
    assert set(urls) == {"Repository", "Documentation", "Changelog", "Issues"}
    for target in urls.values():
        place = target.removeprefix(f"{URL}/blob/{TAG}/")
        assert place == target or (ROOT / place).is_file()


def test_without_a_url_nothing_is_invented(tmp_path: Path) -> None:
    for name in ("pyproject.toml", "README.md"):
        (tmp_path / name).write_text((ROOT / name).read_text())
    prepare(tmp_path, "", TAG)
    assert (tmp_path / "pyproject.toml").read_text() == (ROOT / "pyproject.toml").read_text()


def test_the_metadata_is_complete() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert {"name", "version", "description", "readme", "license", "keywords"} <= project.keys()
    minors = [c.rpartition(" ")[2] for c in project["classifiers"] if ":: 3." in c]
    least = Requirement(f"python{project['requires-python']}").specifier
    assert minors == [f"3.{minor}" for minor in range(11, 11 + len(minors))]
    assert all(least.contains(minor) for minor in minors)
    assert not least.contains("3.10")
