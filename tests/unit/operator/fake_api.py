"""A small Kubernetes API server: objects by path, versions, conflicts, watches; no controllers.

It keeps the rules that the operator relies on: creating twice is a conflict, replacing needs the
newest resourceVersion, deleting may name a UID and a resourceVersion, apply creates what is
missing, Secrets are encoded, lists and watches honour label selectors (equality and existence), a
watch replays what happened after its version, or fails with 410.
"""

from __future__ import annotations

import base64
import contextlib
import json
import queue
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from kubernetes import client
from quorate_operator import naming
from quorate_operator.kube.api import RESOURCES, Kube
from quorate_operator.objects.resource import QuorumResource

Object = dict[str, Any]
PLURALS = {resource.plural for resource in RESOURCES.values()}
SUBRESOURCES = {"status", "scale"}
POLL_S = 0.01
"""How often the server looks whether it shall stop, s: each test waits that long at its end."""


class RefusedError(Exception):
    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


def merged(old: Object, new: Object) -> Object:
    """RFC 7386."""
    result = dict(old)
    for name, value in new.items():
        if value is None:
            result.pop(name, None)
        elif isinstance(value, dict):
            earlier = result.get(name)
            result[name] = merged(earlier if isinstance(earlier, dict) else {}, value)
        else:
            result[name] = value
    return result


def selects(selector: str, found: Object) -> bool:
    """Whether an object has the labels of a selector such as `a=b,c`."""
    given = found["metadata"].get("labels") or {}
    for term in filter(None, selector.split(",")):
        name, is_equality, value = term.partition("=")
        if name not in given or (is_equality and given[name] != value):
            return False
    return True


class Store:
    """What the server holds.

    fail: how many calls fail with 503 before it works again. reject: raises RefusedError for a
    method, a path and a body that are not to be admitted. compacted: watches from this version or
    an earlier one are too old. text: the body of each response, in
    place of the object, as from a broken proxy; "": the object. url: of the server.
    """

    def __init__(self) -> None:
        self.objects: dict[str, Object] = {}
        self.url = ""
        self.version = 0
        self.fail = 0
        self.reject: Callable[[str, str, Object], None] = lambda *_: None
        self.compacted = 0
        self.history: list[tuple[int, Object]] = []
        self.text = ""
        self.log: list[tuple[str, str]] = []
        self.watchers: list[queue.Queue[Object]] = []
        self._guard = threading.RLock()

    def _touch(self, path: str, found: Object) -> Object:
        self.version += 1
        if "stringData" in found:
            data = found.setdefault("data", {})
            for name, text in found.pop("stringData").items():
                data[name] = base64.b64encode(text.encode()).decode()
        metadata = found.setdefault("metadata", {})
        metadata["resourceVersion"] = str(self.version)
        metadata.setdefault("uid", str(uuid.uuid4()))
        metadata.setdefault("name", path.rpartition("/")[2])
        metadata.setdefault("creationTimestamp", "2026-01-01T00:00:00Z")
        parts = path.split("/")
        if "namespaces" in parts:
            metadata.setdefault("namespace", parts[parts.index("namespaces") + 1])
        kind = "MODIFIED" if path in self.objects else "ADDED"
        self.objects[path] = found
        self._tell(kind, path, found)
        return found

    def _tell(self, kind: str, path: str, found: Object) -> None:
        event = {"type": kind, "object": json.loads(json.dumps(found)), "path": path}
        self.history.append((self.version, event))
        for watcher in self.watchers:
            watcher.put(dict(event))

    def subscribe(self, version: str) -> queue.Queue[Object]:
        """The events after a version, "" for all objects first."""
        events: queue.Queue[Object] = queue.Queue()
        with self._guard:
            for at, event in self.history if version else ():
                if at > int(version):
                    events.put(dict(event))
            for path, found in () if version else self.objects.items():
                events.put({"type": "ADDED", "object": found, "path": path})
            self.watchers.append(events)
        return events

    def remove(self, path: str) -> None:
        """Delete an object, whoever wants it."""
        with self._guard:
            self.version += 1
            found = self.objects.pop(path)
            last = {
                **found,
                "metadata": {**found["metadata"], "resourceVersion": str(self.version)},
            }
            self._tell("DELETED", path, last)

    def handle(self, method: str, path: str, body: Object, labels: str = "") -> Object:
        """labels: the selector of a list."""
        with self._guard:
            self.log.append((method, path))
            if self.fail:
                self.fail -= 1
                raise RefusedError(503, "not now")
            self.reject(method, path, body)
            head, _, last = path.rpartition("/")
            if last in SUBRESOURCES:
                path = head
            if method == "GET" and last in PLURALS:
                return {
                    "items": [each for each in self.items(path) if selects(labels, each)],
                    "metadata": {"resourceVersion": str(self.version)},
                }
            if method == "POST":
                name = (
                    body["metadata"].get("name")
                    or f"{body['metadata']['generateName']}{self.version}"
                )
                path = f"{path}/{name}"
                if path in self.objects:
                    raise RefusedError(409, f"{name} exists already")
                return self._touch(path, json.loads(json.dumps(body)))
            found = self.objects.get(path)
            uid = (body.get("metadata") or {}).get("uid")
            if uid and method == "PATCH" and (found is None or uid != found["metadata"]["uid"]):
                raise RefusedError(409, "the UID is another")
            if method == "PATCH" and found is None and "apiVersion" in body:
                return self._touch(path, json.loads(json.dumps(body)))
            if found is None:
                raise RefusedError(404, f"{path} does not exist")
            return self._change(method, path, found, body)

    def _change(self, method: str, path: str, found: Object, body: Object) -> Object:
        wanted = (body.get("metadata") or {}).get("resourceVersion")
        if wanted and wanted != found["metadata"]["resourceVersion"]:
            raise RefusedError(409, "the object has been modified")
        if method == "PATCH":
            return self._touch(path, merged(found, body))
        if method == "PUT":
            return self._touch(path, body)
        if method == "DELETE":
            asked = body.get("preconditions") or {}
            for name, shown in (("uid", "UID"), ("resourceVersion", "resourceVersion")):
                if asked.get(name) not in (None, found["metadata"][name]):
                    raise RefusedError(409, f"Precondition failed: the {shown} is another")
            self.remove(path)
        return found

    def items(self, path: str) -> list[Object]:
        """Objects of a collection, of one namespace or of all."""
        plural = path.rpartition("/")[2]
        return [
            found
            for key, found in self.objects.items()
            if key.startswith(f"{path}/")
            or ("/namespaces/" not in path and key.rpartition("/")[0].endswith(f"/{plural}"))
        ]


