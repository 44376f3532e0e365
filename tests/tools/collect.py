"""Import every test, those of the slower suites too, without running any: `poe collect`.

A name that moves in the product breaks tests that only CI runs. pytest's own `--collect-only` does
this as well, but prints thousands of names.
"""

from __future__ import annotations

import sys
from collections.abc import Generator

import pytest


class Unlisted:
    """Keeps pytest from listing what it has collected."""

    @pytest.hookimpl(wrapper=True)
    def pytest_collection_finish(self, session: pytest.Session) -> Generator[None]:
        found = list(session.items)
        session.items.clear()
        yield
        session.items.extend(found)


if __name__ == "__main__":
    sys.exit(pytest.main(["--collect-only", "-q", "tests"], plugins=[Unlisted()]))
