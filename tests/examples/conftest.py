"""Fixtures and helpers of the tests of the examples."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.cli.conftest import program

__all__ = ["program", "push_image"]


def push_image(kube_cluster: Any, directory: Path) -> str:
    """Build the image of an example, push it to the registry of the cluster and return its name.

    Skip the test if the cluster has no registry.
    """
    engine = kube_cluster.engine
    name = f"{engine.registry}/{kube_cluster.namespace}-{directory.name}:1"
    base = f"BASE={kube_cluster.image}"
    engine.docker("build", "--build-arg", base, "--tag", name, str(directory))
    engine.docker("push", name)
    return name
