"""An API server in memory, for tests of what a client does between a fault and the next call.

It stores objects, lists, selects, changes, deletes and watches them, and nothing else: there are no
controllers, no nodes, no validation and no rights, so that every Pod stays as it was created. A Pod
with a node selector is reported as unschedulable. What happens to all others is set by `Pods`. The
behaviour of a real server is tested with a real server.
"""

from __future__ import annotations

import copy
import enum
import itertools
import json
import re
import threading
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timezone
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from kubetest.hollow import running_status
from kubetest.local_pods import NODE, LocalPod, Log

Object = dict[str, Any]
Query = dict[str, str]

VERSION = {"major": "1", "minor": "37", "gitVersion": "v1.37.0"}
NAMESPACES = "/api/v1/namespaces"
_PATH = re.compile(
    r"(?P<collection>/apis?(?:/[a-z.0-9-]+)?/v[0-9a-z]+(?:/namespaces/[^/]+)?/[a-z]+)"
    r"(?:/(?P<name>[^/]+)(?:/status)?)?"
)


class Pods(enum.Enum):
    """The fate of new Pods: they stay pending, they are reported as running, although no program
    runs, or their programs run on this machine.
    """

    PENDING = enum.auto()
    RUNNING = enum.auto()
    LOCAL = enum.auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Change:
    """One event of a watch."""

    version: int
    collection: str
    kind: str
    body: Object


