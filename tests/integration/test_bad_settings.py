"""Properties files that cannot be used: one line that names the file, the line and what is
accepted, before anything is touched.
"""

from __future__ import annotations

from pathlib import Path

from tests.integration.support import Node, assert_error, files, free_ports, here, quorate


def test_settings_that_cannot_be_used(tmp_path: Path) -> None:
    node = Node(tmp_path, 1, free_ports(1)[0])
    node.format("--standalone")
    good = node.properties.read_text()
    directory = tmp_path / "a-directory"
    directory.mkdir()
    cases: dict[Path, tuple[str, ...]] = {
        tmp_path / "missing": (f"{tmp_path}/missing: cannot be read: No such file",),
        directory: (f"{directory}: cannot be read: Is a directory",),
    }
    bad: tuple[tuple[str, str, tuple[str, ...]], ...] = (
        ("malformed", "node.id=\\u12\n", ("malformed:1: not a properties file",)),
        ("binary", "\0\1", ("binary: not a properties file",)),
        ("typo", f"{good}metadata.log.dri=x\n", ("typo:7: ", "did you mean metadata.log.dir?")),
        ("unknown", f"{good}sky.color=blue\n", ("unknown:7: sky.color is not a setting",)),
        ("value", good.replace("node.id=1", "node.id=-1"), ("value:2: node.id=-1", "accepted: 0")),
        ("incomplete", good.replace("listeners=", "#"), ("incomplete: listeners is not set",)),
        ("empty", "", ("empty: process.roles is not set",)),
    )
    for name, text, words in bad:
        (tmp_path / name).write_text(text)
        cases[tmp_path / name] = words
    before = files(tmp_path)
    for path, said in cases.items():
        run = quorate if path.name in ("missing", "typo") else here
        ran = run("controller", path)
        assert_error(ran, *said)
        assert ran.out == ""
    assert files(tmp_path) == before
