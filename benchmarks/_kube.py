"""Helpers for the benchmarks on Kubernetes: the cluster, and experiments on its hollow nodes."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tools"))

from urllib3.exceptions import HTTPError

from kubetest.accounts import wait_for_account
from kubetest.hollow import SELECTOR, TOLERATION, HollowNodes
from kubetest.rawapi import ApiError, RawApi
from symphony import Experiment
from symphony.cluster.matching import Until

STARTED: Until = "started"
# The removal of 10,000 Pods takes minutes.
REMOVAL_SECONDS = 600.0


def kubeconfig() -> Path:
    """Return the path of the kubeconfig for the cluster on which to measure."""
    given = os.environ.get("KUBECONFIG")
    if given:
        return Path(given)
    return Path(_devcluster("kubeconfig", otherwise="set KUBECONFIG, or ").strip())


def hollow_nodes(config: Path, *, count: int, pods_each: int = 500) -> HollowNodes:
    """Return simulated nodes. They need kwok, which is a part of the devcluster."""
    status = json.loads(_devcluster("status", "--json"))
    return HollowNodes(config, kwok=Path(status["kwok"]), count=count, pods_each=pods_each)


def _devcluster(*arguments: str, otherwise: str = "") -> str:
    """Run the devcluster's command, and return its output. Exit if there is no cluster."""
    devcluster = Path(__file__).resolve().parents[1] / "scripts/devcluster"
    done = subprocess.run([sys.executable, devcluster, *arguments], capture_output=True, text=True)
    if done.returncode:
        cause = done.stderr.strip() or "run 'scripts/devcluster up' first"
        raise SystemExit(f"no Kubernetes cluster: {otherwise}{cause}")
    return done.stdout


def kubectl() -> str:
    """Return the path of kubectl, with which symphony is compared.

    For the cluster of KUBECONFIG, it is the kubectl on the path, if there is one. For the
    devcluster, it is that of the cluster's version: an old kubectl can take four times as long.
    """
    found = shutil.which("kubectl") if os.environ.get("KUBECONFIG") else None
    return found or str(json.loads(_devcluster("status", "--json"))["kubectl"])


@contextlib.contextmanager
def new_namespace(api: RawApi) -> Iterator[str]:
    """Yield a new namespace that accepts Pods, and delete the namespace afterwards.

    If the block fails, its error is raised, although the removal can fail for the same reason.
    """
    name = f"symphony-bench-{secrets.token_hex(3)}"
    path = f"/api/v1/namespaces/{name}"
    api.call("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
    try:
        wait_for_account(api, name)
        yield name
    except BaseException:
        with contextlib.suppress(ApiError, HTTPError):
            _remove(api, path)
        raise
    _remove(api, path)


def _remove(api: RawApi, path: str) -> None:
    """Delete a namespace and its Pods, and return when they are gone."""
    # The deletion of the namespace would grant the Pods their grace period. The server deletes them
    # one after the other, and a busy server answers with an error before it has deleted all.
    deadline = time.monotonic() + REMOVAL_SECONDS
    while api.call("GET", f"{path}/pods?limit=1", seconds=REMOVAL_SECONDS)["items"]:
        try:
            api.call("DELETE", f"{path}/pods", {"gracePeriodSeconds": 0}, seconds=REMOVAL_SECONDS)
        except (ApiError, HTTPError):
            if time.monotonic() > deadline:
                raise
    api.call("DELETE", path)
    while api.find(path):
        time.sleep(0.2)


def hollow(name: str, count: int, *, services: int = 0) -> Experiment:
    """Return an experiment of ``count`` processes without groups, for hollow nodes.

    Each of the first ``services`` processes binds one service.
    """
    exp = Experiment(name)
    for number in range(count):
        process = exp.new_process(
            f"p-{number}", container_image="none:1", command=["sleep", "1000"]
        )
        process.add_toleration(**TOLERATION)
        for key, value in SELECTOR.items():
            process.node_selector(key, value)
        if number < services:
            process.binds(f"s-{number}")
    return exp
