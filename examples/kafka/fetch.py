"""Download the jars that stdin lists from Maven Central, and check them.

    python3 fetch.py DIRECTORY < jars.sha256

Each line is a SHA-256 and a path in the repository, as sha256sum prints them. Ends with status 1 at
the first jar that is not the listed one.
"""

from __future__ import annotations

import hashlib
import sys
import urllib.request
from pathlib import Path

REPOSITORY = "https://repo.maven.apache.org/maven2/"
TIMEOUT_S = 60


def main() -> None:
    target = Path(sys.argv[1])
    target.mkdir(parents=True, exist_ok=True)
    for line in sys.stdin:
        expected, path = line.split()
        with urllib.request.urlopen(REPOSITORY + path, timeout=TIMEOUT_S) as response:  # noqa: S310 - https
            jar = response.read()
        found = hashlib.sha256(jar).hexdigest()
        if found != expected:
            sys.exit(f"{REPOSITORY}{path}: the SHA-256 is {found}, expected {expected}")
        (target / path.rpartition("/")[2]).write_bytes(jar)


if __name__ == "__main__":
    main()
