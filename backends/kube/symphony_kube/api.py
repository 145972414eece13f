"""The API server: plain objects in and out over kept-alive connections. Alone imports the kubernetes client.

The client finds and refreshes credentials and opens connections. Its typed models are not used: they cost more
than the calls for a thousand Pods, and refuse answers of servers older than they are.

What may be tried again is, here and nowhere else:

* a refusal that says when to come back (429, and 503 with Retry-After), whatever was asked;
* silence, a broken connection and 5xx, for what can be asked twice: reading, deleting by uid, and creating
  (whoever creates takes "already exists" for an answer to an earlier try, see `symphony_kube.launch`).
"""

from __future__ import annotations

import contextlib
import json
import os
import ssl
import threading
import time
import urllib.parse
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import urllib3
from kubernetes import client, config
from kubernetes.client import ApiClient, Configuration
from kubernetes.config import ConfigException
from kubernetes.stream.ws_client import create_websocket
from urllib3.exceptions import ConnectTimeoutError, HTTPError, NewConnectionError, SSLError

from symphony.errors import BackendError, NotFound, Unreachable
from symphony.names import listing, near
from symphony_kube.errors import ApiError, api_error, one_line

Object = dict[str, Any]
Query = Mapping[str, "str | int | None"]

JSON = "application/json"
MERGE_PATCH = "application/merge-patch+json"
# The objects of a list without their specs, where names and labels are enough.
METADATA = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"

CONNECT_TIMEOUT = 4.0
ANSWER_TIMEOUT = 15.0
# Pauses between tries, in seconds: an API server that restarts behind its load balancer is back within them.
PAUSES = (0.1, 0.2, 0.4, 0.8, 1.6, 3.2)
# A server that nobody ever reached is told after so long.
REACH_WITHIN = 8.0
# How long all in all to come back as often as a server asks for it.
PATIENCE = 120.0
LONGEST_PAUSE = 30.0

_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """An answer that is read as it comes, such as a watch or a log. Close it when done, from any thread."""

    response: urllib3.BaseHTTPResponse

    def chunks(self) -> Iterator[bytes]:
        """The content as it comes; ends when the server or `close` ends it. `Unreachable` where it broke off."""
        try:
            yield from self.response.stream(1 << 16, decode_content=True)
        except (HTTPError, OSError, ssl.SSLError, ValueError, AttributeError) as exc:
            if not self.response.closed:
                raise Unreachable(f"the connection to the API server broke off: {one_line(str(exc))}") from exc
        finally:
            self.close()

    def lines(self) -> Iterator[bytes]:
        """The content line by line, without the newlines; what follows the last newline is a line too."""
        rest = b""
        for chunk in self.chunks():
            *whole, rest = (rest + chunk).split(b"\n")
            yield from whole
        if rest:
            yield rest

    def close(self) -> None:
        """Give the answer up: a reader in another thread ends."""
        with contextlib.suppress(Exception):
            self.response.shutdown()
        with contextlib.suppress(Exception):
            self.response.close()


