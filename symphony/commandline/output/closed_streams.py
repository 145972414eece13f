"""Replacing standard streams that were closed when the program started."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def replace_closed_streams() -> None:
    """Connect closed standard streams to the null device.

    Python has no stream object for a closed descriptor. Without a replacement, the next file that
    is opened would get the descriptor, and child processes would write their output into the file.
    """
    for descriptor, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        if getattr(sys, name) is None:
            _open_null(descriptor)
            stream = Path(os.devnull).open(mode, encoding="utf-8")  # noqa: SIM115
            setattr(sys, name, stream)


def _open_null(descriptor: int) -> None:
    """Connect a descriptor to the null device unless another file uses it by now."""
    try:
        os.fstat(descriptor)
        return
    except OSError:
        null = os.open(os.devnull, os.O_RDWR)
    if null == descriptor:
        os.set_inheritable(descriptor, True)
        return
    os.dup2(null, descriptor)
    os.close(null)