class Refusal(Exception):
    """Raised for a request to which the answer is an error."""

    def __init__(self, code: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.status: Object = {
            "kind": "Status",
            "status": "Failure",
            "code": code,
            "reason": reason,
            "message": message,
        }


@dataclass(slots=True)
class Objects:
    """The stored objects by their paths, and all changes. Several threads can share them."""

    pods: Pods = Pods.PENDING
    _by_path: dict[str, Object] = field(default_factory=dict)
    _changes: list[_Change] = field(default_factory=list)
    _changed: threading.Condition = field(default_factory=threading.Condition)
    _versions: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    _closed: bool = False
    _local_pods: dict[str, LocalPod] = field(default_factory=dict)

    def create(self, collection: str, body: Object, *, dry_run: bool = False) -> Object:
        """Store a new object, and return it as it is stored."""
        with self._changed:
            metadata = body.setdefault("metadata", {})
            name = metadata.setdefault("name", uuid.uuid4().hex[:10])
            path = f"{collection}/{name}"
            if path in self._by_path:
                raise Refusal(409, "AlreadyExists", f'{collection} "{name}" already exists')
            metadata["uid"] = str(uuid.uuid4())
            now = datetime.now(timezone.utc)
            metadata["creationTimestamp"] = f"{now:%Y-%m-%dT%H:%M:%SZ}"
            if collection.endswith("/pods"):
                self._set_status(body)
            body.setdefault("status", {})
            if not dry_run:
                self._store(collection, path, "ADDED", body)
                self._start_local_pod(path, body)
            if collection == NAMESPACES and not dry_run:
                metadata.setdefault("labels", {})["kubernetes.io/metadata.name"] = name
                account = {"metadata": {"name": "default"}}
                self.create(f"{NAMESPACES}/{name}/serviceaccounts", account)
            return copy.deepcopy(body)

    def get(self, path: str) -> Object:
        """Return an object. Raises Refusal if it does not exist."""
        with self._changed:
            if path not in self._by_path:
                raise Refusal(404, "NotFound", f'"{path}" not found')
            return copy.deepcopy(self._by_path[path])

    def list_all(self, collection: str, query: Query) -> Object:
        """Return the list of the selected objects in a collection, or a page of it.

        The token for the next page contains the path of the last object and the version of the
        list. Raises Refusal if the collection has changed since then.
        """
        with self._changed:
            selected = self._selected(collection, query)
            version = self._version()
            if "continue" in query:
                last, _, of_first_page = query["continue"].partition("@")
                if of_first_page != version:
                    raise Refusal(410, "Expired", "the provided continue parameter is too old")
                selected = [(path, body) for path, body in selected if path > last]
            metadata = {"resourceVersion": version}
            limit = int(query.get("limit") or 0)
            if 0 < limit < len(selected):
                selected = selected[:limit]
                metadata["continue"] = f"{selected[-1][0]}@{version}"
            items = [copy.deepcopy(body) for _, body in selected]
            return {"kind": "List", "metadata": metadata, "items": items}

    def patch(self, path: str, patch: Object) -> Object:
        """Apply a merge patch to an object, and return the result.

        Raises Refusal if the patch is for another object or another version of it.
        """
        with self._changed:
            present = self.get(path)
            wanted = patch.get("metadata", {})
            if wanted.get("uid") not in (None, present["metadata"]["uid"]):
                raise Refusal(422, "Invalid", f"{path} is invalid: metadata.uid: is immutable")
            if wanted.get("resourceVersion") not in (None, present["metadata"]["resourceVersion"]):
                raise Refusal(
                    409, "Conflict", f"{path} has been modified; apply your changes again"
                )
            body = _merged(present, patch)
            collection = path.rpartition("/")[0]
            if "deletionTimestamp" in body["metadata"] and not body["metadata"].get("finalizers"):
                self._remove(path)
            else:
                self._store(collection, path, "MODIFIED", body)
                self._apply_deadline(path, body)
            return copy.deepcopy(body)

    def delete(self, path: str, options: Object) -> Object:
        """Delete an object, or request its deletion if it has finalizers, and return it."""
        with self._changed:
            body = self.get(path)
            wanted = (options.get("preconditions") or {}).get("uid")
            if wanted not in (None, body["metadata"]["uid"]):
                raise Refusal(409, "Conflict", f"the UID in the precondition is not that of {path}")
            self._end(path, options)
            return body

    def delete_all(self, collection: str, query: Query) -> Object:
        """Delete the selected objects in a collection, and return the list of them."""
        with self._changed:
            found = self.list_all(collection, query)
            for path, _ in self._selected(collection, query):
                self._end(path, {})
            return found

    def find_log(self, path: str, query: Query) -> Log:
        """Return the log of a container. Raises Refusal if it does not have one."""
        with self._changed:
            self.get(path)
            pod = self._local_pods.get(path)
            previous = query.get("previous") == "true"
            log = pod.log(query.get("container"), previous=previous) if pod else None
            if log is None:
                raise Refusal(400, "BadRequest", "container is waiting to start")
            return log

    def watch(self, collection: str, query: Query) -> Iterator[Object]:
        """Yield the changes of the selected objects after a version, or first the objects, until
        the time in the query is over.
        """
        seconds = float(query.get("timeoutSeconds", "60"))
        version = int(query.get("resourceVersion") or 0)
        if not version:
            with self._changed:
                found = self.list_all(collection, query)
            version = int(found["metadata"]["resourceVersion"])
            for item in found["items"]:
                yield {"type": "ADDED", "object": item}
        timer = threading.Event()
        ending = threading.Timer(seconds, self._end_watch, [timer])
        ending.daemon = True
        ending.start()
        position = 0
        try:
            while True:
                with self._changed:
                    while position == len(self._changes) and not (timer.is_set() or self._closed):
                        self._changed.wait()
                    if timer.is_set() or self._closed:
                        return
                    change = self._changes[position]
                    position += 1
                is_selected = change.collection == collection and _matches(change.body, query)
                if change.version > version and is_selected:
                    yield {"type": change.kind, "object": change.body}
        finally:
            ending.cancel()

    def close(self) -> None:
        """End all watches and all programs."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            for pod in self._local_pods.values():
                pod.close()

    def _start_local_pod(self, path: str, body: Object) -> None:
        is_scheduled = body.get("spec", {}).get("nodeName") == NODE
        if self.pods is Pods.LOCAL and is_scheduled and "/pods/" in path:
            uid = body["metadata"]["uid"]
            pod = LocalPod(
                copy.deepcopy(body),
                report=lambda status: self._set_pod_status(path, uid, status),
                remove=lambda: self._remove_pod(path, uid),
            )
            self._local_pods[path] = pod
            self._apply_deadline(path, body)
            pod.start()

    def _apply_deadline(self, path: str, body: Object) -> None:
        seconds = body.get("spec", {}).get("activeDeadlineSeconds")
        if path in self._local_pods and seconds is not None:
            self._local_pods[path].set_deadline(seconds)

    def _set_pod_status(self, path: str, uid: str, status: Object) -> None:
        with self._changed:
            present = self._by_path.get(path)
            if present is not None and present["metadata"]["uid"] == uid:
                self._store(
                    path.rpartition("/")[0], path, "MODIFIED", {**present, "status": status}
                )

    def _remove_pod(self, path: str, uid: str) -> None:
        with self._changed:
            present = self._by_path.get(path)
            if present is not None and present["metadata"]["uid"] == uid:
                self._remove(path)

    def _set_status(self, pod: Object) -> None:
        """Set the status of a new Pod. No node has the labels that a node selector requires."""
        spec = pod.get("spec", {})
        if spec.get("nodeSelector"):
            condition = {
                "type": "PodScheduled",
                "status": "False",
                "reason": "Unschedulable",
                "message": "0/0 nodes are available: no nodes",
            }
            pod.setdefault("status", {"phase": "Pending", "conditions": [condition]})
        elif self.pods is not Pods.PENDING:
            spec["nodeName"] = NODE
            if self.pods is Pods.RUNNING:
                pod["status"] = running_status(pod, address="10.245.0.1")
        pod.setdefault("status", {"phase": "Pending"})

    def _end_watch(self, timer: threading.Event) -> None:
        with self._changed:
            timer.set()
            self._changed.notify_all()

    def _version(self) -> str:
        return str(self._changes[-1].version if self._changes else 1)

    def _selected(self, collection: str, query: Query) -> list[tuple[str, Object]]:
        found = [
            (path, body)
            for path, body in self._by_path.items()
            if path.rpartition("/")[0] == collection and _matches(body, query)
        ]
        return sorted(found, key=lambda item: item[0])

    def _store(self, collection: str, path: str, kind: str, body: Object) -> None:
        version = next(self._versions)
        body["metadata"]["resourceVersion"] = str(version)
        self._by_path[path] = body
        change = _Change(
            version=version, collection=collection, kind=kind, body=copy.deepcopy(body)
        )
        self._changes.append(change)
        self._changed.notify_all()

    def _end(self, path: str, options: Object) -> None:
        body = self._by_path[path]
        local_pod = self._local_pods.get(path)
        if body["metadata"].get("finalizers") or local_pod is not None:
            body["metadata"]["deletionTimestamp"] = body["metadata"]["creationTimestamp"]
            self._store(path.rpartition("/")[0], path, "MODIFIED", body)
        if local_pod is not None:
            local_pod.delete(options.get("gracePeriodSeconds"))
        elif not body["metadata"].get("finalizers"):
            self._remove(path)

    def _remove(self, path: str) -> None:
        collection = path.rpartition("/")[0]
        if collection == NAMESPACES:
            for other in [key for key in self._by_path if key.startswith(f"{path}/")]:
                self._remove(other)
        if path in self._local_pods:
            self._local_pods.pop(path).close()
        self._store(collection, path, "DELETED", self._by_path[path])
        del self._by_path[path]


class MemoryServer(ThreadingHTTPServer):
    """The server, as a context manager. It listens on the loopback interface without TLS."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, *, pods: Pods = Pods.PENDING) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.objects = Objects(pods=pods)
        # The argument is the time in seconds after which a shutdown is noticed.
        self._thread = threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True)

    @property
    def address(self) -> str:
        """The URL of the server."""
        return f"http://127.0.0.1:{self.server_port}"

    def write_kubeconfig(self, path: Path, namespace: str) -> Path:
        """Write a kubeconfig with a default namespace, and return its path."""
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "memory", "cluster": {"server": self.address}}],
            "users": [{"name": "memory", "user": {}}],
            "contexts": [
                {
                    "name": "memory",
                    "context": {"cluster": "memory", "user": "memory", "namespace": namespace},
                }
            ],
            "current-context": "memory",
        }
        path.write_text(json.dumps(content))
        return path

    def __enter__(self) -> MemoryServer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.objects.close()
        self.shutdown()
        self.server_close()
        self._thread.join()


