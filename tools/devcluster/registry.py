"""Upload an image to a registry without a docker daemon.

The requests are those of the OCI distribution specification, v1.1, section "Push".
"""

from __future__ import annotations

import hashlib
import http.client
import io
import json
import tarfile
import urllib.parse
from pathlib import Path
from typing import IO, Any

from machines.console import ToolError

_MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"
_CONFIG = "application/vnd.docker.container.image.v1+json"
# The layers are not compressed, so that neither the upload nor a pull costs the time for it.
_LAYER = "application/vnd.docker.image.rootfs.diff.tar"


def answers(address: str) -> bool:
    """Return whether a registry answers at an address, which is a host and a port."""
    connection = http.client.HTTPConnection(address, timeout=5)
    try:
        connection.request("GET", "/v2/")
        return connection.getresponse().status == http.client.OK
    except OSError:
        return False
    finally:
        connection.close()


def upload(address: str, image: Path, *, repository: str, tag: str) -> None:
    """Upload an image, which is a file in the `docker save` format, to the registry at an address.

    Layers that the repository holds are not sent again. Raises ToolError if the registry refuses
    something.
    """
    connection = http.client.HTTPConnection(address, timeout=60)
    try:
        with tarfile.open(image) as tar:
            _upload(connection, tar, repository=repository, tag=tag)
    finally:
        connection.close()


def _upload(
    connection: http.client.HTTPConnection, tar: tarfile.TarFile, *, repository: str, tag: str
) -> None:
    (content,) = json.loads(_member(tar, "manifest.json").read())
    layers = []
    for name in content["Layers"]:
        size = tar.getmember(name).size
        digest = f"sha256:{name.partition('/')[0]}"
        _upload_blob(connection, repository, _member(tar, name), size=size, digest=digest)
        layers.append({"mediaType": _LAYER, "size": size, "digest": digest})
    config = _member(tar, content["Config"]).read()
    digest = f"sha256:{hashlib.sha256(config).hexdigest()}"
    _upload_blob(connection, repository, io.BytesIO(config), size=len(config), digest=digest)
    manifest = {
        "schemaVersion": 2,
        "mediaType": _MANIFEST,
        "config": {"mediaType": _CONFIG, "size": len(config), "digest": digest},
        "layers": layers,
    }
    _request(
        connection,
        "PUT",
        f"/v2/{repository}/manifests/{tag}",
        body=json.dumps(manifest).encode(),
        headers={"Content-Type": _MANIFEST},
    )


def _upload_blob(
    connection: http.client.HTTPConnection,
    repository: str,
    blob: IO[bytes],
    *,
    size: int,
    digest: str,
) -> None:
    connection.request("HEAD", f"/v2/{repository}/blobs/{digest}")
    found = connection.getresponse()
    found.read()
    if found.status == http.client.OK:
        return
    location = _request(connection, "POST", f"/v2/{repository}/blobs/uploads/")
    parts = urllib.parse.urlsplit(location or "")
    query = urllib.parse.parse_qsl(parts.query)
    query.append(("digest", digest))
    _request(
        connection,
        "PUT",
        f"{parts.path}?{urllib.parse.urlencode(query)}",
        body=blob,
        headers={"Content-Type": "application/octet-stream", "Content-Length": str(size)},
    )


def _request(
    connection: http.client.HTTPConnection,
    method: str,
    path: str,
    *,
    body: Any = None,
    headers: dict[str, str] | None = None,
) -> str | None:
    """Return the location in the registry's answer. Raises ToolError if it is an error."""
    connection.request(method, path, body=body, headers=headers or {})
    answer = connection.getresponse()
    text = answer.read().decode(errors="replace")
    if answer.status >= http.client.BAD_REQUEST:
        raise ToolError(f"the registry answered {method} {path} with {answer.status}: {text[:200]}")
    return answer.getheader("Location")


def _member(tar: tarfile.TarFile, name: str) -> IO[bytes]:
    member = tar.extractfile(name)
    if member is None:
        raise ToolError(f"the image has no file {name}")
    return member
