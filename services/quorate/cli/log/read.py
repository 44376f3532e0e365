"""`quorate read`: prints the committed records of a running quorum, and follows its log.

Text has a line per record: offset, key and value, separated by tabs. `--json` prints one JSON value
per line. Records that come from a snapshot may have no offset. The cluster's metadata is printed as
`dump-log` prints it, without secrets unless --show-secrets is given.
"""

from __future__ import annotations

import base64
import json
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from quorate.cli.connection import READ_TIMEOUT_S, asking, run
from quorate.cli.options import AsJson, ShowSecrets
from quorate.cli.output import CommandError, printable

if TYPE_CHECKING:
    from quorate.records.batch import Record
    from quorate.rpc.client.quorum_client import QuorumClient

NO_OFFSET = "-"


@asking
def read(
    context: typer.Context,
    *,
    from_offset: Annotated[
        int, typer.Option("--from-offset", metavar="OFFSET", min=0, help="Where to begin.")
    ] = 0,
    max_records: Annotated[
        int | None,
        typer.Option("--max-records", metavar="COUNT", min=1, help="End after this many records."),
    ] = None,
    follow: Annotated[
        bool,
        typer.Option("--follow", "-f", help="Continue with records as they commit, until Ctrl-C."),
    ] = False,
    show_secrets: ShowSecrets = False,
    as_json: AsJson = False,
) -> None:
    """Print the committed records of a quorum; with --json, one JSON value per line.

    Without --follow it ends with the last record that was committed before the call, and begins
    with a snapshot if that has replaced the records from the offset on. With --follow, any
    controller serves it, and it continues across failures of controllers.

    Example: quorate read --bootstrap-controller HOST:PORT --follow --json
    """

    async def show(client: QuorumClient) -> None:
        async for record in client.read(from_offset, follow=follow, max_records=max_records):
            document = _document(record, show_secrets=show_secrets)
            sys.stdout.write((_json(document) if as_json else _text(document)) + "\n")
            if follow:
                sys.stdout.flush()

    from quorate.rpc.errors import OffsetCompactedError

    try:
        run(context, show, READ_TIMEOUT_S)
    except OffsetCompactedError as error:
        text = f"{error.message}; read it without --follow, then continue after its last record"
        raise CommandError(text) from None


def _document(record: Record, *, show_secrets: bool) -> dict[str, Any]:
    """A record as JSON. Bytes that are not UTF-8 are in base64, and the names say so."""
    shown: dict[str, Any] = {"offset": record.offset, "timestamp": record.timestamp}
    if record.key is None:
        return {**shown, "payload": _payload(record, show_secrets=show_secrets)}
    for name, value in (("key", record.key), ("value", record.value)):
        if value is None:
            shown[name] = None
            continue
        try:
            shown[name] = value.decode()
        except UnicodeDecodeError:
            shown[f"{name}Base64"] = base64.b64encode(value).decode()
    return shown


def _payload(record: Record, *, show_secrets: bool) -> dict[str, Any]:
    """A metadata record as JSON; an error, like in dump-log, if it cannot be decoded."""
    from quorate.cli.secret_fields import masked
    from quorate.records.errors import RecordsError
    from quorate.records.metadata import UnsupportedVersionError, decode_json

    try:
        decoded = decode_json(record.value or b"")
    except (RecordsError, UnsupportedVersionError, ValueError) as error:
        return {"error": str(error)}
    return decoded if show_secrets else masked(decoded)


def _json(document: dict[str, Any]) -> str:
    return printable(json.dumps(document, ensure_ascii=False))


def _text(document: dict[str, Any]) -> str:
    offset = document["offset"]
    cells = [NO_OFFSET if offset is None else str(offset)]
    if "payload" in document:
        cells += ["", json.dumps(document["payload"], ensure_ascii=False)]
    else:
        cells += [document.get(n, document.get(f"{n}Base64")) or "" for n in ("key", "value")]
    return "\t".join(printable(cell) for cell in cells)
