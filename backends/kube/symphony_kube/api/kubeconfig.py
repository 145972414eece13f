"""Read a context and its credentials from kubeconfigs, which are never modified."""

from __future__ import annotations

import os
import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from symphony.config.locations import expand_user
from symphony.errors import BackendError, NotFound
from symphony.names import did_you_mean, join_names
from symphony_kube.api.credentials import (
    Credential,
    Credentials,
    User,
    credential_errors,
    credentials_of,
    token_file_credential,
)
from symphony_kube.api.errors import one_line
from symphony_kube.api.proxies import proxy_for
from symphony_kube.api.tls import Pem, pem_source

_SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerAccess:
    """How an API server is reached, and the credentials for requests to it.

    ``host`` is the server's URL. ``authority`` are the certificates that are trusted, or None for
    those of the system. ``tls_server_name`` is the name in the server's certificate, or None for
    the host in the URL. ``proxy`` is a URL or None. ``namespace`` is the context's namespace.
    ``context`` is the name of the context, or None if a Pod's service account is used.
    """

    host: str
    credentials: Credentials
    authority: Pem | None = None
    verify_tls: bool = True
    tls_server_name: str | None = None
    proxy: str | None = None
    namespace: str | None = None
    context: str | None = None


@dataclass(frozen=True, slots=True)
class _Entry:
    """The content of a cluster, a user or a context, and the directory of its kubeconfig."""

    content: Mapping[str, Any]
    directory: Path


def load_kubeconfig(kubeconfig: str | os.PathLike[str] | None, context: str | None) -> ServerAccess:
    """Return the access to the API server of a context.

    In a Pod, the Pod's service account is used if neither a kubeconfig nor a context is specified
    and ``~/.kube/config`` does not exist. Raises `NotFound` if the kubeconfig does not contain the
    context, or if no context is requested and the kubeconfig has no current context. Raises
    `BackendError` if there is neither a kubeconfig nor a usable service account, if the kubeconfig
    is not valid, or if the credentials cannot be loaded.
    """
    path = kubeconfig_path(kubeconfig, context)
    if path is None:
        return _load_in_cluster()
    entries, current = _read_all(path)
    name = _context_name(path, entries["contexts"], context, current)
    chosen = entries["contexts"][name].content
    cluster = entries["clusters"].get(str(chosen.get("cluster")), _Entry({}, Path()))
    settings = cluster.content
    server = _server(path, name, chosen.get("cluster"), settings.get("server"))
    owner = f"context {name!r} of the kubeconfig {path}"
    user = entries["users"].get(str(chosen.get("user")))
    if user is None and chosen.get("user"):
        raise BackendError(f"no credentials for {owner}: it has no user {chosen['user']!r}")
    with credential_errors(owner):
        authority = pem_source(settings, "certificate-authority", cluster.directory)
    return ServerAccess(
        host=server,
        credentials=_credentials(user, settings, owner),
        authority=authority,
        verify_tls=not settings.get("insecure-skip-tls-verify"),
        tls_server_name=settings.get("tls-server-name") or None,
        proxy=proxy_for(server, settings.get("proxy-url") or None),
        namespace=chosen.get("namespace"),
        context=name,
    )


def _credentials(user: _Entry | None, cluster: Mapping[str, Any], owner: str) -> Credentials:
    if user is None:
        return Credentials(Credential)
    return credentials_of(
        User(entry=user.content, directory=user.directory, cluster=cluster, owner=owner)
    )


def kubeconfig_path(kubeconfig: str | os.PathLike[str] | None, context: str | None) -> str | None:
    """Return the absolute paths of the kubeconfigs that `load_kubeconfig` reads, separated by
    colons.

    Return None if it uses the service account of this Pod. Raises `BackendError` if there is
    neither a kubeconfig nor a usable service account.
    """
    given = os.environ.get("KUBECONFIG") or None
    if kubeconfig is not None:
        given = os.fspath(kubeconfig)
    sources = [source for source in (given or "~/.kube/config").split(os.pathsep) if source]
    files = [source for source in sources if expand_user(source).is_file()]
    if files:
        return os.pathsep.join(str(expand_user(source).absolute()) for source in files)
    in_pod = (_SERVICE_ACCOUNT / "token").exists()
    if given is None and context is None and in_pod:
        return None
    raise BackendError(
        f"no kubeconfig: there is no file {' and no '.join(sources)}; set kubeconfig= or "
        "KUBECONFIG, or download it from the provider of your cluster"
    )


