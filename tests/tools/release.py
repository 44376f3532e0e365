"""Make a release: each step of .github/workflows/release.yml.

    python tests/tools/release.py check [TAG]          the version is the same everywhere
    python tests/tools/release.py dist [URL]           wheel and sdist of the last commit
    python tests/tools/release.py protos               the .proto files as an archive
    python tests/tools/release.py chart [REGISTRY]     the chart, with the images of a registry
    python tests/tools/release.py notes                what CHANGELOG.md says of the version
    python tests/tools/release.py checksums            SHA256SUMS of these files and of the SBOMs
    python tests/tools/release.py images REGISTRY      build and push the images for all platforms
    python tests/tools/release.py push-chart REGISTRY  push the chart
    python tests/tools/release.py sign                 sign files, images and chart with cosign

URL is that of the repository, such as https://example.org/owner/quorate, REGISTRY one of OCI with
its path, such as registry.example.org/owner. The files are in build/release. `dist` needs
requirements/release.txt, `chart` helm, `images` Docker with buildx, `sign` cosign and an identity
that Sigstore accepts. Exit status: 1 if a check fails or a step does.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[2])]

from tests.tools.release_files import chart, checksums, dist, notes, protos  # noqa: E402
from tests.tools.release_images import images, push_chart, sign  # noqa: E402
from tests.tools.release_steps import ReleaseError, problems  # noqa: E402


def check(tag: str = "") -> None:
    """Raise ReleaseError unless the version is the same everywhere, and the tag's."""
    found = problems(tag)
    if found:
        raise ReleaseError("\n".join(found))


STEPS: dict[str, tuple[Callable[..., None], int, int]] = {
    "check": (check, 0, 1),
    "dist": (dist, 0, 1),
    "protos": (protos, 0, 0),
    "chart": (chart, 0, 1),
    "notes": (notes, 0, 0),
    "checksums": (checksums, 0, 0),
    "images": (images, 1, 1),
    "push-chart": (push_chart, 1, 1),
    "sign": (sign, 0, 0),
}
"""Each step, and how many arguments it takes at least and at most."""


def main(arguments: Sequence[str]) -> int:
    name, *rest = arguments or [""]
    step, least, most = STEPS.get(name, (check, 1, 0))
    if not least <= len(rest) <= most:
        print(__doc__, file=sys.stderr)
        return 2
    try:
        step(*rest)
    except ReleaseError as error:
        print(f"release: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
