"""Replacing a file in one step, so that readers never see an incomplete file."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

_DEFAULT_MODE = 0o666


def replace_file(path: Path, pieces: Iterable[bytes], *, mode: int = _DEFAULT_MODE) -> None:
    """Write the pieces to a temporary file next to ``path``, and then give it the name ``path``.

    ``mode`` is the mode of the new file, from which the umask is removed. If an exception is
    raised, the temporary file is removed and ``path`` is not changed. An OSError contains the file
    name ``path``.
    """
    # The name of the file can already have the maximum length.
    temporary = path.with_name(f".symphony-{os.urandom(6).hex()}")
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        descriptor = os.open(temporary, flags, mode)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.writelines(pieces)
            temporary.replace(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
    except OSError as exc:
        if exc.filename in (None, os.fspath(temporary)):
            exc.filename = os.fspath(path)
            exc.filename2 = None
        raise
