"""Read a context and its credentials from kubeconfigs, which are never modified.

The format is described at https://kubernetes.io/docs/reference/config-api/kubeconfig.v1/. Several
files are merged in the same way as kubectl merges them.
"""

from __future__ import annotations

import base64
import binascii
import os
import time
import urllib.parse
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from symphony.config.locations import expand_user
from symphony.errors import BackendError, NotFound, SymphonyError
from symphony.model.document_path import DocumentPath
from symphony.support.names import did_you_mean, join_names
from symphony_kube.api.connection_settings import (
    ConnectionSettings,
    IssuedCredential,
    TlsSettings,
)
from symphony_kube.api.credentials.proxies import proxy_for
from symphony_kube.api.credentials.service_account import has_service_account, load_service_account

# A program that writes a file with a token replaces the token some time before it expires.
TOKEN_FILE_SECONDS = 60.0
# The values of these keys are not text.
_BOOLEANS = frozenset({"insecure-skip-tls-verify", "disable-compression", "provideClusterInfo"})
# The configuration for credential plug-ins in a cluster. It can contain values of any type.
_EXTENSION = "extension"
_PLUGIN_EXTENSION = "client.authentication.k8s.io/exec"


class LoadedContext(NamedTuple):
    """The settings for a context, and its namespace and name."""

    settings: ConnectionSettings
    namespace: str | None
    name: str | None


def load_context(kubeconfig: str | os.PathLike[str] | None, context: str | None) -> LoadedContext:
    """Return the connection settings for a context, and the context's namespace and name.

    In a Pod, the Pod's service account is used if neither a kubeconfig nor a context is specified
    and ``~/.kube/config`` does not exist. Raises `NotFound` if the kubeconfig does not contain the
    context, or if no context is requested and the kubeconfig has no current context. Raises
    `BackendError` if there is neither a kubeconfig nor a usable service account, if the kubeconfig
    is not valid, or if the credentials cannot be loaded.
    """
    path = kubeconfig_path(kubeconfig, context)
    if path is None:
        settings, namespace = load_service_account()
        return LoadedContext(settings, namespace, None)
    merged = _merge(path.split(os.pathsep))
    entry = _find_context(merged, path, context)
    server = _find_server(merged, path, entry)
    user = _find_user(merged, path, entry)
    owner = f"context {entry.name!r} of the kubeconfig {path}"
    settings = _settings(server, user, owner)
    if user.get("auth-provider"):
        from symphony_kube.api.credentials.auth_providers import authorization_from_provider

        header = authorization_from_provider(path, entry.name, owner)
        settings = replace(settings, authorization=header)
    return LoadedContext(settings, entry.text("namespace"), entry.name)


