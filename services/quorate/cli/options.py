"""Options that many subcommands have."""

from __future__ import annotations

from typing import Annotated

import typer

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Check the request without changing anything.")
]
ShowSecrets = Annotated[
    bool,
    typer.Option(
        "--show-secrets", help="Also print the salts and keys of SCRAM users, and secret settings."
    ),
]
