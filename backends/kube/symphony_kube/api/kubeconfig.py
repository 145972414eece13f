"""Kubeconfigs: which context, and its credentials. They are only read."""

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

from symphony.errors import BackendError, NotFound
from symphony.names import did_you_mean, join_names
from symphony_kube.api.errors import one_line

_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


def load(
    kubeconfig: str | os.PathLike[str] | None, context: str | None
) -> tuple[Configuration, str | None, str | None]:
    """The configuration, the namespace and the name of a context, from a kubeconfig or from inside a Pod."""
    configuration = client.Configuration()
    given = (
        os.fspath(kubeconfig) if kubeconfig is not None else os.environ.get("KUBECONFIG") or None
    )
    sources = [source for source in (given or "~/.kube/config").split(os.pathsep) if source]
    there = [source for source in sources if Path(source).expanduser().is_file()]
    if not there and given is None and context is None and (_ACCOUNT / "token").exists():
        return _load_in_cluster(configuration)
    if not there:
        raise BackendError(
            f"no kubeconfig: there is no file {' and no '.join(sources)}; name one with kubeconfig= or KUBECONFIG, or "
            "get it from your cluster's provider"
        )
    place = os.pathsep.join(str(Path(source).expanduser()) for source in there)
    details = _context(place, context)
    read: Callable[..., None] = config.load_kube_config
    with credentials(f"context {details['name']!r} of the kubeconfig {place}"):
        read(
            config_file=place,
            context=details["name"],
            client_configuration=configuration,
            persist_config=False,
        )
    return configuration, details["namespace"], details["name"]


def _context(place: str, asked: str | None) -> dict[str, Any]:
    """The name and namespace of the context that is asked for, or the current one; all it needs is there."""
    found = _read(place)
    known = {item["name"]: item["context"] for item in found["contexts"]}
    name = asked or found.get("current-context")
    if not name:
        raise NotFound(
            f"the kubeconfig {place} has no current context; choose one of {join_names(known)} with context="
        )
    if name not in known:
        hint = did_you_mean(str(name), known) or f"; it has {join_names(known)}"
        raise NotFound(f"the kubeconfig {place} has no context {name!r}{hint}")
    cluster = known[name].get("cluster")
    servers = {item["name"]: (item["cluster"] or {}).get("server") for item in found["clusters"]}
    server = servers.get(cluster)
    if not server:
        raise BackendError(
            f"the kubeconfig {place} has no server for the cluster {cluster!r} of its context {name!r}"
        )
    if not _is_address(server):
        raise BackendError(
            f"the kubeconfig {place} has the server {server!r} for the cluster {cluster!r} of its context {name!r}; "
            "write https://HOST:PORT"
        )
    return {"name": name, "namespace": known[name].get("namespace")}


def _is_address(server: object) -> bool:
    """Whether the server of a cluster can be called: kubectl takes one without a scheme, the client does not."""
    try:
        parts = urllib.parse.urlsplit(str(server))
        return parts.scheme in ("https", "http") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def _read(place: str) -> dict[str, Any]:
    """The content of a kubeconfig, merged from several files where there are several."""
    try:
        merge: Callable[[str], Any] = KubeConfigMerger
        found = merge(place).config.value
        for kind, inner in (("contexts", "context"), ("clusters", "cluster")):
            found[kind] = [
                {"name": item["name"], inner: dict(item[inner] or {})}
                for item in map(_plain, found[kind])
            ]
    except OSError as exc:
        raise BackendError(f"the kubeconfig {place} cannot be read: {exc.strerror or exc}") from exc
    except (ConfigException, TypeError, KeyError, AttributeError, ValueError) as exc:
        raise BackendError(f"{place} is no kubeconfig: {_not_a_kubeconfig(exc)}") from exc
    except Exception as exc:  # of the YAML library, which is not imported here
        raise BackendError(f"{place} is no kubeconfig: {one_line(str(exc))}") from exc
    return dict(found)


def _plain(node: Any) -> Any:
    return getattr(node, "value", node)


def _not_a_kubeconfig(exc: Exception) -> str:
    if isinstance(exc, (ConfigException, UnicodeDecodeError)):
        return one_line(str(exc))
    return "it has no lists of clusters, users and contexts"


def _load_in_cluster(configuration: Configuration) -> tuple[Configuration, str | None, str | None]:
    read: Callable[..., None] = config.load_incluster_config
    with credentials("the service account of this Pod"):
        read(client_configuration=configuration)
        namespace = (_ACCOUNT / "namespace").read_text().strip()
    return configuration, namespace or None, None


def keys(kubeconfig: str | os.PathLike[str] | None, context: str | None) -> tuple[Any, Any]:
    """The keys of a context as they are now, and what gets them anew."""
    fresh, _, _ = load(kubeconfig, context)
    return fresh.api_key, fresh.refresh_api_key_hook


@contextlib.contextmanager
def credentials(whose: str) -> Iterator[None]:
    """Errors of finding credentials, in one place.

    The client tells of a plug-in that failed on the root logger alone, and so on the terminal: that is an error.
    """
    said: list[str] = []

    def keep(record: logging.LogRecord) -> bool:
        if "kube_config" not in record.pathname:
            return True
        said.append(record.getMessage())
        return False

    # With a handler there, the client's word does not set up logging for the whole program.
    root, handler = logging.getLogger(), logging.NullHandler()
    root.addHandler(handler)
    root.addFilter(keep)
    try:
        yield
    except BackendError:
        raise
    except Exception as exc:  # whatever reading base64, certificates, dates and files may raise
        raise BackendError(f"no credentials for {whose}: {one_line(str(exc))}") from exc
    finally:
        root.removeFilter(keep)
        root.removeHandler(handler)
    if said:
        # At a terminal the plug-in has it, and the client stumbles over what it did not get.
        why = one_line(said[-1]) if "NoneType" not in said[-1] else "it says why above"
        raise BackendError(
            f"the credential plug-in for {whose} failed: {why}; install it, or log in again"
        )
