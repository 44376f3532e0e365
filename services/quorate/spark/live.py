"""Reads of a running quorum, with the options and the errors of the pipeline."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from quorate.raft.errors import MisuseError
from quorate.rpc.client.batch_reader import TIMEOUT_S, BatchReader, QuorumConnection
from quorate.rpc.errors import AdminError, ClientError, OffsetCompactedError
from quorate.rpc.tls import TlsConfig
from quorate.rpc.wire.limits import format_address, parse_address
from quorate.spark.errors import (
    OptionError,
    PipelineError,
    QuorumUnreachableError,
    lost_offset,
)


def quorum_connection(bootstrap: str, options: Mapping[str, str]) -> QuorumConnection:
    """From options: bootstrap "h:p,h:p", tlsCa, tlsCertificate, tlsKey, timeoutSeconds."""
    try:
        addresses = tuple(
            format_address(*parse_address(text.strip()))
            for text in bootstrap.split(",")
            if text.strip()
        )
        timeout_s = float(options.get("timeoutSeconds", TIMEOUT_S))
    except (ValueError, MisuseError) as error:
        raise OptionError(f"bootstrap {bootstrap!r}: {error}") from None
    if not addresses:
        raise OptionError("bootstrap contains no address")
    ca, certificate, key = (options.get(n) for n in ("tlsCa", "tlsCertificate", "tlsKey"))
    tls = None
    if ca or certificate:
        tls = TlsConfig(
            None if certificate is None else Path(certificate),
            None if key is None else Path(key),
            None if ca is None else Path(ca),
        )
    return QuorumConnection(addresses, tls, timeout_s)


@contextmanager
def live_reader(quorum: QuorumConnection) -> Iterator[BatchReader]:
    """A reader of the quorum. Its errors become PipelineErrors."""
    try:
        with BatchReader(quorum) as reader:
            yield reader
    except OffsetCompactedError as error:
        raise lost_offset(error) from None
    except AdminError as error:
        raise PipelineError(str(error)) from None
    except ClientError as error:
        raise QuorumUnreachableError(str(error)) from None
