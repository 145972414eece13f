"""Connections to one API server. Only this module creates them.

A client that accepts compressed responses receives them, except over a connection to a server that
is near, because compressing a list of 1,000 Pods then takes longer than sending it. A server is
near if a round trip of the connection takes less than `NEAR_SECONDS`. A server at a loopback
address or behind a proxy is not near, because a tunnel can begin there. The kubeconfig can request
or refuse compression for all connections.
"""

from __future__ import annotations

import ipaddress
import socket
import ssl
import struct
import sys
import tempfile
from collections.abc import Callable, Mapping
from typing import Any

import urllib3
from urllib3.connection import HTTPSConnection
from urllib3.exceptions import HTTPError
from urllib3.util import Url, create_urllib3_context, make_headers, parse_url

from symphony.errors import BackendError, PluginError
from symphony_kube.api.connection_settings import ConnectionSettings
from symphony_kube.api.errors import one_line

# A round trip between machines of one data center is shorter. A round trip over a wireless or
# wide-area network is longer.
NEAR_SECONDS = 0.001
# The position of the round-trip time, in microseconds, in the structure tcp_info of Linux.
_ROUND_TRIP_OFFSET = 68


def connection_pool(settings: ConnectionSettings, size: int) -> urllib3.PoolManager:
    """Return a pool of at most ``size`` persistent connections to the server.

    Raises `BackendError` if the certificates or the proxy cannot be used.
    """
    options: dict[str, Any] = {
        "maxsize": size,
        "ssl_context": _tls_context(settings),
        "server_hostname": settings.tls.server_name,
    }
    proxy = settings.proxy
    if proxy is None:
        manager = urllib3.PoolManager(**options)
        if settings.compression is None:
            classes = {**manager.pool_classes_by_scheme, "https": _Connections}
            manager.pool_classes_by_scheme = classes
        return manager
    try:
        if proxy.lower().startswith("socks"):
            return _socks_manager()(proxy, **options)
        user = parse_url(proxy).auth
        headers = make_headers(proxy_basic_auth=user) if user else None
        return urllib3.ProxyManager(proxy, proxy_headers=headers, **options)
    except (HTTPError, ValueError) as exc:
        raise BackendError(
            f"the proxy {proxy} for the API server {settings.server} cannot be used: "
            f"{one_line(str(exc))}"
        ) from exc


class _Connection(HTTPSConnection):
    """A connection over which a server that is near does not compress its responses."""

    _is_near = False

    def _new_conn(self) -> socket.socket:
        connected = super()._new_conn()
        self._is_near = is_near(connected)
        return connected

    def request(
        self,
        method: str,
        url: str,
        body: Any = None,
        headers: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> None:
        sent = dict(headers or {})
        if self._is_near:
            sent.pop("Accept-Encoding", None)
        super().request(method, url, body, sent, **options)


def is_near(connected: socket.socket) -> bool:
    """Return whether the other end of a TCP connection is near.

    The kernel measures the round trip, so the time does not depend on the load of this machine.
    Return False if the time is unknown.
    """
    if sys.platform != "linux":
        return False
    try:
        address = ipaddress.ip_address(connected.getpeername()[0])
        size = _ROUND_TRIP_OFFSET + 4
        info = connected.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, size)
        (microseconds,) = struct.unpack_from("I", info, _ROUND_TRIP_OFFSET)
    except (OSError, struct.error):
        return False
    return not address.is_loopback and 0 < microseconds < NEAR_SECONDS * 1e6


class _Connections(urllib3.HTTPSConnectionPool):
    ConnectionCls = _Connection


def open_socket(pool: urllib3.PoolManager, server: str, timeout: float) -> socket.socket:
    """Return a new connection to the server, with the same settings as those of a pool.

    Raises an exception of urllib3, or `OSError`, if the server cannot be reached.
    """
    connections = pool.connection_from_url(server)
    # The annotations do not declare the socket.
    new_connection: Any = connections.ConnectionCls
    proxy = connections.proxy
    host, port = _address(parse_url(server) if proxy is None else proxy)
    connection = new_connection(host=host, port=port, timeout=timeout, **connections.conn_kw)
    if proxy is not None:
        host, port = _address(parse_url(server))
        scheme = "https" if proxy.scheme == "https" else "http"
        connection.set_tunnel(host, port, headers=connections.proxy_headers, scheme=scheme)
    connection.connect()
    connected: socket.socket = connection.sock
    return connected


def _address(url: Url) -> tuple[str, int]:
    default_port = 443 if url.scheme == "https" else 80
    return (url.host or "").strip("[]"), url.port or default_port


def _socks_manager() -> Callable[..., urllib3.PoolManager]:
    try:
        from urllib3.contrib.socks import SOCKSProxyManager
    except ImportError as exc:
        raise PluginError(
            "the proxy requires the package 'PySocks'; install it with: pip install PySocks"
        ) from exc
    return SOCKSProxyManager


def _tls_context(settings: ConnectionSettings) -> ssl.SSLContext:
    """Return the TLS settings for all connections."""
    tls = settings.tls
    context = create_urllib3_context(cert_reqs=ssl.CERT_REQUIRED if tls.verify else ssl.CERT_NONE)
    if tls.authority is not None:
        try:
            context.load_verify_locations(cadata=tls.authority.decode("ascii", errors="ignore"))
        except (ssl.SSLError, ValueError) as exc:
            raise _unusable(
                settings, "certificate-authority is not a PEM certificate", exc
            ) from exc
    elif tls.verify and settings.server.startswith("https"):
        context.load_default_certs()
    if tls.certificate is not None or tls.key is not None:
        _load_client_certificate(context, settings)
    return context


def _load_client_certificate(context: ssl.SSLContext, settings: ConnectionSettings) -> None:
    certificate, key = settings.tls.certificate, settings.tls.key
    if certificate is None or key is None:
        missing = "client-certificate" if certificate is None else "client-key"
        raise _unusable(settings, f"{missing} is missing")
    if b"ENCRYPTED" in key:
        raise _unusable(settings, "client-key is encrypted; decrypt it with: openssl pkey")
    # OpenSSL reads a certificate only from a file. No other user can read this temporary file.
    with tempfile.NamedTemporaryFile() as file:
        file.write(certificate + b"\n" + key)
        file.flush()
        try:
            context.load_cert_chain(file.name)
        except (ssl.SSLError, ValueError) as exc:
            problem = "client-certificate and client-key are not a PEM certificate and its key"
            raise _unusable(settings, problem, exc) from exc


def _unusable(
    settings: ConnectionSettings, problem: str, cause: Exception | None = None
) -> BackendError:
    detail = f" ({one_line(str(cause))})" if cause is not None else ""
    return BackendError(
        f"the credentials for the API server {settings.server} cannot be used: {problem}{detail}"
    )
