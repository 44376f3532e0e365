"""The SCRAM mechanisms by their numbers in the metadata log. Source: KIP-554."""

from __future__ import annotations

from typing import Final

MECHANISM_NAMES: Final = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}
MECHANISM_NUMBERS: Final = {name: number for number, name in MECHANISM_NAMES.items()}
