"""The API server: plain objects in and out over kept-alive connections.

This and `symphony_kube.api.kubeconfig` alone import the kubernetes client.

The client finds and refreshes credentials and opens connections. Its typed models are not used: they cost more
than the calls for a thousand Pods, and refuse answers of servers older than they are. What is tried again, and
for how long, is said by `symphony_kube.api.retries`.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import ssl
import threading
import time
import urllib.parse
import warnings
from collections.abc import Generator, Iterator, Mapping
from typing import Any

from symphony.errors import BackendError, PluginError, Unreachable
from symphony_kube.api.errors import ApiError, UntrustedCertificate, api_error, one_line
from symphony_kube.api.retries import Timeouts, pause

try:
    import urllib3
    from kubernetes.client.rest import RESTClientObject
    from kubernetes.stream import ws_client
    from urllib3.exceptions import (
        ConnectTimeoutError,
        HTTPError,
        InsecureRequestWarning,
        NewConnectionError,
        ReadTimeoutError,
        SSLError,
    )

    from symphony_kube.api.kubeconfig import credentials, keys, load
except ModuleNotFoundError as absent:
    raise PluginError(
        f"backend 'kube' needs the package {absent.name!r}; install it with: pip install 'symphony-launcher[kube]'"
    ) from absent

Object = dict[str, Any]
Query = Mapping[str, "str | int | None"]

JSON = "application/json"
MERGE_PATCH = "application/merge-patch+json"
# The objects of a list, or of a watch, without their specs: where names and labels are enough.
ACCEPT_METADATA_LIST = (
    "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"
)
ACCEPT_METADATA = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"

# For watches and logs beside the calls of a launch.
SPARE_CONNECTIONS = 8

# The library has no types for these.
_WEBSOCKETS: Any = ws_client


class ResponseStream:
    """An answer that is read as it comes, such as a watch or a log. Close it when done, from any thread."""

    def __init__(self, response: urllib3.BaseHTTPResponse) -> None:
        self._response = response
        self._given_up = False

    def chunks(self) -> Iterator[bytes]:
        """The content as it comes; ends when the server or `close` ends it. `Unreachable` where it broke off."""
        try:
            yield from self._response.stream(1 << 16, decode_content=True)
        except (HTTPError, OSError, ValueError, AttributeError) as exc:
            if not self._given_up:
                raise Unreachable(
                    f"the connection to the API server broke off: {one_line(str(exc))}"
                ) from exc
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
        self._given_up = True
        with contextlib.suppress(Exception):
            self._response.shutdown()
        with contextlib.suppress(Exception):
            self._response.close()


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
        timeouts: Timeouts | None = None,
    ) -> None:
        self._given = (kubeconfig, context)
        self._configuration, self.namespace, self.context = load(kubeconfig, context)
        self._configuration.connection_pool_maxsize = connections + SPARE_CONNECTIONS
        self.connections = connections
        self.timeouts = timeouts or Timeouts()
        self._host = str(self._configuration.host).rstrip("/")
        if not self._configuration.verify_ssl:
            _no_warnings_of(self._host)  # whoever wrote the kubeconfig knows
        try:
            self._pool: urllib3.PoolManager = RESTClientObject(self._configuration).pool_manager
        except (OSError, ValueError, HTTPError) as exc:
            raise BackendError(
                f"the credentials for {self.where} cannot be used: {one_line(str(exc))}"
            ) from exc
        self._lock = threading.Lock()
        self._reached = False

    def close(self) -> None:
        """Close the connections that are kept."""
        self._pool.clear()

    @property
    def where(self) -> str:
        """The API server in words."""
        return (
            f"the API server {self._host}{f' (context {self.context!r})' if self.context else ''}"
        )

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
        timeout: float | None = None,
        give_up: threading.Event | None = None,
    ) -> Object:
        """One call; the object that it answers. ``body`` is an object, or its JSON as bytes.

        Raises `ApiError` for a refusal, `Unreachable` where no answer comes. ``timeout`` is in seconds a try.
        Nothing is tried again once ``give_up`` is set.
        """
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        headers = {"Content-Type": content_type, "Accept": accept}
        wait = timeout or self.timeouts.response
        response = self._ask(
            method, self._url(path, query), data, headers, wait, stream=False, give_up=give_up
        )
        try:
            answer = json.loads(response.data)
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            raise BackendError(
                f"{self.where} does not answer as an API server does: {one_line(_text(response.data), limit=80)!r}; "
                "see the server in the kubeconfig"
            )
        return answer

    def find(self, path: str) -> Object | None:
        """The object at a path, or None where there is none."""
        try:
            return self.call("GET", path)
        except ApiError as exc:
            if exc.status != 404:
                raise
            return None

    def open_stream(
        self,
        path: str,
        *,
        query: Query | None = None,
        accept: str = "*/*",
        idle_timeout: float | None = None,
    ) -> ResponseStream:
        """Begin to read an answer that comes bit by bit; ``quiet`` is how long it may say nothing, in seconds."""
        return ResponseStream(
            self._ask(
                "GET", self._url(path, query), None, {"Accept": accept}, idle_timeout, stream=True
            )
        )

    def watch(
        self, path: str, *, query: Query | None = None, accept: str = JSON, seconds: int = 300
    ) -> Generator[Object, None, None]:
        """Events (``type`` and ``object``), for at most ``seconds``; close the iterator to end it earlier.

        Raises `Unreachable` where the connection breaks, and `ApiError` for an event that is an error (410: the
        resource version is too old, list again).
        """
        asked: dict[str, str | int | None] = {
            **(query or {}),
            "watch": "true",
            "timeoutSeconds": seconds,
        }
        answer = self.open_stream(path, query=asked, accept=accept, idle_timeout=seconds + 15.0)
        try:
            yield from events(answer)
        finally:
            answer.close()

    def websocket(self, path: str, *, query: list[tuple[str, str]]) -> Any:
        """A connected WebSocket of the websocket-client library, without a timeout: exec, attach, port-forward.

        Raises `ApiError` for a refusal and `Unreachable` where the server does not answer.
        """
        scheme, _, rest = self._host.partition("://")
        url = (
            f"{'wss' if scheme == 'https' else 'ws'}://{rest}{path}?{urllib.parse.urlencode(query)}"
        )
        asked = [f"{key}: {value}" for key, value in self._auth().items()]
        asked.append(
            f"sec-websocket-protocol: {ws_client.V5_CHANNEL_PROTOCOL},{ws_client.V4_CHANNEL_PROTOCOL}"
        )
        # The library knows one limit for both: to connect, and for the answer, which comes from the container's node.
        options: dict[str, Any] = {"header": asked, "timeout": self.timeouts.response}
        if self._configuration.proxy:
            options = _WEBSOCKETS.websocket_proxycare(options, self._configuration, url, None)
        socket: Any = _WEBSOCKETS.WebSocket(sslopt=self._tls(), skip_utf8_validation=False)
        try:
            socket.connect(url, **options)
        except Exception as exc:  # the library has no common root for what it raises
            with contextlib.suppress(Exception):
                socket.close()
            status = getattr(exc, "status_code", None)
            if status is not None:
                content = getattr(exc, "resp_body", None) or b""
                raise api_error(int(status), _decoded(content), _text(content), None) from exc
            raise self._unreachable(exc) from exc
        socket.settimeout(None)
        return socket

    # --- inside ---

    def _ask(
        self,
        method: str,
        url: str,
        data: bytes | None,
        headers: dict[str, str],
        timeout: float | None,
        *,
        stream: bool,
        give_up: threading.Event | None = None,
    ) -> urllib3.BaseHTTPResponse:
        began = time.monotonic()
        failures = 0
        renewed = False
        while True:
            auth = self._auth()
            try:
                return self._once(method, url, data, {**headers, **auth}, timeout, stream=stream)
            except BackendError as exc:
                if isinstance(exc, ApiError) and exc.status == 401 and not renewed:
                    renewed = True
                    if self._renew(auth):
                        continue
                elapsed = time.monotonic() - began
                left = pause(
                    exc, self.timeouts, failures=failures, elapsed=elapsed, reached=self._reached
                )
                if left is None:
                    raise
                failures += 1
                if give_up is None:
                    time.sleep(left)
                elif give_up.wait(left):
                    raise

    def _once(
        self,
        method: str,
        url: str,
        data: bytes | None,
        headers: dict[str, str],
        timeout: float | None,
        *,
        stream: bool,
    ) -> urllib3.BaseHTTPResponse:
        if not self._reached:
            timeout = (
                self.timeouts.first_response
                if timeout is None
                else min(timeout, self.timeouts.first_response)
            )
        try:
            response = self._pool.request(
                method,
                url,
                body=data,
                headers=headers,
                preload_content=not stream,
                retries=False,
                timeout=urllib3.Timeout(connect=self.timeouts.connect, read=timeout),
            )
        except (HTTPError, OSError) as exc:
            raise self._unreachable(exc) from exc
        self._reached = True
        if response.status < 300:
            return response
        try:
            content = response.data
        except (HTTPError, OSError) as exc:
            raise self._unreachable(exc) from exc
        raise api_error(
            response.status, _decoded(content), _text(content), _retry_after(response.headers)
        )

    def _unreachable(self, exc: Exception) -> Unreachable:
        text = one_line(str(exc))
        if isinstance(exc, (SSLError, ssl.SSLError)) and "CERTIFICATE_VERIFY_FAILED" in text:
            why = text.partition("certificate verify failed: ")[2].partition(" (_ssl")[0] or text
            return UntrustedCertificate(
                f"{self.where} shows a certificate that is not trusted ({why}); get its kubeconfig anew, or see its "
                "certificate-authority there"
            )
        if isinstance(exc, ReadTimeoutError):
            return Unreachable(f"{self.where} does not answer: {text.rpartition(': ')[2]}")
        if isinstance(exc, (NewConnectionError, ConnectTimeoutError, OSError)):
            why = text.rpartition(">: ")[2].rpartition("> ")[2] or text
            return Unreachable(
                f"{self.where} cannot be reached: {why}; is it running, and the network there?"
            )
        return Unreachable(f"{self.where} broke off: {text}")

    def _url(self, path: str, query: Query | None) -> str:
        given = {key: value for key, value in (query or {}).items() if value is not None}
        return f"{self._host}{path}{'?' if given else ''}{urllib.parse.urlencode(given)}"

    def _auth(self) -> dict[str, str]:
        """The headers that carry the credentials; a plug-in of the kubeconfig may have to run for them."""
        with self._lock, credentials(self.where):
            found: Mapping[str, Any] = self._configuration.auth_settings()
        given = (
            setting for setting in found.values() if setting["in"] == "header" and setting["value"]
        )
        return {setting["key"]: setting["value"] for setting in given}

    def _renew(self, refused: dict[str, str]) -> bool:
        """Whether the kubeconfig now gives other credentials than those that were refused: tokens expire."""
        with self._lock:
            self._configuration.api_key, self._configuration.refresh_api_key_hook = keys(
                *self._given
            )
        return self._auth() != refused

    def _tls(self) -> dict[str, Any]:
        """What the websocket library wants to know of certificates."""
        given = self._configuration
        options: dict[str, Any] = {
            "cert_reqs": ssl.CERT_REQUIRED if given.verify_ssl else ssl.CERT_NONE
        }
        if not given.verify_ssl:
            options["check_hostname"] = False
        elif given.ssl_ca_cert:
            options["ca_certs"] = given.ssl_ca_cert
        named = {
            "certfile": given.cert_file,
            "keyfile": given.key_file,
            "server_hostname": given.tls_server_name,
        }
        return {**options, **{key: value for key, value in named.items() if value}}


def events(answer: ResponseStream) -> Iterator[Object]:
    """The events of a watch; see `Api.watch`."""
    for line in answer.lines():
        if not line.strip():
            continue
        try:
            event: Object = json.loads(line)
        except ValueError as exc:
            raise Unreachable(
                "the connection to the API server broke off in the middle of an event"
            ) from exc
        if event.get("type") == "ERROR":
            status = event["object"]
            raise api_error(int(status.get("code") or 500), status, "", None)
        yield event


# --- answers ---


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


def _no_warnings_of(host: str) -> None:
    name = re.escape(urllib.parse.urlsplit(host).hostname or host)
    warnings.filterwarnings(
        "ignore",
        message=f"Unverified HTTPS request is being made to host '{name}'",
        category=InsecureRequestWarning,
    )
