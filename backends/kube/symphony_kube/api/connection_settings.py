"""How to connect to an API server, and with which credentials. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsSettings:
    """How to verify the certificate of a server, and the certificate of the client.

    ``authority``, ``certificate`` and ``key`` are the contents of PEM files. Without ``authority``,
    the certificates of the system are trusted. ``server_name`` is the name in the certificate of
    the server, if it differs from the name in its URL.
    """

    verify: bool = True
    server_name: str | None = None
    authority: bytes | None = None
    certificate: bytes | None = None
    key: bytes | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionSettings:
    """The settings of all connections to one API server.

    ``server`` is a URL without a slash at its end. ``proxy`` is the URL of a proxy, or None.
    ``authorization`` is the value of the header with the credentials, or None. ``compression`` is
    whether the server compresses its responses, or None if `symphony_kube.api.connections` decides
    this for each connection. The settings must be loaded again at ``expires``, in seconds since the
    epoch.
    """

    server: str
    proxy: str | None = None
    tls: TlsSettings = TlsSettings()
    authorization: str | None = field(default=None, repr=False)
    compression: bool | None = None
    expires: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class IssuedCredential:
    """A credential that expires at ``expires``, in seconds since the epoch, if that is not None."""

    token: str | None = None
    certificate: bytes | None = None
    key: bytes | None = field(default=None, repr=False)
    expires: float | None = None
