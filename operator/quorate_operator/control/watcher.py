"""Follows the objects of one kind, and reports each one that changes. Watches only wake the loop.

A watch that starts without a version begins with all objects, which would wake every Quorum each
time that the server ends a watch. Therefore the watcher lists once, compares the list with what it
knows, and then watches from the list's version on. An interrupted watch continues from the last
version; after an error the watcher lists again, because events may be missing.

Source: Kubernetes, "API concepts", "Efficient detection of changes".
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tenacity import Retrying, retry_if_exception_type, wait_random_exponential

from quorate_operator import naming
from quorate_operator.kube.api import WATCH_S, Kube, KubeError
from quorate_operator.naming import Object
from quorate_operator.observation.pod_creation import FAILED_CREATE

LOGGER = logging.getLogger(__name__)

BOOKMARK, DELETED = "BOOKMARK", "DELETED"
LONG_WATCH_S = 1800
"""How long a watch that exists for each namespace is open, because restarts cost requests. If its
connection dies silently, the loop's next read of all objects finds what it missed.
"""
PAUSE_MAX_S = 30.0
KEPT_METADATA = ("name", "namespace", "uid", "resourceVersion", "labels")
"""What a watcher keeps of an object: enough to notice a change, and to name its Quorum."""
FORBIDDEN_MAX = 5
"""After so many in a row, the operator lacks the permission. An API server that has just started
forbids everything until it has read the Roles.
"""
FORBIDDEN_PAUSE_S = 600.0
"""The pause after a watch that the operator may not start, such as that of Secrets."""


@dataclass(frozen=True, slots=True)
class WatchedKind:
    """The objects that one watch covers."""

    kind: str
    quorum_of: Callable[[Object], str]
    """The name of an object's Quorum, "" for none."""
    labels: str = ""
    """A selector of labels, "" for all objects."""
    fields: str = ""
    """A selector of fields, "" for all objects."""
    seconds: int = WATCH_S
    """How long the server keeps the watch open."""


def _own_name(found: Object) -> str:
    return str(found["metadata"]["name"])


def _label(name: str) -> Callable[[Object], str]:
    return lambda found: str((found["metadata"].get("labels") or {}).get(name, ""))


def _stateful_set_of(found: Object) -> str:
    """The StatefulSet, which has the Quorum's name, that an Event is about."""
    about = found.get("involvedObject") or {}
    is_ours = about.get("kind") == "StatefulSet" and found.get("reason") == FAILED_CREATE
    return str(about.get("name", "")) if is_ours else ""


_MANAGED = f"{naming.MANAGED_LABEL}=quorate-operator"
_QUORUM_LABEL = _label(naming.INSTANCE_LABEL)

WATCHED = (
    WatchedKind("Quorum", _own_name),
    *(
        WatchedKind(kind, _QUORUM_LABEL, _MANAGED)
        for kind in (
            "Pod",
            "StatefulSet",
            "PersistentVolumeClaim",
            "Service",
            "PodDisruptionBudget",
            "NetworkPolicy",
        )
    ),
    # A pod that the API server rejects leaves no other trace.
    WatchedKind(
        "Event", _stateful_set_of, "", f"involvedObject.kind=StatefulSet,reason={FAILED_CREATE}"
    ),
)
"""What is watched in all namespaces of the operator."""
WATCHED_SECRETS = (
    WatchedKind("Secret", _QUORUM_LABEL, _MANAGED, seconds=LONG_WATCH_S),
    WatchedKind("Secret", _label(naming.USABLE_LABEL), naming.USABLE_LABEL, seconds=LONG_WATCH_S),
)
"""What is watched in each namespace of a Quorum: no operator may list the Secrets of all."""


class KindWatcher:
    """Calls `changed` for each object that was added, changed or deleted (its second argument).

    namespace: "" for all. For a deleted object that no event reported, `changed` gets the last
    known metadata, `KEPT_METADATA`.
    """

    def __init__(
        self,
        kube: Kube,
        watched: WatchedKind,
        namespace: str,
        changed: Callable[[Object, bool], None],
    ) -> None:
        self._kube = kube
        self._watched = watched
        self._namespace = namespace
        self._changed = changed
        self._forbidden_count = 0
        self._version = ""
        self._known: dict[str, Object] = {}

    def follow_while(self, is_wanted: Callable[[], bool]) -> None:
        """Follow until `is_wanted` is false after a watch, or `changed` raises RuntimeError.

        A failed watch restarts after a growing pause; the client itself would retry at once.
        """
        while is_wanted():
            try:
                Retrying(
                    retry=retry_if_exception_type(KubeError),
                    wait=wait_random_exponential(multiplier=0.5, max=PAUSE_MAX_S),
                    stop=lambda _: not is_wanted(),
                    reraise=True,
                )(self._follow_once)
            except (KubeError, RuntimeError):
                return

    def _follow_once(self) -> None:
        """Follow one watch. Raises KubeError if it failed soon."""
        began = time.monotonic()
        try:
            self.follow()
            self._forbidden_count = 0
        except KubeError as error:
            took_s = time.monotonic() - began
            if error.status == 403:
                self._forbidden_count += 1
                if self._forbidden_count < FORBIDDEN_MAX:
                    raise
                if self._forbidden_count == FORBIDDEN_MAX:
                    LOGGER.warning("%s: changes are noticed later", error)
                time.sleep(FORBIDDEN_PAUSE_S)
                return
            LOGGER.warning("%s (after %.0f s)", error, took_s)
            if took_s < PAUSE_MAX_S:
                raise

    def follow(self) -> None:
        """List if necessary, then watch until the server ends the watch. Raises KubeError."""
        if not self._version:
            self._list()
        version, self._version = self._version, ""
        kind, labels = self._watched.kind, self._watched.labels
        how: dict[str, Any] = {"fields": self._watched.fields, "seconds": self._watched.seconds}
        events = self._kube.watch(kind, self._namespace, labels, version, **how)
        for event, found in events:
            version = found["metadata"]["resourceVersion"]
            if event != BOOKMARK:
                self._note(found, is_deleted=event == DELETED)
        self._version = version

    def _list(self) -> None:
        kind, labels, fields = self._watched.kind, self._watched.labels, self._watched.fields
        found, version = self._kube.list_version(kind, self._namespace, labels, fields)
        gone = self._known.keys() - {each["metadata"]["uid"] for each in found}
        for uid in gone:
            self._note(self._known[uid], is_deleted=True)
        for each in found:
            known = self._known.get(each["metadata"]["uid"])
            if known is None or _version_of(known) != _version_of(each):
                self._note(each, is_deleted=False)
        self._version = version

    def _note(self, found: Object, *, is_deleted: bool) -> None:
        uid = found["metadata"]["uid"]
        if is_deleted:
            self._known.pop(uid, None)
        else:
            metadata = found["metadata"]
            kept = {name: metadata[name] for name in KEPT_METADATA if name in metadata}
            self._known[uid] = {"metadata": kept}
        self._changed(found, is_deleted)


def _version_of(found: Object) -> str:
    return str(found["metadata"].get("resourceVersion", ""))
