"""The credentials of a kubeconfig's user: tokens, passwords, certificates, plug-ins and OpenID
Connect.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import subprocess
import sys
import threading
import time
import urllib.parse
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import urllib3

from symphony.errors import BackendError
from symphony_kube.api.errors import one_line
from symphony_kube.api.tls import Pem, new_tls_context, pem_source

# A credential is renewed this long before it expires.
EXPIRY_MARGIN_SECONDS = 60.0
# Kubernetes replaces the token in a mounted file before the old one expires.
TOKEN_FILE_SECONDS = 60.0
OPENID_TIMEOUT_SECONDS = 30.0

# The name of the cluster extension that is sent to credential plug-ins.
_PLUGIN_EXTENSION = "client.authentication.k8s.io/exec"


@dataclass(frozen=True, slots=True, kw_only=True)
class User:
    """A user in a kubeconfig. ``entry`` is the content of ``user`` in the kubeconfig.

    ``directory`` is the directory of the kubeconfig, to which relative paths refer. ``cluster`` is
    the content of the context's ``cluster``. ``owner`` describes the user in messages.
    """

    entry: Mapping[str, Any]
    directory: Path
    cluster: Mapping[str, Any]
    owner: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Credential:
    """What identifies the user to the API server until ``expires_at``.

    ``authorization`` is the value of the Authorization header. ``expires_at`` is in seconds since
    1970-01-01, or None if the credential does not expire.
    """

    authorization: str | None = None
    certificate: Pem | None = None
    key: Pem | None = None
    expires_at: float | None = None


class Credentials:
    """The current credential of a user, which is read again before it expires.

    Several threads can share it. ``read`` returns a new credential.
    """

    def __init__(self, read: Callable[[], Credential]) -> None:
        self._read = read
        self._lock = threading.Lock()
        self._current = read()

    def current(self) -> Credential:
        """Return the current credential. This can run a credential plug-in.

        Raises `BackendError` if it cannot be read.
        """
        with self._lock:
            expires_at = self._current.expires_at
            if expires_at is not None and expires_at <= time.time():
                self._current = self._read()
            return self._current

    def renew(self, rejected: str | None) -> bool:
        """Read the credential again, because the server has rejected the Authorization header
        ``rejected``.

        Return whether the header differs now.
        """
        with self._lock:
            if self._current.authorization == rejected:
                self._current = self._read()
            return self._current.authorization != rejected


@contextlib.contextmanager
def credential_errors(owner: str) -> Iterator[None]:
    """Raise `BackendError` for any error that invalid or unreadable credentials cause.

    In messages, ``owner`` describes what the credentials belong to.
    """
    try:
        yield
    except KeyError as exc:
        raise BackendError(f"no credentials for {owner}: there is no {exc.args[0]!r}") from exc
    except (AttributeError, OSError, TypeError, ValueError, urllib3.exceptions.HTTPError) as exc:
        raise BackendError(f"no credentials for {owner}: {one_line(str(exc))}") from exc


def credentials_of(user: User) -> Credentials:
    """Return the credentials of a user. This can run a credential plug-in.

    Like kubectl, prefer a token file to a token. Raises `BackendError` if the credentials cannot be
    read.
    """
    read = _reader(user)

    def read_with_errors() -> Credential:
        with credential_errors(user.owner):
            return read(user)

    return Credentials(read_with_errors)


def token_file_credential(path: Path) -> Credential:
    """Return the token in a file, which must be read again after a minute."""
    token = path.read_text(encoding="utf-8").strip()
    if not token:
        raise ValueError(f"the token file {path} is empty")
    return Credential(authorization=f"Bearer {token}", expires_at=time.time() + TOKEN_FILE_SECONDS)


def _reader(user: User) -> Callable[[User], Credential]:
    """Return the function that reads this user's kind of credential."""
    entry = user.entry
    if entry.get("auth-provider"):
        return _OpenIdConnect()
    if entry.get("tokenFile") or entry.get("token"):
        return _read_token
    if entry.get("exec"):
        return _run_plugin
    return _read_password_and_certificate


