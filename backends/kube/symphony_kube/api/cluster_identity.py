"""Identify the cluster that the options of a `KubeCluster` select, without parsing a kubeconfig."""

from __future__ import annotations

import os
from collections.abc import Mapping

from symphony.config.locations import expand_user


def place(options: Mapping[str, object]) -> list[object]:
    """Return a cache key for the cluster and namespace that the options select.

    Two commands with the same key see the same experiments. The key includes the kubeconfig's
    modification time, because a command that writes the file, such as ``kubectl config
    use-context``, can select another cluster.
    """
    kubeconfig = options.get("kubeconfig") or os.environ.get("KUBECONFIG") or "~/.kube/config"
    files = str(kubeconfig).split(os.pathsep)
    return [
        options.get("namespace"),
        options.get("context"),
        *(_file_version(name) for name in files),
    ]


def _file_version(name: str) -> list[object]:
    file = expand_user(name).absolute()
    try:
        found = file.stat()
    except OSError:
        return [str(file)]
    return [str(file), found.st_mtime_ns, found.st_size, found.st_ino]