class Api:
    """Calls to one API server, safe from several threads. Opening it makes no call.

    ``kubeconfig`` is a file (else KUBECONFIG, ``~/.kube/config``, or the Pod's service account), ``context`` one
    of its contexts (else its current one). ``connections`` may be open at once. The kubeconfig is only read.
    """

    def __init__(
        self,
        *,
        kubeconfig: str | os.PathLike[str] | None = None,
        context: str | None = None,
        connections: int = 16,
        pauses: tuple[float, ...] = PAUSES,
    ) -> None:
        self._configuration, self.namespace, self.context = _load(kubeconfig, context)
        self._configuration.connection_pool_maxsize = connections
        self.connections = connections
        self._pauses = pauses
        self._host = str(self._configuration.host).rstrip("/")
        try:
            self._client = ApiClient(self._configuration)
        except (OSError, ValueError, HTTPError) as exc:
            raise BackendError(f"the credentials of {self._where()} cannot be used: {one_line(str(exc))}") from exc
        self._pool: urllib3.PoolManager = self._client.rest_client.pool_manager
        self._lock = threading.Lock()
        self._reached = False

    def close(self) -> None:
        """Close the connections that are kept."""
        self._pool.clear()

    # --- calls ---

    def call(
        self,
        method: str,
        path: str,
        *,
        query: Query | None = None,
        body: object = None,
        content_type: str = JSON,
        accept: str = JSON,
        timeout: float = ANSWER_TIMEOUT,
    ) -> Object:
        """One call; the object that it answers. ``body`` is an object, or its JSON as bytes.

        Raises `ApiError` for a refusal, `Unreachable` where no answer comes. ``timeout`` is in seconds a try.
        """
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        headers = {"Content-Type": content_type, "Accept": accept}
        response = self._ask(method, self._url(path, query), data, headers, timeout, stream=False)
        return _decoded(response.data)

    def find(self, path: str) -> Object | None:
        """The object at a path, or None where there is none."""
        try:
            return self.call("GET", path)
        except ApiError as exc:
            if exc.status != 404:
                raise
            return None

    def open(self, path: str, *, query: Query | None = None, quiet: float | None = None) -> Answer:
        """Begin to read an answer that comes bit by bit; ``quiet`` is how long it may say nothing, in seconds."""
        headers = {"Accept": "*/*"}
        response = self._ask("GET", self._url(path, query), None, headers, quiet, stream=True)
        return Answer(response=response)

    def watch(self, path: str, *, query: Query | None = None, seconds: int = 300) -> Iterator[Object]:
        """Events (``type`` and ``object``), for at most ``seconds``; close the iterator to end it earlier.

        Raises `Unreachable` where the connection breaks, and `ApiError` for an event that is an error (410: the
        resource version is too old, list again).
        """
        asked: dict[str, str | int | None] = {**(query or {}), "watch": "true", "timeoutSeconds": seconds}
        answer = self.open(path, query=asked, quiet=seconds + 15.0)
        try:
            for line in answer.lines():
                if not line.strip():
                    continue
                try:
                    event: Object = json.loads(line)
                except ValueError as exc:
                    raise Unreachable("the connection to the API server broke off in the middle of an event") from exc
                if event.get("type") == "ERROR":
                    status = event["object"]
                    raise api_error(int(status.get("code") or 500), status, "", None)
                yield event
        finally:
            answer.close()

    def websocket(self, path: str, *, query: list[tuple[str, str]]) -> Any:
        """A connected WebSocket of the websocket-client library: exec, attach, port-forward.

        Raises `ApiError` for a refusal and `Unreachable` where the server does not answer.
        """
        scheme, _, rest = self._host.partition("://")
        url = f"{'wss' if scheme == 'https' else 'ws'}://{rest}{path}?{urllib.parse.urlencode(query)}"
        try:
            connect: Callable[..., Any] = create_websocket
            return connect(self._configuration, url, {key.lower(): value for key, value in self._auth().items()})
        except Exception as exc:  # the library has no common root for what it raises
            status = getattr(exc, "status_code", None)
            if status is not None:
                content = getattr(exc, "resp_body", None) or b""
                raise api_error(int(status), _decoded(content), _text(content), None) from exc
            raise Unreachable(f"{self._where()} does not answer: {one_line(str(exc))}") from exc

    # --- inside ---

    def _ask(
        self, method: str, url: str, data: bytes | None, headers: dict[str, str], timeout: float | None, *, stream: bool
    ) -> urllib3.BaseHTTPResponse:
        began = time.monotonic()
        failures = 0
        while True:
            try:
                response = self._once(method, url, data, headers, timeout, stream=stream)
            except ApiError as exc:
                pause = self._pause_after(exc, method, failures)
                if pause is None or time.monotonic() + pause > began + PATIENCE:
                    raise
            except Unreachable:
                pause = self._pauses[failures] if failures < len(self._pauses) and method != "PATCH" else None
                late = time.monotonic() > began + REACH_WITHIN - CONNECT_TIMEOUT
                if pause is None or (late and not self._reached):
                    raise
            else:
                self._reached = True
                return response
            failures += 1
            time.sleep(pause)

    def _pause_after(self, exc: ApiError, method: str, failures: int) -> float | None:
        self._reached = True
        if exc.status in (429, 503) and exc.retry_after is not None:
            return min(exc.retry_after, LONGEST_PAUSE)
        if exc.status == 429 or (exc.status >= 500 and method != "PATCH"):
            return self._pauses[failures] if failures < len(self._pauses) else None
        return None

    def _once(
        self, method: str, url: str, data: bytes | None, headers: dict[str, str], timeout: float | None, *, stream: bool
    ) -> urllib3.BaseHTTPResponse:
        try:
            response = self._pool.request(
                method,
                url,
                body=data,
                headers={**headers, **self._auth()},
                preload_content=not stream,
                retries=False,
                timeout=urllib3.Timeout(connect=CONNECT_TIMEOUT, read=timeout),
            )
        except (HTTPError, OSError) as exc:
            raise self._unreachable(exc) from exc
        if response.status < 400:
            return response
        content = response.data
        raise api_error(response.status, _decoded(content), _text(content), _retry_after(response.headers))

    def _unreachable(self, exc: Exception) -> Unreachable:
        where = self._where()
        if isinstance(exc, SSLError) and "CERTIFICATE_VERIFY_FAILED" in str(exc):
            why = str(exc).partition("CERTIFICATE_VERIFY_FAILED]")[2] or str(exc)
            return Unreachable(f"{where} shows a certificate that is not trusted:{one_line(why)}; see its kubeconfig")
        if isinstance(exc, (NewConnectionError, ConnectTimeoutError)):
            why = str(exc).rpartition("> ")[2] or str(exc)
            return Unreachable(f"{where} does not answer: {one_line(why)}; is it running, and the network there?")
        return Unreachable(f"{where} broke off the connection: {one_line(str(exc))}")

    def _where(self) -> str:
        return f"the API server {self._host}{f' (context {self.context!r})' if self.context else ''}"

    def _url(self, path: str, query: Query | None) -> str:
        given = {key: value for key, value in (query or {}).items() if value is not None}
        return f"{self._host}{path}{'?' if given else ''}{urllib.parse.urlencode(given)}"

    def _auth(self) -> dict[str, str]:
        """The headers that carry the credentials; a plug-in of the kubeconfig may have to run for them."""
        with self._lock:
            try:
                found: Mapping[str, Any] = self._configuration.auth_settings()
            except (ConfigException, OSError, ValueError) as exc:
                raise BackendError(f"no credentials for {self._where()}: {one_line(str(exc))}") from exc
        given = (setting for setting in found.values() if setting["in"] == "header" and setting["value"])
        return {setting["key"]: setting["value"] for setting in given}