def _read_token(user: User) -> Credential:
    certificate, key = _client_certificate(user)
    if user.entry.get("tokenFile"):
        read = token_file_credential(user.directory / str(user.entry["tokenFile"]))
        authorization, expires_at = read.authorization, read.expires_at
    else:
        authorization, expires_at = f"Bearer {user.entry['token']}", None
    return Credential(
        authorization=authorization, certificate=certificate, key=key, expires_at=expires_at
    )


def _read_password_and_certificate(user: User) -> Credential:
    certificate, key = _client_certificate(user)
    authorization = None
    if user.entry.get("username") and user.entry.get("password"):
        pair = f"{user.entry['username']}:{user.entry['password']}"
        authorization = f"Basic {base64.b64encode(pair.encode()).decode()}"
    return Credential(authorization=authorization, certificate=certificate, key=key)


def _client_certificate(user: User) -> tuple[Pem | None, Pem | None]:
    return (
        pem_source(user.entry, "client-certificate", user.directory),
        pem_source(user.entry, "client-key", user.directory),
    )


# --- credential plug-ins ---


def _run_plugin(user: User) -> Credential:
    """Run the credential plug-in.

    Its protocol is described in
    https://kubernetes.io/docs/reference/access-authn-authz/authentication/#client-go-credential-plugins.
    """
    settings = user.entry["exec"]
    version = settings["apiVersion"]
    try:
        output = _plugin_output(user, settings, version)
        status = _plugin_status(output, version)
    except (OSError, ValueError) as exc:
        raise BackendError(
            f"the credential plug-in for {user.owner} failed: {one_line(str(exc))}; install it, or "
            "log in again"
        ) from exc
    token = status.get("token")
    certificate, key = _client_certificate(user)
    if status.get("clientCertificateData"):
        certificate = str(status["clientCertificateData"]).encode()
        key = str(status["clientKeyData"]).encode()
    expires_at = None
    if status.get("expirationTimestamp"):
        expires_at = _seconds(status["expirationTimestamp"]) - EXPIRY_MARGIN_SECONDS
    return Credential(
        authorization=f"Bearer {token}" if token else None,
        certificate=certificate,
        key=key,
        expires_at=expires_at,
    )


def _plugin_output(user: User, settings: Mapping[str, Any], version: str) -> str:
    is_interactive = sys.stdout is not None and sys.stdout.isatty()
    specification: dict[str, Any] = {"interactive": is_interactive}
    if settings.get("provideClusterInfo"):
        specification["cluster"] = _cluster_for_plugin(user.cluster)
    request = {"apiVersion": version, "kind": "ExecCredential", "spec": specification}
    variables = {item["name"]: str(item["value"]) for item in settings.get("env") or []}
    arguments = [str(argument) for argument in settings.get("args") or []]
    done = subprocess.run(
        [str(settings["command"]), *arguments],
        # On a terminal, the plug-in can ask the user to log in.
        stdin=None if is_interactive else subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=None if is_interactive else subprocess.PIPE,
        cwd=user.directory,
        env={**os.environ, **variables, "KUBERNETES_EXEC_INFO": json.dumps(request)},
        text=True,
        check=False,
    )
    if done.returncode != 0:
        # On a terminal, the plug-in has printed its error message.
        message = (done.stderr or "").strip() or "see its own error message above"
        raise ValueError(f"its exit code is {done.returncode}: {message}")
    return done.stdout


def _cluster_for_plugin(cluster: Mapping[str, Any]) -> dict[str, Any]:
    details = dict(cluster)
    for extension in cluster.get("extensions") or []:
        if extension["name"] == _PLUGIN_EXTENSION:
            details["config"] = extension["extension"]
    return details