def _context_name(
    path: str, contexts: Mapping[str, _Entry], requested: str | None, current: str | None
) -> str:
    """Return the name of the requested context, or of the current context by default."""
    name = requested or current
    if not name:
        raise NotFound(
            f"the kubeconfig {path} has no current context; choose one of {join_names(contexts)} "
            "with context="
        )
    if name not in contexts:
        hint = did_you_mean(str(name), contexts) or f"; it has {join_names(contexts)}"
        raise NotFound(f"the kubeconfig {path} has no context {name!r}{hint}")
    return name


def _server(path: str, context: str, name: str | None, server: object) -> str:
    """Check the URL of a cluster's API server, and return it without a final slash."""
    if not server:
        raise BackendError(
            f"the kubeconfig {path} has no server for the cluster {name!r} of its context "
            f"{context!r}"
        )
    if not _is_url(server):
        raise BackendError(
            f"the kubeconfig {path} has the server {server!r} for the cluster {name!r} of its "
            f"context {context!r}; write https://HOST:PORT"
        )
    return str(server).rstrip("/")


def _is_url(server: object) -> bool:
    """Return whether ``server`` is an HTTP or HTTPS URL with a host and, optionally, a valid port.

    kubectl accepts an address without a scheme, but the Python client does not.
    """
    try:
        parts = urllib.parse.urlsplit(str(server))
        return parts.scheme in ("https", "http") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def _read_all(path: str) -> tuple[dict[str, dict[str, _Entry]], str | None]:
    """Return the contexts, clusters and users of kubeconfigs by their names, and the name of the
    current context.

    If ``path`` names several files, they are merged as kubectl does: the first file that contains a
    name or a current context applies.
    """
    merged: dict[str, dict[str, _Entry]] = {"contexts": {}, "clusters": {}, "users": {}}
    current = None
    for file in path.split(os.pathsep):
        content = _read(Path(file))
        current = current or content.get("current-context")
        try:
            for kind, inner in (
                ("contexts", "context"),
                ("clusters", "cluster"),
                ("users", "user"),
            ):
                for item in content.get(kind) or []:
                    entry = _Entry(dict(item[inner] or {}), Path(file).parent)
                    merged[kind].setdefault(item["name"], entry)
        except (TypeError, KeyError, AttributeError, ValueError) as exc:
            raise BackendError(
                f"{file} is not a kubeconfig: it has no lists of clusters, users and contexts"
            ) from exc
    return merged, current


def _read(path: Path) -> dict[str, Any]:
    """Return the content of a kubeconfig."""
    try:
        content = yaml.safe_load(path.read_bytes())
    except OSError as exc:
        raise BackendError(f"the kubeconfig {path} cannot be read: {exc.strerror or exc}") from exc
    except (UnicodeDecodeError, yaml.YAMLError) as exc:
        raise BackendError(f"{path} is not a kubeconfig: {one_line(str(exc))}") from exc
    if not isinstance(content, dict):
        raise BackendError(
            f"{path} is not a kubeconfig: it has no lists of clusters, users and contexts"
        )
    return content


def _load_in_cluster() -> ServerAccess:
    with credential_errors("the service account of this Pod"):
        host = os.environ["KUBERNETES_SERVICE_HOST"]
        port = os.environ["KUBERNETES_SERVICE_PORT"]
        server = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
        namespace = (_SERVICE_ACCOUNT / "namespace").read_text().strip()
        return ServerAccess(
            host=server,
            credentials=Credentials(_service_account_token),
            authority=_SERVICE_ACCOUNT / "ca.crt",
            proxy=proxy_for(server, None),
            namespace=namespace or None,
        )


def _service_account_token() -> Credential:
    with credential_errors("the service account of this Pod"):
        return token_file_credential(_SERVICE_ACCOUNT / "token")
