"""The API client, which sends and receives plain JSON objects over persistent connections.

`symphony_kube.api.credentials.kubeconfig` loads the credentials, and
`symphony_kube.api.connections` opens the connections. `symphony_kube.api.retries` determines which
calls are retried. The typed models of the kubernetes package are not used: parsing a thousand Pods
with them takes longer than the API calls,
and they can reject responses from other server versions.
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
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from symphony.errors import BackendError, PluginError, Unreachable
from symphony_kube.api.connection_settings import ConnectionSettings
from symphony_kube.api.errors import ApiError, UntrustedCertificate, api_error, one_line
from symphony_kube.api.retries import Outage, Timeouts, pause
from symphony_kube.api.server_clock import ServerClock
from symphony_kube.api.server_warnings import ServerWarnings
from symphony_kube.api.streams.channels import Refused

try:
    import urllib3
    from urllib3.exceptions import (
        ConnectTimeoutError,
        HTTPError,
        InsecureRequestWarning,
        NewConnectionError,
        ReadTimeoutError,
        SSLError,
    )

    from symphony_kube.api.connections import connection_pool, open_socket
    from symphony_kube.api.credentials.kubeconfig import kubeconfig_path, load_context
except ModuleNotFoundError as missing:
    from symphony.support.install_hints import install_command

    raise PluginError(
        f"backend 'kube' needs the package {missing.name!r}; "
        f"install it with: {install_command('kube')}"
    ) from missing

if TYPE_CHECKING:
    from symphony_kube.api.streams.spdy import Spdy
    from symphony_kube.api.streams.websocket import WebSocket

Object = dict[str, Any]
_Result = TypeVar("_Result")
Query = Mapping[str, "str | int | None"]
# Query parameters that can be repeated.
RepeatedQuery = Sequence[tuple[str, str]]

# Content types.
JSON = "application/json"
MERGE_PATCH = "application/merge-patch+json"
# Values of the Accept header that limit a list or a watch to the objects' metadata.
ACCEPT_METADATA_LIST = (
    "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"
)
ACCEPT_METADATA = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"

# The number of connections for watches and logs, in addition to those for other calls.
SPARE_CONNECTIONS = 8
STREAM_CHUNK_BYTES = 64 * 1024
# A server may end a watch up to this many seconds later than requested.
WATCH_END_TOLERANCE_SECONDS = 15.0


class ResponseStream:
    """A response that is read as a stream, such as the events of a watch or the lines of a log.

    Close the stream when it is no longer needed. Any thread can close it.
    """

    def __init__(self, response: urllib3.BaseHTTPResponse) -> None:
        self._response = response
        self._is_closed = False

    def chunks(self) -> Iterator[bytes]:
        """Yield the response body in chunks until the server ends it or `close` is called.

        Raises `Unreachable` if the connection is lost.
        """
        try:
            yield from self._response.stream(STREAM_CHUNK_BYTES, decode_content=True)
        except (HTTPError, OSError, ValueError, AttributeError) as exc:
            # Reading a response that another thread has closed raises one of these errors.
            if not self._is_closed:
                raise Unreachable(
                    f"the connection to the API server was lost: {_cause(exc)}"
                ) from exc
        finally:
            self.close()

    def lines(self) -> Iterator[bytes]:
        """Yield the lines of the response body without newlines. The last line may be
        incomplete.
        """
        rest = b""
        for chunk in self.chunks():
            *complete, rest = (rest + chunk).split(b"\n")
            yield from complete
        if rest:
            yield rest

    def close(self) -> None:
        """Close the response. A thread that is reading it then stops without an error."""
        self._is_closed = True
        with contextlib.suppress(Exception):
            self._response.shutdown()
        with contextlib.suppress(Exception):
            self._response.close()


class Api:
    """A client for one API server. Several threads can share a client. Creating a client sends no
    requests.

    ``kubeconfig`` is the path of a kubeconfig. By default, the client uses the files that the
    variable ``KUBECONFIG`` lists, or else ``~/.kube/config``. In a Pod without a kubeconfig, it
    uses the Pod's service account. ``context`` is the name of a context in the kubeconfig. The
    default is the current context of the kubeconfig. ``connections`` is the maximum number of
    concurrent calls.
    """

    def __init__(
        self,
        *,
        kubeconfig: str | os.PathLike[str] | None = None,
        context: str | None = None,
        connections: int = 16,
        timeouts: Timeouts | None = None,
    ) -> None:
        self._source = (kubeconfig, context)
        self._settings, self.namespace, self.context = load_context(kubeconfig, context)
        self.connections = connections
        self.timeouts = timeouts or Timeouts()
        self._host = self._settings.server
        if not self._settings.tls.verify:
            # The kubeconfig disables certificate verification on purpose, so warnings about it are
            # not useful.
            _ignore_insecure_warnings(self._host)
        self._pool = connection_pool(self._settings, connections + SPARE_CONNECTIONS)
        self._settings_lock = threading.Lock()
        self._clock = ServerClock()
        self.warnings = ServerWarnings()
        self._reached = False
        self._outage = Outage()
        # Whether the server has refused to open a WebSocket for a command, but not SPDY.
        self.requires_spdy = False

    def close(self) -> None:
        """Close the persistent connections."""
        self._pool.clear()

    @property
    def host(self) -> str:
        """The URL of the API server."""
        return self._host

    @property
    def kubeconfig(self) -> str | None:
        """The absolute paths of the kubeconfigs, or None if this Pod's service account is used.

        Another process that starts in another directory can read the same kubeconfigs.
        """
        return kubeconfig_path(*self._source)

    @property
    def description(self) -> str:
        """The API server's address and context, as text for messages."""
        context = f" (context {self.context!r})" if self.context else ""
        return f"the API server {self._host}{context}"

    def now(self) -> float:
        """Return the API server's time, in seconds since the epoch, as its responses show it."""
        return self._clock.now()

    @property
    def clock_offset(self) -> float:
        """How many seconds the API server's clock is ahead of the clock of this machine."""
        return self._clock.offset()

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
        cancelled: threading.Event | None = None,
    ) -> Object:
        """Make a call and return the object from the response.

        ``body`` is an object, or the bytes of an object encoded as JSON. ``timeout`` is the time
        limit for each try, in seconds. A failed call is not retried once ``cancelled`` is set.
        Raises `ApiError` if the server answers with an error, `Unreachable` if it does not answer,
        and `BackendError` if the response is not a JSON object.
        """
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        # The bytes are released before the text is parsed: those of 10,000 Pods take up 60 MB.
        text = _text(
            self._request(
                method,
                self._url(path, query),
                data,
                {"Content-Type": content_type, "Accept": accept},
                timeout or self.timeouts.response,
                stream=False,
                cancelled=cancelled,
            ).data
        )
        try:
            result = json.loads(text)
        except ValueError:
            result = None
        if not isinstance(result, dict):
            start = one_line(text, limit=80)
            raise BackendError(
                f"{self.description} does not answer like an API server: {start!r}; "
                "check the server in the kubeconfig"
            )
        return result

    def call_without_answer(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: object,
        accept: str,
        timeout: float,
    ) -> None:
        """Make a call, and ignore the object in the response, which can be large; see `call`."""
        headers = {"Content-Type": JSON, "Accept": accept}
        data = json.dumps(body).encode()
        self._request(method, self._url(path, query), data, headers, timeout, stream=False)

    def find(self, path: str) -> Object | None:
        """Return the object at a path, or None if no object exists there."""
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
        cancelled: threading.Event | None = None,
    ) -> ResponseStream:
        """Send a GET request, and return the response as a stream.

        ``idle_timeout`` is the maximum time to wait for more data, in seconds. A failed request is
        not retried once ``cancelled`` is set.
        """
        response = self._request(
            "GET",
            self._url(path, query),
            None,
            {"Accept": accept},
            idle_timeout,
            stream=True,
            cancelled=cancelled,
        )
        return ResponseStream(response)

    def watch(
        self, path: str, *, query: Query | None = None, accept: str = JSON, seconds: int = 300
    ) -> Generator[Object, None, None]:
        """Watch the objects at ``path`` for ``seconds`` seconds, and yield each event as a mapping
        with a ``type`` and an ``object``.

        Close the iterator to end the watch earlier. Raises `Unreachable` if the connection is lost,
        and `ApiError` if the server answers with an error or sends an error event. Status 410 means
        that the resource version is too old, and that the objects must be listed again.
        """
        watch_query: dict[str, str | int | None] = {
            **(query or {}),
            "watch": "true",
            "timeoutSeconds": seconds,
        }
        stream = self.open_stream(
            path,
            query=watch_query,
            accept=accept,
            idle_timeout=seconds + WATCH_END_TOLERANCE_SECONDS,
        )
        try:
            yield from watch_events(stream)
        finally:
            stream.close()

    def websocket(self, path: str, *, query: RepeatedQuery, protocol: str) -> WebSocket:
        """Return an open WebSocket for exec, attach or port-forward.

        Its socket has no timeout. Raises `ApiError` if the server answers with an error, and
        `Unreachable` if it does not answer.
        """
        from symphony_kube.api.streams.websocket import open_websocket

        return self._upgrade(path, query, partial(open_websocket, protocol=protocol))

    def spdy(self, path: str, *, query: RepeatedQuery, channels: Iterable[int]) -> Spdy:
        """Return an open connection with the given channels for exec or attach.

        It is like the result of `websocket`.
        """
        from symphony_kube.api.streams.spdy import open_spdy

        return self._upgrade(path, query, partial(open_spdy, channels=channels))

    # --- requests ---

    def _request(
        self,
        method: str,
        url: str,
        data: bytes | None,
        headers: dict[str, str],
        timeout: float | None,
        *,
        stream: bool,
        cancelled: threading.Event | None = None,
    ) -> urllib3.BaseHTTPResponse:
        """Send a request, and retry it as determined by `symphony_kube.api.retries`."""
        began = time.monotonic()
        failures = 0

        def try_request(settings: ConnectionSettings) -> urllib3.BaseHTTPResponse:
            all_headers = {**headers, **_authorization(settings)}
            if settings.compression is not False and not stream:
                # The list of a thousand Pods is ten times smaller.
                all_headers["Accept-Encoding"] = "gzip"
            return self._try_request(method, url, data, all_headers, timeout, stream=stream)

        while True:
            try:
                return self._with_credentials(try_request)
            except BackendError as exc:
                outage = None
                if not self._reached and isinstance(exc.__cause__, ReadTimeoutError):
                    self._ask_for_version()
                if self._reached and isinstance(exc, Unreachable):
                    outage = self._outage.note_failure(self.timeouts)
                wait_seconds = pause(
                    exc,
                    self.timeouts,
                    failures=failures,
                    elapsed=time.monotonic() - began,
                    outage=outage,
                )
                if wait_seconds is None:
                    raise
                failures += 1
                if cancelled is None:
                    time.sleep(wait_seconds)
                elif cancelled.wait(wait_seconds):
                    raise

    def _ask_for_version(self) -> None:
        """Find out whether a server that has not answered a call is only slow.

        A busy server needs longer than the first timeout for a list of many objects.
        """

        def ask(settings: ConnectionSettings) -> urllib3.BaseHTTPResponse:
            headers = _authorization(settings)
            return self._try_request(
                "GET", self._url("/version", None), None, headers, None, stream=False
            )

        with contextlib.suppress(BackendError):
            self._with_credentials(ask)

    def _try_request(
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
            first = self.timeouts.first_response
            timeout = first if timeout is None else min(timeout, first)
        sent = time.time()
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
            self._reached = True
            self._outage.end()
            self._clock.note(response.headers.get("Date"), sent=sent, received=time.time())
            self.warnings.note(response.headers.get("Warning"))
            if response.status < 300:
                return response
            content = response.data
        except (HTTPError, OSError) as exc:
            raise self._unreachable(exc) from exc
        retry_after = _retry_after_seconds(response.headers)
        raise api_error(response.status, _decode(content), _text(content), retry_after)

    def _upgrade(self, path: str, query: RepeatedQuery, upgrade: Callable[..., _Result]) -> _Result:
        """Call a function that upgrades a new connection to another protocol."""
        target = f"{path}?{urllib.parse.urlencode(query)}"
        return self._with_credentials(lambda settings: self._try_upgrade(target, settings, upgrade))

    def _try_upgrade(
        self, target: str, settings: ConnectionSettings, upgrade: Callable[..., _Result]
    ) -> _Result:
        try:
            connected = open_socket(self._pool, self._host, self.timeouts.connect)
        except (HTTPError, OSError) as exc:
            raise self._unreachable(exc) from exc
        try:
            # The response comes from the container's node.
            connected.settimeout(self.timeouts.response)
            server = urllib.parse.urlsplit(self._host)
            upgraded = upgrade(
                connected,
                host=server.netloc,
                target=f"{server.path}{target}",
                headers=_authorization(settings),
            )
            connected.settimeout(None)
        except Refused as exc:
            connected.close()
            raise api_error(exc.status, _decode(exc.body), _text(exc.body), None) from exc
        except OSError as exc:
            connected.close()
            raise self._unreachable(exc) from exc
        return upgraded

    def _unreachable(self, exc: Exception) -> Unreachable:
        """Return the error for a failed connection."""
        text = one_line(str(exc))
        if isinstance(exc, (SSLError, ssl.SSLError)) and "CERTIFICATE_VERIFY_FAILED" in text:
            cause = text.partition("certificate verify failed: ")[2].partition(" (_ssl")[0] or text
            return UntrustedCertificate(
                f"the certificate of {self.description} is not trusted ({cause}); download its "
                "kubeconfig again, or check certificate-authority in it"
            )
        if isinstance(exc, ReadTimeoutError):
            return Unreachable(f"{self.description} does not answer: {text.rpartition(': ')[2]}")
        if isinstance(exc, (NewConnectionError, ConnectTimeoutError, OSError)):
            return Unreachable(
                f"{self.description} cannot be reached: {_cause(exc)}; is the server running, and "
                "is the network up?"
            )
        return Unreachable(f"the connection to {self.description} was lost: {_cause(exc)}")

    def _url(self, path: str, query: Query | None) -> str:
        parameters = {key: value for key, value in (query or {}).items() if value is not None}
        if not parameters:
            return f"{self._host}{path}"
        return f"{self._host}{path}?{urllib.parse.urlencode(parameters)}"

    # --- credentials ---

    def _with_credentials(self, send: Callable[[ConnectionSettings], _Result]) -> _Result:
        """Call a function that sends a request.

        If the server or its certificate does not fit the credentials, load them again, because a
        token or a certificate may have been replaced. If they have changed, call the function a
        second time.
        """
        settings = self._current_settings()
        try:
            return send(settings)
        except (ApiError, UntrustedCertificate) as exc:
            if isinstance(exc, ApiError) and exc.status != 401:
                raise
            renewed = self._renewed_settings(settings)
            if renewed == settings:
                raise
        return send(renewed)

    def _current_settings(self) -> ConnectionSettings:
        """Return the settings, which are loaded again if they have expired."""
        settings = self._settings
        if settings.expires is None or time.time() < settings.expires:
            return settings
        return self._renewed_settings(settings)

    def _renewed_settings(self, old: ConnectionSettings) -> ConnectionSettings:
        """Load the settings again, unless another thread has already replaced ``old``.

        Loading can run a credential plug-in.
        """
        with self._settings_lock:
            if self._settings is not old:
                return self._settings
            new, _, _ = load_context(self._source[0], self.context)
            if new.server != old.server:
                raise BackendError(
                    f"the kubeconfig has changed: the server of {self.description} is now "
                    f"{new.server}; start this program again"
                )
            if (new.proxy, new.tls) != (old.proxy, old.tls):
                # Calls in progress keep the connections of the old pool.
                self._pool = connection_pool(new, self.connections + SPARE_CONNECTIONS)
            self._settings = new
            return new


def watch_events(stream: ResponseStream) -> Iterator[Object]:
    """Yield the events in a watch response; see `Api.watch`."""
    for line in stream.lines():
        if not line.strip():
            continue
        try:
            event: Object = json.loads(line)
        except ValueError as exc:
            raise Unreachable(
                "the connection to the API server was lost in the middle of an event"
            ) from exc
        if event.get("type") == "ERROR":
            status = event["object"]
            raise api_error(int(status.get("code") or 500), status, "", None)
        yield event


# --- responses ---


def _cause(exc: BaseException) -> str:
    """Return why a connection failed or was lost, without the names and numbers that libraries add.

    The texts of urllib3's errors are representations of objects. The errors have another error as
    their last argument or as their cause.
    """
    while inner := _inner_error(exc):
        exc = inner
    text = exc.strerror if isinstance(exc, OSError) and exc.strerror else str(exc)
    text = re.sub(r"^\[[A-Z0-9:_ ]+\] | \(_ssl\.c:\d+\)$", "", one_line(text))
    return text or type(exc).__name__


def _inner_error(exc: BaseException) -> BaseException | None:
    last = exc.args[-1] if exc.args else None
    return last if isinstance(last, BaseException) else exc.__cause__


def _decode(content: bytes | str) -> Object:
    """Return the object in a response, or an empty dictionary if there is none."""
    try:
        found = json.loads(content)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _text(content: bytes | str) -> str:
    return content if isinstance(content, str) else content.decode(errors="replace")


def _authorization(settings: ConnectionSettings) -> dict[str, str]:
    """Return the headers that contain the credentials."""
    return {"Authorization": settings.authorization} if settings.authorization else {}


def _retry_after_seconds(headers: Mapping[str, str]) -> float | None:
    """Return the value of the Retry-After header in seconds, or None if it is missing or not a
    number.

    Kubernetes sends no dates in this header.
    """
    try:
        return max(0.0, float(headers.get("Retry-After", "")))
    except ValueError:
        return None


def _ignore_insecure_warnings(host: str) -> None:
    name = re.escape(urllib.parse.urlsplit(host).hostname or host)
    warnings.filterwarnings(
        "ignore",
        message=f"Unverified HTTPS request is being made to host '{name}'",
        category=InsecureRequestWarning,
    )
