"""A small JSON client for the cluster's API. It authenticates with the token in a kubeconfig."""

from __future__ import annotations

import base64
import http.client
import json
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

Object = dict[str, Any]

JSON = "application/json"
MERGE_PATCH = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"


class ApiError(Exception):
    """Raised if the API server returns an error.

    The exception contains the HTTP status and the message.
    """

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{status}: {message}")
        self.status = status


@dataclass(slots=True)
class Client:
    """A client that keeps one connection open to an API server.

    Threads must not share a client.
    """

    host: str
    port: int
    token: str
    tls: ssl.SSLContext
    _connection: http.client.HTTPSConnection | None = None

    def call(self, method: str, path: str, body: object = None, content_type: str = JSON) -> Object:
        """Send a request and return the JSON object in the response.

        Raises ApiError for an error response, and OSError if there is no response.
        """
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": content_type}
        data = None if body is None else json.dumps(body).encode()
        if self._connection is None:
            self._connection = http.client.HTTPSConnection(
                self.host, self.port, context=self.tls, timeout=10
            )
        try:
            self._connection.request(method, path, data, headers)
            response = self._connection.getresponse()
            answer = response.read()
        except (OSError, http.client.HTTPException) as exc:
            self.close()
            raise OSError(f"no answer from https://{self.host}:{self.port}: {exc}") from exc
        content = _content(answer)
        if response.status >= 400:
            raise ApiError(response.status, content.get("message", answer.decode(errors="replace")))
        return content

    def find(self, path: str) -> Object | None:
        """Return the object at `path`, or None if it does not exist."""
        try:
            return self.call("GET", path)
        except ApiError as exc:
            if exc.status != 404:
                raise
            return None

    def ready(self) -> bool:
        """Return whether the API server reports that it is ready."""
        try:
            self.call("GET", "/readyz")
        except (ApiError, OSError):
            return False
        return True

    def close(self) -> None:
        """Close the connection. The next call opens a new one."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def connect(kubeconfig: Path) -> Client:
    """Return a client for a kubeconfig that this tool wrote. Raises OSError if the file does not
    exist.
    """
    content = json.loads(kubeconfig.read_text())
    cluster = content["clusters"][0]["cluster"]
    authority = base64.b64decode(cluster["certificate-authority-data"]).decode()
    address = urlsplit(cluster["server"])
    return Client(
        host=str(address.hostname),
        port=int(address.port or 443),
        token=content["users"][0]["user"]["token"],
        tls=ssl.create_default_context(cadata=authority),
    )


def _content(answer: bytes) -> Object:
    try:
        content = json.loads(answer or b"{}")
    except ValueError:  # The path /readyz returns plain text.
        return {}
    return content if isinstance(content, dict) else {}