class _Handler(BaseHTTPRequestHandler):
    server: MemoryServer
    protocol_version = "HTTP/1.1"
    # Without this, the client waits 40 ms for the second packet of each answer.
    disable_nagle_algorithm = True

    def log_message(self, *_: object) -> None:
        """Write nothing."""

    def _handle(self) -> None:
        parts = urlsplit(self.path)
        query = {key: values[0] for key, values in parse_qs(parts.query).items()}
        length = int(self.headers.get("Content-Length") or 0)
        body: Object = json.loads(self.rfile.read(length) or b"{}")
        if query.get("watch") == "true":
            self._watch(parts.path, query)
            return
        try:
            if parts.path.endswith("/log"):
                log = self.server.objects.find_log(parts.path.removesuffix("/log"), query)
                self._stream(log.read(query), "text/plain")
                return
            code, answer = 200, self._answer(parts.path, query, body)
        except Refusal as exc:
            code, answer = exc.code, exc.status
        content = json.dumps(answer).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_POST = do_PATCH = do_DELETE = _handle  # noqa: N815

    def _answer(self, path: str, query: Query, body: Object) -> Object:
        if path == "/version":
            return dict(VERSION)
        if path.endswith("accessreviews"):
            return {**body, "status": {"allowed": True}}
        match = _PATH.fullmatch(path)
        if match is None:
            raise Refusal(404, "NotFound", f"the server could not find {path}")
        collection, name = match["collection"], match["name"]
        objects = self.server.objects
        if self.command == "POST":
            return objects.create(collection, body, dry_run=query.get("dryRun") == "All")
        if name is None:
            every = {"GET": objects.list_all, "DELETE": objects.delete_all}[self.command]
            return every(collection, query)
        path = f"{collection}/{name}"
        if self.command == "GET":
            return objects.get(path)
        change = {"PATCH": objects.patch, "DELETE": objects.delete}[self.command]
        return change(path, body)

    def _watch(self, collection: str, query: Query) -> None:
        events = self.server.objects.watch(collection, query)
        self._stream((json.dumps(event).encode() + b"\n" for event in events), "application/json")

    def _stream(self, lines: Iterable[bytes], content_type: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", content_type)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.wfile.flush()
        try:
            for line in lines:
                self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))
            self.wfile.write(b"0\r\n\r\n")
        except OSError:
            self.close_connection = True  # The client has closed the stream.


