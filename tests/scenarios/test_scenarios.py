"""Every transcript says what the state machine does; every row of the protocol's table has one.

`pytest tests/scenarios --rewrite` writes what happens now into the transcripts.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.scenarios import transcript
from tests.scenarios.harness import Harness

HERE = Path(__file__).parent
FILES = sorted(HERE.glob("*.txt"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_transcript(path: Path, rewrite: bool) -> None:
    actual = transcript.render(transcript.run(path, Harness().execute))
    if rewrite:
        path.write_text(actual, encoding="utf-8")
    assert path.read_text(encoding="utf-8") == actual