def _plugin_status(output: str, version: str) -> Mapping[str, Any]:
    try:
        answer = json.loads(output)
    except ValueError as exc:
        raise ValueError(f"its output is not JSON: {exc}") from exc
    if not isinstance(answer, dict) or not isinstance(answer.get("status"), dict):
        raise ValueError("its output has no 'status'")
    if answer.get("apiVersion") != version:
        raise ValueError(
            f"its output has the apiVersion {answer.get('apiVersion')!r}, not {version!r}"
        )
    status: dict[str, Any] = answer["status"]
    if not status.get("token") and not status.get("clientCertificateData"):
        raise ValueError("its output has neither 'token' nor 'clientCertificateData'")
    return status


def _seconds(timestamp: str) -> float:
    """Convert an RFC 3339 timestamp to seconds since 1970-01-01."""
    moment = datetime.fromisoformat(timestamp.replace("Z", "+00:00"))
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=timezone.utc)
    return moment.timestamp()


# --- OpenID Connect ---


class _OpenIdConnect:
    """The reader of the tokens of the ``auth-provider`` named ``oidc``.

    An expired token is refreshed. The new tokens are kept in memory, because kubeconfigs are never
    modified.
    """

    def __init__(self) -> None:
        self._refreshed: dict[str, str] = {}

    def __call__(self, user: User) -> Credential:
        provider = user.entry["auth-provider"]
        if provider["name"] != "oidc":
            raise ValueError(
                f"the auth-provider {provider['name']!r} is not supported; use a credential "
                "plug-in ('exec'), as kubectl does since version 1.26"
            )
        settings = {**provider["config"], **self._refreshed}
        expires_at = _token_expiry(settings["id-token"])
        if expires_at is not None and expires_at <= time.time():
            self._refreshed = _refresh_tokens(settings, user.directory)
            settings.update(self._refreshed)
            expires_at = _token_expiry(settings["id-token"])
        return Credential(authorization=f"Bearer {settings['id-token']}", expires_at=expires_at)


def _token_expiry(token: str) -> float | None:
    """Return when a JSON Web Token must be refreshed, in seconds since 1970-01-01, or None if it
    does not expire.
    """
    parts = token.split(".")
    if len(parts) != 3:
        raise ValueError("the id-token is not a JSON Web Token")
    padding = "=" * (-len(parts[1]) % 4)
    claims = json.loads(base64.urlsafe_b64decode(parts[1] + padding))
    expiry = claims.get("exp")
    return None if expiry is None else float(expiry) - EXPIRY_MARGIN_SECONDS


def _refresh_tokens(settings: Mapping[str, str], directory: Path) -> dict[str, str]:
    """Get new tokens from the identity provider."""
    authority = pem_source(settings, "idp-certificate-authority", directory)
    pool = urllib3.PoolManager(
        ssl_context=new_tls_context(authority, verify=True),
        timeout=OPENID_TIMEOUT_SECONDS,
        retries=False,
    )
    with pool:
        issuer = settings["idp-issuer-url"].rstrip("/")
        found = _json_of(pool.request("GET", f"{issuer}/.well-known/openid-configuration"))
        form = {
            "grant_type": "refresh_token",
            "refresh_token": settings["refresh-token"],
            "client_id": settings["client-id"],
        }
        client = f"{settings['client-id']}:{settings.get('client-secret', '')}"
        answer = pool.request(
            "POST",
            found["token_endpoint"],
            body=urllib.parse.urlencode(form),
            headers={
                **urllib3.make_headers(basic_auth=client),
                "Content-Type": "application/x-www-form-urlencoded",
            },
        )
        tokens = _json_of(answer)
    refreshed = {"id-token": tokens["id_token"]}
    if "refresh_token" in tokens:
        refreshed["refresh-token"] = tokens["refresh_token"]
    return refreshed


def _json_of(response: urllib3.BaseHTTPResponse) -> dict[str, Any]:
    text = one_line(response.data.decode(errors="replace"), limit=200)
    if response.status != 200:
        raise ValueError(f"the identity provider answers HTTP {response.status}: {text}")
    content = json.loads(response.data)
    if not isinstance(content, dict):
        raise ValueError(f"the identity provider answers with no JSON object: {text}")
    return content