def _without_content(found: Object) -> Object:
    """As a client gets an object that asked for its metadata only."""
    return {"kind": "PartialObjectMetadata", "metadata": found["metadata"]}


def _handler(store: Store) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True  # else each body waits 40 ms for the client's delayed ACK

        def log_message(self, *_: Any) -> None:
            pass

        def _answer(self) -> None:
            url = urlsplit(self.path)
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length) or b"{}")
            query = parse_qs(url.query)
            labels = query.get("labelSelector", [""])[0]
            if "watch" in query:
                with contextlib.suppress(ConnectionError):  # the client may have ended it
                    self._watch(url.path, query.get("resourceVersion", [""])[0], labels)
                return
            try:
                status, found = 200, body
                if "dryRun" in query:
                    store.reject(self.command, url.path, body)
                else:
                    found = store.handle(self.command, url.path, body, labels)
            except RefusedError as error:
                status, found = error.status, {"message": str(error)}
            if "as=PartialObjectMetadata" in self.headers.get("Accept", "") and "items" in found:
                found = {**found, "items": [_without_content(each) for each in found["items"]]}
            data = (store.text or json.dumps(found)).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def _watch(self, path: str, version: str, labels: str) -> None:
            self.send_response(200)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            if version and int(version) < store.compacted:
                gone = {"type": "ERROR", "object": {"code": 410, "message": "too old"}}
                self._send(json.dumps(gone))
                self.wfile.write(b"0\r\n\r\n")
                return
            events = store.subscribe(version)
            plural = path.rpartition("/")[2]
            while (event := events.get()).get("type") != "END":
                is_listed = event.pop("path").rpartition("/")[0].endswith(f"/{plural}")
                if is_listed and selects(labels, event["object"]):
                    if "as=PartialObjectMetadata" in self.headers.get("Accept", ""):
                        event["object"] = _without_content(event["object"])
                    self._send(store.text or json.dumps(event))
            self.wfile.write(b"0\r\n\r\n")

        def _send(self, text: str) -> None:
            line = text.encode() + b"\n"
            self.wfile.write(f"{len(line):x}\r\n".encode() + line + b"\r\n")
            self.wfile.flush()

        do_GET = do_POST = do_PATCH = do_PUT = do_DELETE = _answer  # noqa: N815

    return Handler


@contextmanager
def api_server() -> Iterator[tuple[Store, Kube]]:
    """A server on loopback and a client of it."""
    store = Store()
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(store))
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(POLL_S,), daemon=True)
    thread.start()
    try:
        store.url = f"http://127.0.0.1:{server.server_address[1]}"
        yield store, Kube(client.ApiClient(client.Configuration(host=store.url)))
    finally:
        for watcher in store.watchers:
            watcher.put({"type": "END"})
        server.shutdown()
        server.server_close()


def created(kube: Kube, **spec: Any) -> QuorumResource:
    """A Quorum of three replicas, as the server holds it. spec: what else it says."""
    body = {
        "apiVersion": naming.API_VERSION,
        "kind": "Quorum",
        "metadata": {"name": "q", "generation": 1},
        "spec": {"image": "quorate:1", "replicas": 3, **spec},
    }
    return QuorumResource.parse(kube.create("Quorum", "lab", body, "test"))
