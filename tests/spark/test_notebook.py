"""The notebook and the documentation's program run, in a session that they did not make."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.spark.conftest import ROOT
from tests.tools.documents import block

NOTEBOOK = ROOT / "examples/pipeline.ipynb"


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_notebook_runs(
    spark: Any, golden: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("QUORATE_LOG", str(golden / "full-history/controller-1"))
    cells = json.loads(NOTEBOOK.read_text())["cells"]
    names: dict[str, Any] = {}
    shown = []
    for cell in cells:
        if cell["cell_type"] == "code":
            exec("".join(cell["source"]), names)
            shown.append(capsys.readouterr().out)
    assert names["spark"] is spark
    types, partitions, leaders, changes, violations = shown[1:]
    assert "PARTITION_CHANGE_RECORD" in types
    assert "payments" in partitions
    assert "2 in epoch 5" in leaders
    assert "only showing top 5 rows" in changes or "|" in changes
    assert len(violations.split()) == 4, violations


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_documented_program_runs(
    spark: Any, golden: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program = block("docs/pipeline.md", "readStream")
    replicas = {f"c{n}": golden / f"full-history/controller-{n}" for n in (1, 2, 3)}
    for name, replica in (*replicas.items(), ("/var/lib/quorate", replicas["c1"])):
        program = program.replace(f'"{name}"', f'"{replica}"')
    names: dict[str, Any] = {}
    exec(program, names)
    assert names["spark"] is spark
    assert names["stream"].isStreaming
    assert "TOPIC_RECORD" in capsys.readouterr().out
