"""A Quorum's certificate authority, and its rotation without a rejected connection.

The Secret NAME-ca holds the authority that signs (tls.crt, tls.key) and, during a rotation, its
successor (next.crt, next.key) or its predecessor (previous.crt). Nodes and clients trust all of
these: they are the `ca.crt` of their Secrets.

Each step is one change of that Secret. The operator updates the other Secrets before the next step:

1. A rotation is due, because two thirds of the authority's lifetime have passed or because
   `spec.tls.authorityRevision` differs from the Secret's: the operator creates a successor, and
   nodes and clients trust both. (PREPARING)
2. Every node accepts a client certificate of the successor, and the wait is over: the successor
   signs, and every certificate is reissued. (SWITCHING)
3. Every node presents a certificate of the new authority, and the wait is over: the predecessor is
   removed. (STABLE)

An authority that has expired is replaced in one step, without confirmations: no node accepts its
certificates any more, so nothing is left to protect. The successor takes its place if there is one.

Rules:
1. A pod that does not answer blocks steps 2 and 3, because the certificates that it trusts and
   presents are unknown.
2. The wait (`spec.tls.rotationWaitSeconds`) is for clients, which decide themselves when to read
   their files again.
3. Only the Secret holds the state, and a step names the version that it rests on. An operator that
   is killed resumes where it stopped, and only one of two operators takes a step.
"""

from __future__ import annotations

import base64
import binascii
import datetime as dt
from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from quorate_operator.naming import GROUP, Object
from quorate_operator.objects import certificates
from quorate_operator.objects.certificates import Pair

REVISION_ANNOTATION = f"{GROUP}/authority-revision"
SINCE_ANNOTATION = f"{GROUP}/authority-since"
TIME_FORMAT = "%Y-%m-%dT%H:%M:%SZ"


class Phase(StrEnum):
    """The phase of the rotation; see the steps above."""

    STABLE = "Stable"
    PREPARING = "Preparing"
    SWITCHING = "Switching"


@dataclass(frozen=True, slots=True)
class Authority:
    """The authority in the Secret."""

    signer: Pair
    successor: Pair | None = None
    predecessor: str = ""
    revision: int = 1
    since: dt.datetime | None = None
    """When the last step was taken."""
    version: str = ""
    """The version of the Secret."""

    @property
    def phase(self) -> Phase:
        if self.successor is not None:
            return Phase.PREPARING
        return Phase.SWITCHING if self.predecessor else Phase.STABLE

    @property
    def trusted(self) -> str:
        """All authority certificates that nodes and clients must trust, the signer's first."""
        found = [self.signer.certificate]
        if self.successor is not None:
            found.append(self.successor.certificate)
        if self.predecessor:
            found.append(self.predecessor)
        return "".join(text if text.endswith("\n") else f"{text}\n" for text in found)

    def is_expired(self, *, now: dt.datetime | None = None) -> bool:
        """Whether the signer or its successor is no longer valid. Raises CertificateError."""
        used = [self.signer] + ([self.successor] if self.successor else [])
        return any(certificates.is_expired(each.certificate, now=now) for each in used)

    @property
    def problem(self) -> str:
        """Why the signer or its successor cannot sign, whatever its age; "" if they can."""
        used = [self.signer] + ([self.successor] if self.successor else [])
        return next(filter(None, map(certificates.problem_of_authority, used)), "")

    @property
    def material(self) -> tuple[Pair, Pair | None, str]:
        """The keys and certificates on which issued certificates and trust depend."""
        return self.signer, self.successor, self.predecessor


def secret_files(found: Object | None) -> dict[str, str]:
    """The data of a Secret as text; values that are not text are omitted."""
    files = {}
    for name, value in ((found or {}).get("data") or {}).items():
        try:
            files[name] = base64.b64decode(value).decode()
        except (binascii.Error, UnicodeDecodeError):
            continue
    return files


def authority_of(found: Object | None) -> Authority | None:
    """The authority in a Secret; None if there is none."""
    files = secret_files(found)
    if found is None or not files.get("tls.crt") or not files.get("tls.key"):
        return None
    successor = None
    if files.get("next.crt") and files.get("next.key"):
        successor = Pair(files["next.crt"], files["next.key"])
    annotations = found["metadata"].get("annotations") or {}
    revision = str(annotations.get(REVISION_ANNOTATION, "1"))
    return Authority(
        Pair(files["tls.crt"], files["tls.key"]),
        successor,
        files.get("previous.crt", ""),
        int(revision) if revision.isdecimal() else 1,
        _parse_time(annotations.get(SINCE_ANNOTATION)),
        found["metadata"].get("resourceVersion", ""),
    )


def _parse_time(text: Any) -> dt.datetime | None:
    try:
        return dt.datetime.strptime(str(text), TIME_FORMAT).replace(tzinfo=dt.UTC)
    except ValueError:
        return None


def is_step_due(
    authority: Authority,
    revision: int,
    wait_s: float,
    pods: Collection[int],
    confirmed: Collection[int],
    *,
    now: dt.datetime | None = None,
) -> bool:
    """Whether the next step is due.

    pods: ordinals that exist. confirmed: those that meet the condition of the phase. The caller has
    checked that the Secrets of nodes and clients are up to date.
    """
    now = now or dt.datetime.now(dt.UTC)
    if authority.phase is Phase.STABLE:
        asked = authority.revision != revision
        return asked or certificates.is_old(authority.signer.certificate, now=now)
    if set(pods) - set(confirmed):
        return False
    return authority.since is None or (now - authority.since).total_seconds() >= wait_s


def next_step(
    authority: Authority, name: str, revision: int, days: int, *, now: dt.datetime | None = None
) -> Object:
    """Return the next step's change of the Secret, as a merge patch."""
    now = now or dt.datetime.now(dt.UTC)
    annotations = {SINCE_ANNOTATION: now.strftime(TIME_FORMAT)}
    data: dict[str, str | None]
    match authority.phase:
        case _ if authority.is_expired(now=now):
            signer = _valid(authority.successor, now) or _valid(authority.signer, now)
            if signer is None:
                signer = certificates.new_authority(name, days=days, now=now)
                annotations[REVISION_ANNOTATION] = str(revision)
            data = {"tls.crt": signer.certificate, "tls.key": signer.key}
            data |= dict.fromkeys(("next.crt", "next.key", "previous.crt"))
        case Phase.STABLE:
            made = certificates.new_authority(name, days=days, now=now)
            data = {"next.crt": made.certificate, "next.key": made.key}
            annotations[REVISION_ANNOTATION] = str(revision)
        case Phase.PREPARING:
            assert authority.successor is not None, "that is what preparing means"
            data = {
                "tls.crt": authority.successor.certificate,
                "tls.key": authority.successor.key,
                "previous.crt": authority.signer.certificate,
                "next.crt": None,
                "next.key": None,
            }
        case Phase.SWITCHING:
            data = {"previous.crt": None}
    encoded = {
        key: None if text is None else base64.b64encode(text.encode()).decode()
        for key, text in data.items()
    }
    metadata = {"resourceVersion": authority.version, "annotations": annotations}
    return {"metadata": metadata, "data": encoded}


def _valid(pair: Pair | None, now: dt.datetime) -> Pair | None:
    if pair is None or certificates.is_expired(pair.certificate, now=now):
        return None
    return pair
