"""Follows the objects of one kind, and reports each one that changes.

A watch that starts without a version begins with all objects, which would wake every Quorum each
time that the server ends a watch. Therefore the watcher lists once, compares the list with what it
knows, and then watches from the list's version on. An interrupted watch continues from the last
version; after an error the watcher lists again, because events may be missing.

Source: Kubernetes, "API concepts", "Efficient detection of changes".
"""

from __future__ import annotations

from collections.abc import Callable

from quorate_operator.kube import Kube
from quorate_operator.naming import Object

BOOKMARK, DELETED = "BOOKMARK", "DELETED"


class KindWatcher:
    """Calls `changed` for each object that was added, changed or deleted (its second argument).

    namespace: "" for all. selector: a label selector, "" for all objects. For a deleted object that
    no event reported, `changed` gets the last known metadata.
    """

    def __init__(
        self,
        kube: Kube,
        kind: str,
        namespace: str,
        selector: str,
        changed: Callable[[Object, bool], None],
    ) -> None:
        self._kube = kube
        self._kind = kind
        self._namespace = namespace
        self._selector = selector
        self._changed = changed
        self._version = ""
        self._known: dict[str, Object] = {}

    def follow(self) -> None:
        """List if necessary, then watch until the server ends the watch. Raises KubeError."""
        if not self._version:
            self._list()
        version, self._version = self._version, ""
        watched = self._kube.watch(self._kind, self._namespace, self._selector, version)
        for event, found in watched:
            version = found["metadata"]["resourceVersion"]
            if event != BOOKMARK:
                self._note(found, is_deleted=event == DELETED)
        self._version = version

    def _list(self) -> None:
        found, version = self._kube.list_version(self._kind, self._namespace, self._selector)
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
            self._known[uid] = {"metadata": found["metadata"]}
        self._changed(found, is_deleted)


def _version_of(found: Object) -> str:
    return str(found["metadata"].get("resourceVersion", ""))
