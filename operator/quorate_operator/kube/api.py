"""The Kubernetes API as values: JSON objects in, JSON objects out, errors with their status.

It uses the configuration, credentials and connections of the official client. Every call has a
timeout, and so have watches: without one, a watch hangs forever if its connection dies silently.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from kubernetes import client
from urllib3.exceptions import HTTPError

from quorate_operator.naming import Object

APPLY = "application/apply-patch+yaml"
MERGE = "application/merge-patch+json"
METADATA = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
METADATA_LIST = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
"""Responses without the objects' content. Source: Kubernetes, "API concepts"."""
WITHOUT_CONTENT = ("Secret",)
"""The kinds whose lists and watches are answered with the objects' metadata only."""

CONNECT_TIMEOUT_S = 3.0
CALL_TIMEOUT_S = 10.0
WATCH_S = 240
"""How long the server keeps a watch open; then the operator starts it again."""


class ApiResource(NamedTuple):
    """The location of a kind's objects: the path of its API, and its plural name."""

    api: str
    plural: str


RESOURCES: Mapping[str, ApiResource] = {
    "Pod": ApiResource("/api/v1", "pods"),
    "Service": ApiResource("/api/v1", "services"),
    "ConfigMap": ApiResource("/api/v1", "configmaps"),
    "Secret": ApiResource("/api/v1", "secrets"),
    "Event": ApiResource("/api/v1", "events"),
    "ServiceAccount": ApiResource("/api/v1", "serviceaccounts"),
    "PersistentVolumeClaim": ApiResource("/api/v1", "persistentvolumeclaims"),
    "StatefulSet": ApiResource("/apis/apps/v1", "statefulsets"),
    "Deployment": ApiResource("/apis/apps/v1", "deployments"),
    "CronJob": ApiResource("/apis/batch/v1", "cronjobs"),
    "Job": ApiResource("/apis/batch/v1", "jobs"),
    "PodDisruptionBudget": ApiResource("/apis/policy/v1", "poddisruptionbudgets"),
    "NetworkPolicy": ApiResource("/apis/networking.k8s.io/v1", "networkpolicies"),
    "Lease": ApiResource("/apis/coordination.k8s.io/v1", "leases"),
    "Quorum": ApiResource("/apis/quorate.dev/v1alpha1", "quorums"),
    "QuorumBackup": ApiResource("/apis/quorate.dev/v1alpha1", "quorumbackups"),
    "CustomResourceDefinition": ApiResource(
        "/apis/apiextensions.k8s.io/v1", "customresourcedefinitions"
    ),
}