def kubeconfig_path(kubeconfig: str | os.PathLike[str] | None, context: str | None) -> str | None:
    """Return the absolute paths of the kubeconfigs that `load_context` reads, separated by colons.

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
    if given is None and context is None and has_service_account():
        return None
    raise BackendError(
        f"no kubeconfig: there is no file {' and no '.join(sources)}; set kubeconfig= or "
        "KUBECONFIG, or download it from the provider of your cluster"
    )


# --- files ---


@dataclass(frozen=True, slots=True, kw_only=True)
class _Entry:
    """A cluster, a user or a context. Its relative paths are relative to ``directory``."""

    name: str
    values: Mapping[str, Any]
    directory: Path

    def get(self, key: str) -> Any:
        """Return a value, or None."""
        return self.values.get(key)

    def text(self, key: str) -> str | None:
        """Return a text, or None if it is missing or empty."""
        return str(self.values.get(key) or "") or None

    def contents(self, key: str, owner: str) -> bytes | None:
        """Return the contents of the file in ``key``, or the data in ``key-data``."""
        data = self.text(f"{key}-data")
        if data is not None:
            try:
                return base64.b64decode(data)
            except (binascii.Error, ValueError) as exc:
                raise _unusable(owner, f"{key}-data is not base64: {exc}") from exc
        path = self.text(key)
        return None if path is None else self.read(key, path, owner)

    def read(self, key: str, path: str, owner: str) -> bytes:
        """Return the contents of the file that the value of ``key`` names."""
        try:
            return (self.directory / path).read_bytes()
        except OSError as exc:
            problem = exc.strerror or str(exc)
            raise _unusable(owner, f"{key}: {self.directory / path}: {problem}") from exc


_Entries = dict[str, _Entry]


class _Kubeconfig(NamedTuple):
    """The merged contents of kubeconfigs."""

    contexts: _Entries
    clusters: _Entries
    users: _Entries
    current_context: str | None


def _merge(paths: Iterable[str]) -> _Kubeconfig:
    """Read kubeconfigs. The first file that contains a name or the current context counts."""
    merged = _Kubeconfig({}, {}, {}, None)
    for path in map(Path, paths):
        content = _read(path)
        for kind, key in (("contexts", "context"), ("clusters", "cluster"), ("users", "user")):
            entries: _Entries = getattr(merged, kind)
            for entry in _entries(path, content, kind, key):
                entries.setdefault(entry.name, entry)
        current = merged.current_context or content.get("current-context") or None
        merged = merged._replace(current_context=current)
    return merged


def _read(path: Path) -> dict[str, Any]:
    from symphony.model.document.documents import decode, from_yaml, read_bytes
    from symphony.model.limits import MAX_BYTES

    try:
        data = read_bytes(path, MAX_BYTES)
    except SymphonyError as exc:
        raise BackendError(f"the kubeconfig {exc}") from exc
    try:
        content, _ = from_yaml(path, decode(path, data), _is_text)
    except SymphonyError as exc:
        raise _not_a_kubeconfig(path, str(exc).removeprefix(f"{path}:").strip()) from exc
    if not isinstance(content, dict):
        problem = "it is empty" if content is None else "it is not a mapping"
        raise _not_a_kubeconfig(path, problem)
    return content


def _is_text(path: DocumentPath, key: str, _: bool) -> bool:
    """Return whether the value of ``key`` is text, even if it is a number such as a password."""
    return key not in _BOOLEANS and _EXTENSION not in (*path, key)


def _entries(path: Path, content: Mapping[str, Any], kind: str, key: str) -> Iterable[_Entry]:
    items = content.get(kind) or []
    if not isinstance(items, list):
        raise _not_a_kubeconfig(path, f"{kind} is not a list")
    for item in items:
        if not isinstance(item, dict) or not item.get("name") or key not in item:
            raise _not_a_kubeconfig(path, f"an item of {kind} has no name or no {key}")
        values = item[key] or {}
        if not isinstance(values, dict):
            raise _not_a_kubeconfig(path, f"the {key} {item['name']!r} is not a mapping")
        yield _Entry(name=str(item["name"]), values=values, directory=path.absolute().parent)


def _not_a_kubeconfig(path: Path, problem: str) -> BackendError:
    return BackendError(f"{path} is not a kubeconfig: {problem}")


# --- the parts of a context ---


def _find_context(merged: _Kubeconfig, path: str, requested: str | None) -> _Entry:
    """Return the requested context, or the current context by default."""
    contexts = merged.contexts
    name = requested or merged.current_context
    if not name:
        raise NotFound(
            f"the kubeconfig {path} has no current context; choose one of {join_names(contexts)} "
            "with context="
        )
    if name not in contexts:
        hint = did_you_mean(str(name), contexts) or f"; it has {join_names(contexts)}"
        raise NotFound(f"the kubeconfig {path} has no context {name!r}{hint}")
    return contexts[name]


def _find_server(merged: _Kubeconfig, path: str, context: _Entry) -> _Entry:
    """Return the cluster of a context, which has a valid server."""
    name = context.text("cluster")
    cluster = merged.clusters.get(name or "")
    server = cluster.text("server") if cluster is not None else None
    if cluster is None or server is None:
        raise BackendError(
            f"the kubeconfig {path} has no server for the cluster {name!r} of its context "
            f"{context.name!r}"
        )
    if not _is_url(server):
        raise BackendError(
            f"the kubeconfig {path} has the server {server!r} for the cluster {name!r} of its "
            f"context {context.name!r}; write https://HOST:PORT"
        )
    return cluster


def _is_url(server: str) -> bool:
    """Return whether ``server`` is an HTTP or HTTPS URL with a host and, optionally, a valid port.

    kubectl also accepts an address without a scheme.
    """
    try:
        parts = urllib.parse.urlsplit(server)
        return parts.scheme in ("https", "http") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def _find_user(merged: _Kubeconfig, path: str, context: _Entry) -> _Entry:
    """Return the user of a context. A context without a user has no credentials."""
    name = context.text("user")
    if name is None:
        return _Entry(name="", values={}, directory=context.directory)
    if name not in merged.users:
        raise BackendError(
            f"the kubeconfig {path} has no user {name!r}, which its context {context.name!r} names"
        )
    return merged.users[name]


# --- settings ---


def _settings(cluster: _Entry, user: _Entry, owner: str) -> ConnectionSettings:
    server = str(cluster.get("server")).rstrip("/")
    is_encrypted = server.startswith("https")
    authority = cluster.contents("certificate-authority", owner) if is_encrypted else None
    credential = _credential(cluster, user, authority, owner)
    tls = TlsSettings()
    if is_encrypted:
        certificate, key = credential.certificate, credential.key
        if certificate is None:
            certificate = user.contents("client-certificate", owner)
            key = user.contents("client-key", owner)
        tls = TlsSettings(
            verify=not cluster.get("insecure-skip-tls-verify"),
            server_name=cluster.text("tls-server-name"),
            authority=authority,
            certificate=certificate,
            key=key,
        )
    authorization = f"Bearer {credential.token}" if credential.token else _basic(user)
    disable_compression = cluster.get("disable-compression")
    return ConnectionSettings(
        server=server,
        proxy=proxy_for(server, cluster.text("proxy-url")),
        tls=tls,
        authorization=authorization,
        compression=None if disable_compression is None else not disable_compression,
        expires=credential.expires,
    )


def _credential(
    cluster: _Entry, user: _Entry, authority: bytes | None, owner: str
) -> IssuedCredential:
    """Return the token of a user, or what the user's plug-in issues."""
    token_file = user.text("tokenFile")
    if token_file is not None:
        token = user.read("tokenFile", token_file, owner).decode(errors="replace").strip()
        if not token:
            raise _unusable(owner, f"tokenFile: {user.directory / token_file} is empty")
        return IssuedCredential(token=token, expires=time.time() + TOKEN_FILE_SECONDS)
    token_text = user.text("token")
    if token_text is not None:
        return IssuedCredential(token=token_text)
    plugin = user.get("exec")
    if not plugin:
        return IssuedCredential()
    if not isinstance(plugin, dict):
        raise _unusable(owner, f"exec of the user {user.name!r} is not a mapping")
    from symphony_kube.api.credentials.credential_plugin import run_plugin

    return run_plugin(plugin, _describe(cluster, authority), user.directory, owner)


def _describe(cluster: _Entry, authority: bytes | None) -> dict[str, Any]:
    """Return the description of a cluster for a credential plug-in that asks for it."""
    keys = (
        "server",
        "tls-server-name",
        "insecure-skip-tls-verify",
        "proxy-url",
        "disable-compression",
    )
    described = {key: cluster.get(key) for key in keys if cluster.get(key)}
    if authority is not None:
        described["certificate-authority-data"] = base64.b64encode(authority).decode()
    for extension in cluster.get("extensions") or ():
        if isinstance(extension, dict) and extension.get("name") == _PLUGIN_EXTENSION:
            described["config"] = extension.get(_EXTENSION)
    return described


def _basic(user: _Entry) -> str | None:
    """Return the header for the name and the password of a user, or None if there are none."""
    if user.get("username") is None or user.get("password") is None:
        return None
    words = f"{user.get('username')}:{user.get('password')}"
    return f"Basic {base64.b64encode(words.encode()).decode()}"


def _unusable(owner: str, problem: str) -> BackendError:
    return BackendError(f"no credentials for {owner}: {problem}")
