"""A client that sends JSON over HTTP to an API server, with a kubeconfig's credentials.

This client is used instead of the official client, whose typed objects are far too slow for a
thousand Pods.
"""

from __future__ import annotations

import json
import ssl
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import urllib3

Object = dict[str, Any]

JSON = "application/json"
MERGE_PATCH = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"


class ApiError(Exception):
    """Raised if the API server responds with an error."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{status}: {message}")
        self.status = status


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """An API server's address and the credentials for requests to it.

    The files that the kubeconfig refers to have already been loaded.
    """

    host: str
    authorization: str | None
    tls: ssl.SSLContext | None


def access(kubeconfig: Path) -> Access:
    """Return the address and credentials in a kubeconfig's current context.

    Every authentication method of the official client is supported.
    """
    from kubernetes import client, config

    configuration = client.Configuration()
    # The library has no type annotations for this function.
    load: Callable[..., None] = config.load_kube_config
    load(str(kubeconfig), client_configuration=configuration)
    tls = None
    if configuration.host.startswith("https"):
        tls = ssl.create_default_context(cafile=configuration.ssl_ca_cert)
        if configuration.cert_file:
            tls.load_cert_chain(configuration.cert_file, configuration.key_file)
    return Access(
        host=configuration.host.rstrip("/"),
        authorization=configuration.get_api_key_with_prefix("BearerToken"),
        tls=tls,
    )


class RawApi:
    """A client that keeps connections to an API server open.

    Several threads can share the client.
    """

    def __init__(self, access: Access, *, connections: int = 8) -> None:
        headers = {"Authorization": access.authorization} if access.authorization else {}
        self._host = access.host
        self._headers = headers
        self._pool = urllib3.PoolManager(
            maxsize=connections, ssl_context=access.tls, retries=False, timeout=30
        )

    def call(
        self,
        method: str,
        path: str,
        body: object = None,
        content_type: str = JSON,
        *,
        seconds: float = 30,
    ) -> Object:
        """Send a request and return the JSON object in the response, which must come within
        ``seconds``.

        Raises ApiError for an error response, and a urllib3 error if there is no response.
        """
        response = self._pool.request(
            method,
            self._host + path,
            body=None if body is None else json.dumps(body).encode(),
            headers={**self._headers, "Content-Type": content_type},
            timeout=seconds,
        )
        content: Object = json.loads(response.data) if response.data[:1] == b"{" else {}
        if response.status >= 400:
            raise ApiError(response.status, str(content.get("message", response.data)))
        return content

    def find(self, path: str) -> Object | None:
        """Return the object at `path`, or None if it does not exist."""
        try:
            return self.call("GET", path)
        except ApiError as exc:
            if exc.status != 404:
                raise
            return None

    def watch(self, path: str, *, seconds: float) -> Iterator[Object]:
        """Yield events, each with its `type` and `object`, starting with the current state.

        The watch lasts `seconds` seconds, rounded down, but at least 1 second.
        """
        separator = "&" if "?" in path else "?"
        address = f"{self._host}{path}{separator}watch=true&timeoutSeconds={max(1, int(seconds))}"
        response = self._pool.request(
            "GET",
            address,
            headers=self._headers,
            preload_content=False,
            timeout=urllib3.Timeout(connect=10, read=seconds + 5),
        )
        try:
            rest = b""
            for block in response.stream(1 << 16):
                *lines, rest = (rest + block).split(b"\n")
                yield from (json.loads(line) for line in lines if line)
        finally:
            response.close()
            response.release_conn()