def _load(
    kubeconfig: str | os.PathLike[str] | None, context: str | None
) -> tuple[Configuration, str | None, str | None]:
    """The configuration, the namespace and the name of a context, from a kubeconfig or from inside a Pod."""
    configuration = client.Configuration()
    given = os.fspath(kubeconfig) if kubeconfig is not None else os.environ.get("KUBECONFIG") or None
    sources = (given or "~/.kube/config").split(os.pathsep)
    there = [source for source in sources if Path(source).expanduser().is_file()]
    if not there and given is None and context is None and (_ACCOUNT / "token").exists():
        return _load_in_cluster(configuration)
    if not there:
        named = " and ".join(sources)
        raise BackendError(
            f"no kubeconfig: there is no file {named}; name one with kubeconfig= or KUBECONFIG, or get it from "
            "your cluster's provider"
        )
    place = os.pathsep.join(str(Path(source).expanduser()) for source in there)
    try:
        read: Callable[..., Any] = config.list_kube_config_contexts
        contexts, current = read(config_file=place)
        chosen = _chosen([item["name"] for item in contexts], current and current["name"], context, place)
        load: Callable[..., None] = config.load_kube_config
        load(config_file=place, context=chosen, client_configuration=configuration, persist_config=False)
    except NotFound:
        raise
    except Exception as exc:  # the library raises whatever reading YAML, base64 and files may raise
        raise BackendError(f"the kubeconfig {place} cannot be used: {one_line(str(exc))}") from exc
    details: Mapping[str, Any] = next((item["context"] for item in contexts if item["name"] == chosen), {})
    return configuration, details.get("namespace"), chosen


def _chosen(known: list[str], current: str | None, asked: str | None, place: str) -> str:
    name = asked or current
    if not name:
        raise NotFound(f"the kubeconfig {place} has no current context; choose one of {listing(known)} with context=")
    if name not in known:
        hint = near(name, known) or f"; it has {listing(known)}"
        raise NotFound(f"the kubeconfig {place} has no context {name!r}{hint}")
    return name


def _load_in_cluster(configuration: Configuration) -> tuple[Configuration, str | None, str | None]:
    load: Callable[..., None] = config.load_incluster_config
    try:
        load(client_configuration=configuration)
        namespace = (_ACCOUNT / "namespace").read_text().strip()
    except (ConfigException, OSError) as exc:
        raise BackendError(f"the service account of this Pod cannot be used: {one_line(str(exc))}") from exc
    return configuration, namespace or None, None


def _decoded(content: bytes | str) -> Object:
    try:
        found = json.loads(content)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _text(content: bytes | str) -> str:
    return content if isinstance(content, str) else content.decode(errors="replace")


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """The seconds of a Retry-After; Kubernetes writes no dates."""
    try:
        return max(0.0, float(headers.get("Retry-After", "")))
    except ValueError:
        return None
