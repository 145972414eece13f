"""TLS settings from kubeconfigs: certificates that are stored in files, or in the kubeconfig."""

from __future__ import annotations

import base64
import contextlib
import ssl
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

# Certificates or a key in PEM format: the path of a file, or the content itself.
Pem = Path | bytes


def pem_source(entry: Mapping[str, Any], key: str, directory: Path) -> Pem | None:
    """Return the certificates or the key that ``key`` or ``<key>-data`` in ``entry`` contains, or
    None if neither is set.

    The value of ``key`` is a path relative to ``directory``. The other value is encoded as base64
    and preferred. Raises ValueError if the file does not exist or the value is not base64.
    """
    data = entry.get(f"{key}-data")
    if data:
        try:
            return base64.b64decode("".join(str(data).split()), validate=True)
        except ValueError as exc:
            raise ValueError(f"{key}-data is not valid base64: {exc}") from exc
    if not entry.get(key):
        return None
    path = directory / str(entry[key])
    if not path.is_file():
        raise ValueError(f"{key}: there is no file {path}")
    return path


def new_tls_context(
    authority: Pem | None,
    *,
    verify: bool,
    certificate: Pem | None = None,
    key: Pem | None = None,
) -> ssl.SSLContext:
    """Return a client's TLS context that trusts the certificates ``authority``.

    If ``authority`` is None, the system's certificates are trusted. ``certificate`` and ``key``
    identify the client. Raises ValueError or OSError if a certificate or the key is not valid.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    # Like kubectl, trust an intermediate certificate if it is the authority. Unlike
    # ssl.create_default_context, do not require the extensions that old clusters' certificates do
    # not have.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    elif authority is None:
        context.load_default_certs()
    elif isinstance(authority, bytes):
        # Only comments can contain other characters than ASCII.
        context.load_verify_locations(cadata=authority.decode("ascii", "ignore"))
    else:
        context.load_verify_locations(cafile=authority)
    if certificate is not None:
        with contextlib.ExitStack() as opened:
            certificate_file = opened.enter_context(_file_with(certificate))
            key_file = None if key is None else opened.enter_context(_file_with(key))
            context.load_cert_chain(certificate_file, key_file)
    return context


@contextlib.contextmanager
def _file_with(pem: Pem) -> Iterator[Path]:
    """Return the path of a file with this content. A temporary file is deleted afterwards.

    The ssl module reads a client's certificate and key only from files.
    """
    if not isinstance(pem, bytes):
        yield pem
        return
    import tempfile

    with tempfile.NamedTemporaryFile(prefix="symphony-") as file:
        file.write(pem)
        file.flush()
        yield Path(file.name)