class KubeError(Exception):
    """The API server rejected a request, or gave no valid answer (status 0)."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status

    @property
    def is_conflict(self) -> bool:
        """Whether another writer was first: the object exists already, or has changed."""
        return self.status == 409

    @property
    def may_pass(self) -> bool:
        """Whether the error is transient: the same call may succeed later."""
        return self.status in (0, 429) or self.status >= 500


def path(kind: str, namespace: str = "", name: str = "", subresource: str = "") -> str:
    api, plural = RESOURCES[kind]
    parts = [api]
    if namespace:
        parts += ["namespaces", namespace]
    parts += [part for part in (plural, name, subresource) if part]
    return "/".join(parts)


class Kube:
    """The API. Its methods block; call them on a thread."""

    def __init__(
        self, api: client.ApiClient, requested: Callable[[str, int], None] = lambda *_: None
    ) -> None:
        """requested: called with the method and the status of each request; 0: no answer."""
        self._api = api
        self._requested = requested

    def _open(self, method: str, url: str, **how: Any) -> Any:
        query: list[tuple[str, str]] = [(k, str(v)) for k, v in how.get("query", {}).items() if v]
        headers = {"Accept": how.get("accept", "application/json")}
        body = how.get("body")
        if body is not None:
            headers["Content-Type"] = how.get("content", "application/json")
        method, url, headers, body, form = self._api.param_serialize(
            method, url, {}, query, headers, body, auth_settings=["BearerToken"]
        )
        timeout = (CONNECT_TIMEOUT_S, how.get("timeout_s", CALL_TIMEOUT_S))
        try:
            answer = self._api.call_api(method, url, headers, body, form, _request_timeout=timeout)
            self._requested(method, answer.status)
            return answer
        except (client.ApiException, HTTPError, OSError) as error:
            self._requested(method, 0)
            raise KubeError(0, f"{method} {url}: {error}") from None

    def call(self, method: str, url: str, **how: Any) -> Object:
        """Send one request and return the decoded response. Raises KubeError."""
        response = self._open(method, url, **how)
        try:
            data = response.read() or b"{}"
        except (HTTPError, OSError) as error:
            raise KubeError(0, f"{method} {url}: {error}") from None
        if not 200 <= response.status <= 299:
            raise KubeError(response.status, _message(data) or f"{method} {url}: {response.reason}")
        return _object(data, f"{method} {url}")

    def get(self, kind: str, namespace: str, name: str) -> Object | None:
        """Return an object, or None if it does not exist. Raises KubeError."""
        try:
            return self.call("GET", path(kind, namespace, name))
        except KubeError as error:
            if error.status == 404:
                return None
            raise

    def list(
        self, kind: str, namespace: str = "", selector: str = "", fields: str = ""
    ) -> list[Object]:
        """Return the objects of a kind, in all namespaces or in one. Raises KubeError.

        selector, fields: label and field selectors.
        """
        return [*self.list_version(kind, namespace, selector, fields)[0]]

    def list_version(
        self, kind: str, namespace: str = "", selector: str = "", fields: str = ""
    ) -> tuple[Sequence[Object], str]:
        """Like `list`; also return the version from which a watch continues. Raises KubeError.

        The objects have no managedFields, which are half of their size: callers keep many of them.
        """
        query = {"labelSelector": selector, "fieldSelector": fields}
        how = {"accept": METADATA_LIST} if kind in WITHOUT_CONTENT else {}
        found = self.call("GET", path(kind, namespace), query=query, **how)
        version = str((found.get("metadata") or {}).get("resourceVersion") or "")
        items = found.get("items") or ()
        for each in items:
            each["metadata"].pop("managedFields", None)
        return items, version

    def create(
        self, kind: str, namespace: str, body: Object, manager: str, *, dry_run: bool = False
    ) -> Object:
        """Create an object, never change one. Raises KubeError (`is_conflict` if it exists).

        dry_run: only admit it.
        """
        query = {"fieldManager": manager, "dryRun": "All" if dry_run else ""}
        return self.call("POST", path(kind, namespace), body=body, query=query)

    def apply(self, namespace: str, body: Object, manager: str) -> Object:
        """Server-side apply: change the fields that `body` names. Raises KubeError.

        With a UID in its metadata it changes only that object; without one it creates the object
        if it is missing.
        """
        return self.call(
            "PATCH",
            path(body["kind"], namespace, body["metadata"]["name"]),
            body=body,
            query={"fieldManager": manager, "force": "true"},
            content=APPLY,
        )

    def merge(
        self, kind: str, namespace: str, name: str, body: Object, subresource: str = ""
    ) -> Object:
        """Merge patch: change the fields that `body` names. Raises KubeError."""
        url = path(kind, namespace, name, subresource)
        return self.call("PATCH", url, body=body, content=MERGE)

    def replace(self, kind: str, namespace: str, body: Object) -> Object:
        """Replace the version that `body` names (optimistic lock). Raises KubeError."""
        return self.call("PUT", path(kind, namespace, body["metadata"]["name"]), body=body)

    def delete(
        self,
        kind: str,
        namespace: str,
        name: str,
        uid: str,
        version: str = "",
        *,
        orphan: bool = False,
    ) -> None:
        """Delete the object with this UID, not a successor of the same name. Raises KubeError.

        version: delete it only if it has not changed since this resourceVersion; "" for any.
        orphan: keep the objects that it owns.
        """
        preconditions = {"uid": uid} | ({"resourceVersion": version} if version else {})
        options: Object = {"preconditions": preconditions}
        if orphan:
            options["propagationPolicy"] = "Orphan"
        self.call("DELETE", path(kind, namespace, name), body=options)

    def watch(
        self,
        kind: str,
        namespace: str = "",
        selector: str = "",
        version: str = "",
        *,
        fields: str = "",
        seconds: int = WATCH_S,
    ) -> Iterator[tuple[str, Object]]:
        """Yield the type of each event and its object, for at most `seconds`. Raises KubeError.

        version: where to begin; "" to begin with all objects. With a version that is too old, the
        error has the status 410. A BOOKMARK's object has only a resourceVersion.
        """
        query = {"watch": "true", "labelSelector": selector, "timeoutSeconds": seconds}
        query |= {"resourceVersion": version, "allowWatchBookmarks": "true"}
        query |= {"fieldSelector": fields}
        how: dict[str, Any] = {"accept": METADATA} if kind in WITHOUT_CONTENT else {}
        how["timeout_s"] = seconds + CALL_TIMEOUT_S
        response = self._open("GET", path(kind, namespace), query=query, **how)
        raw = response.response
        try:
            if response.status != 200:
                raise KubeError(response.status, f"watching {kind}: {response.reason}")
            for line in _lines(raw):
                event = _object(line, f"watching {kind}")
                if event["type"] == "ERROR":
                    found = event["object"]
                    raise KubeError(int(found.get("code") or 0), str(found.get("message")))
                yield str(event["type"]), event["object"]
        except (HTTPError, OSError) as error:
            raise KubeError(0, f"watching {kind}: {error}") from None
        finally:
            raw.close()


def _lines(raw: Any) -> Iterator[bytes]:
    rest = b""
    for piece in raw.stream(65536, decode_content=True):
        *whole, rest = (rest + piece).split(b"\n")
        yield from (line for line in whole if line)


def _object(data: bytes, what: str) -> Object:
    """Decode a JSON object. Raises KubeError, without the data: it may be part of a Secret."""
    try:
        found = json.loads(data)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise KubeError(0, f"{what}: the response is not a JSON object")
    return found


def _message(data: bytes) -> str:
    try:
        return str(_object(data, "").get("message") or "")
    except KubeError:
        return data.decode(errors="replace")[:200]