def _matches(body: Object, query: Query) -> bool:
    """Return whether the selectors of a query select an object."""
    labels = body["metadata"].get("labels") or {}
    terms = [term for term in query.get("labelSelector", "").split(",") if term]
    if not all(_has_label(labels, term) for term in terms):
        return False
    fields = [term for term in query.get("fieldSelector", "").split(",") if term]
    return all(_has_field(body, term) for term in fields)


def _has_label(labels: Object, term: str) -> bool:
    if term.startswith("!"):
        return term[1:] not in labels
    key, is_compared, value = term.partition("=")
    if not is_compared:
        return key in labels
    if key.endswith("!"):
        return labels.get(key[:-1]) != value
    return labels.get(key) == value


def _has_field(body: Object, term: str) -> bool:
    key, _, value = term.partition("=")
    found: Any = body
    for part in key.rstrip("!").split("."):
        found = found.get(part) if isinstance(found, dict) else None
    return (str(found or "") == value) is not key.endswith("!")


def _merged(body: Object, patch: Object) -> Object:
    """Return an object with a JSON merge patch (RFC 7386)."""
    merged = dict(body)
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        elif isinstance(value, dict):
            old = merged.get(key)
            merged[key] = _merged(old if isinstance(old, dict) else {}, value)
        else:
            merged[key] = value
    return merged
