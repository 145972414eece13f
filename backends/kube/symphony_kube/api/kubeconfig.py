"""Read a context and its credentials from kubeconfigs, which are never modified."""

from __future__ import annotations

import contextlib
import logging
import os
import urllib.parse
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from kubernetes import client, config
from kubernetes.client import Configuration
from kubernetes.config import ConfigException
from kubernetes.config.kube_config import KubeConfigMerger

from symphony.config.locations import expand_user
from symphony.errors import BackendError, NotFound
from symphony.names import did_you_mean, join_names
from symphony_kube.api.errors import one_line

_SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


def load_kubeconfig(
    kubeconfig: str | os.PathLike[str] | None, context: str | None
) -> tuple[Configuration, str | None, str | None]:
    """Return the client configuration for a context, and the context's namespace and name.

    In a Pod, the Pod's service account is used if neither a kubeconfig nor a context is specified
    and ``~/.kube/config`` does not exist. Raises `NotFound` if the kubeconfig does not contain the
    context, or if no context is requested and the kubeconfig has no current context. Raises
    `BackendError` if there is neither a kubeconfig nor a usable service account, if the kubeconfig
    is not valid, or if the credentials cannot be loaded.
    """
    configuration = client.Configuration()
    path = kubeconfig_path(kubeconfig, context)
    if path is None:
        return _load_in_cluster(configuration)
    details = _context(path, context)
    read: Callable[..., None] = config.load_kube_config
    with credentials(f"context {details['name']!r} of the kubeconfig {path}"):
        read(
            config_file=path,
            context=details["name"],
            client_configuration=configuration,
            persist_config=False,
        )
    return configuration, details["namespace"], details["name"]


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


def _context(path: str, requested: str | None) -> dict[str, Any]:
    """Check the requested context, or the current context by default. Return its name and
    namespace.
    """
    content = _read(path)
    contexts = {item["name"]: item["context"] for item in content["contexts"]}
    name = requested or content.get("current-context")
    if not name:
        raise NotFound(
            f"the kubeconfig {path} has no current context; choose one of {join_names(contexts)} "
            "with context="
        )
    if name not in contexts:
        hint = did_you_mean(str(name), contexts) or f"; it has {join_names(contexts)}"
        raise NotFound(f"the kubeconfig {path} has no context {name!r}{hint}")
    cluster = contexts[name].get("cluster")
    servers = {item["name"]: (item["cluster"] or {}).get("server") for item in content["clusters"]}
    server = servers.get(cluster)
    if not server:
        raise BackendError(
            f"the kubeconfig {path} has no server for the cluster {cluster!r} of its context "
            f"{name!r}"
        )
    if not _is_url(server):
        raise BackendError(
            f"the kubeconfig {path} has the server {server!r} for the cluster {cluster!r} of its "
            f"context {name!r}; write https://HOST:PORT"
        )
    return {"name": name, "namespace": contexts[name].get("namespace")}


def _is_url(server: object) -> bool:
    """Return whether ``server`` is an HTTP or HTTPS URL with a host and, optionally, a valid port.

    kubectl accepts an address without a scheme, but the Python client does not.
    """
    try:
        parts = urllib.parse.urlsplit(str(server))
        return parts.scheme in ("https", "http") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def _read(path: str) -> dict[str, Any]:
    """Return the contents of a kubeconfig. If ``path`` names several files, they are merged."""
    try:
        merge: Callable[[str], Any] = KubeConfigMerger
        content = merge(path).config.value
        for kind, inner in (("contexts", "context"), ("clusters", "cluster")):
            entries = [_unwrap(item) for item in content[kind]]
            content[kind] = [
                {"name": item["name"], inner: dict(item[inner] or {})} for item in entries
            ]
    except OSError as exc:
        raise BackendError(f"the kubeconfig {path} cannot be read: {exc.strerror or exc}") from exc
    except (ConfigException, UnicodeDecodeError) as exc:
        raise BackendError(f"{path} is not a kubeconfig: {one_line(str(exc))}") from exc
    except (TypeError, KeyError, AttributeError, ValueError) as exc:
        raise BackendError(
            f"{path} is not a kubeconfig: it has no lists of clusters, users and contexts"
        ) from exc
    # The YAML library raises its own exceptions. This module does not import the library, so it
    # cannot name their classes.
    except Exception as exc:
        raise BackendError(f"{path} is not a kubeconfig: {one_line(str(exc))}") from exc
    return dict(content)


def _unwrap(node: Any) -> Any:
    """Return the plain value of one of the client library's configuration nodes."""
    return getattr(node, "value", node)


def _load_in_cluster(configuration: Configuration) -> tuple[Configuration, str | None, str | None]:
    read: Callable[..., None] = config.load_incluster_config
    with credentials("the service account of this Pod"):
        read(client_configuration=configuration)
        namespace = (_SERVICE_ACCOUNT / "namespace").read_text().strip()
    return configuration, namespace or None, None


def api_keys(kubeconfig: str | os.PathLike[str] | None, context: str | None) -> tuple[Any, Any]:
    """Reload a context, and return its API keys and the hook that refreshes them."""
    fresh, _, _ = load_kubeconfig(kubeconfig, context)
    return fresh.api_key, fresh.refresh_api_key_hook


@contextlib.contextmanager
def credentials(owner: str) -> Iterator[None]:
    """Raise `BackendError` for any error that occurs while credentials are being loaded.

    If a credential plug-in fails, the client library does not raise an error. It only logs the
    error to the root logger, which prints it on the terminal. Therefore, this context manager
    captures the library's log records. In messages, ``owner`` describes what the credentials belong
    to.
    """
    messages: list[str] = []

    def is_foreign(record: logging.LogRecord) -> bool:
        if "kube_config" not in record.pathname:
            return True
        messages.append(record.getMessage())
        return False

    # Without a handler, the first message from the client library would call logging.basicConfig,
    # which sets up logging for the whole program.
    root, handler = logging.getLogger(), logging.NullHandler()
    root.addHandler(handler)
    root.addFilter(is_foreign)
    try:
        yield
    except BackendError:
        raise
    # The library raises many types of exception, for example for invalid base64, certificates and
    # dates, and for unreadable files.
    except Exception as exc:
        raise BackendError(f"no credentials for {owner}: {one_line(str(exc))}") from exc
    finally:
        root.removeFilter(is_foreign)
        root.removeHandler(handler)
    if messages:
        # On a terminal, the plug-in prints its own error message, and the client library only logs
        # that the result is None.
        cause = one_line(messages[-1])
        if "NoneType" in cause:
            cause = "see its own error message above"
        raise BackendError(
            f"the credential plug-in for {owner} failed: {cause}; install it, or log in again"
        )
