"""The program `quorate-operator`, in a wheel that may be installed without its extra `operator`."""

from __future__ import annotations

import sys

OWN = ("quorate", "quorate_operator")


def main() -> int:
    """Run the operator; one line on stderr and status 1 if a package of the extra is missing."""
    try:
        from quorate_operator.main import main as run  # noqa: PLC0415
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] in OWN:
            raise
        print(
            f"quorate-operator: error: {error.name} is not installed: "
            "pip install 'quorate[operator]'",
            file=sys.stderr,
        )
        return 1
    return run()
