"""Which cluster the options of a `KubeCluster` lead to, told without reading a kubeconfig. Pure but for file times."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path


def place(options: Mapping[str, object]) -> list[object]:
    """What tells the experiments of one command line from those of another: the namespace, and the kubeconfig as is.

    A kubeconfig that was written to, as by ``kubectl config use-context``, may lead elsewhere.
    """
    given = options.get("kubeconfig") or os.environ.get("KUBECONFIG") or "~/.kube/config"
    return [
        options.get("namespace"),
        options.get("context"),
        *map(_stamp, str(given).split(os.pathsep)),
    ]


def _stamp(name: str) -> list[object]:
    file = Path(name).expanduser().absolute()
    try:
        found = file.stat()
    except OSError:
        return [str(file)]
    return [str(file), found.st_mtime_ns, found.st_size, found.st_ino]
