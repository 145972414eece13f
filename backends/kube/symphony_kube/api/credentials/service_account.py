"""Connect with the service account of this Pod."""

from __future__ import annotations

import os
import time
from pathlib import Path

from symphony.errors import BackendError
from symphony_kube.api.connection_settings import ConnectionSettings, TlsSettings
from symphony_kube.api.credentials.proxies import proxy_for

# Kubernetes mounts the files of the service account in this directory.
DIRECTORY = Path("/var/run/secrets/kubernetes.io/serviceaccount")
# Kubernetes replaces a token some time before it expires.
TOKEN_SECONDS = 60.0


def has_service_account() -> bool:
    """Return whether this program runs in a Pod with a service account."""
    return (DIRECTORY / "token").exists()


def load_service_account() -> tuple[ConnectionSettings, str | None]:
    """Return the connection settings, and the namespace of this Pod.

    Raises `BackendError` if the service account is not complete.
    """
    host = os.environ.get("KUBERNETES_SERVICE_HOST")
    port = os.environ.get("KUBERNETES_SERVICE_PORT")
    if not host or not port:
        raise _incomplete("KUBERNETES_SERVICE_HOST or KUBERNETES_SERVICE_PORT is not set")
    server = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
    token, authority = _read("token").decode(errors="replace").strip(), _read("ca.crt")
    settings = ConnectionSettings(
        server=server,
        proxy=proxy_for(server, None),
        tls=TlsSettings(authority=authority),
        authorization=f"Bearer {token}",
        expires=time.time() + TOKEN_SECONDS,
    )
    return settings, _read("namespace").decode(errors="replace").strip()


def _read(name: str) -> bytes:
    """Return the contents of a file that must not be empty."""
    path = DIRECTORY / name
    try:
        content = path.read_bytes()
    except OSError as exc:
        raise _incomplete(f"{path}: {exc.strerror or exc}") from exc
    if not content.strip():
        raise _incomplete(f"{path} is empty")
    return content


def _incomplete(problem: str) -> BackendError:
    return BackendError(
        f"no credentials for the service account of this Pod: {problem}; check "
        "automountServiceAccountToken, or set kubeconfig="
    )
