"""Choose the Kubernetes cluster for the tests: the user's own, a kind cluster, or the
devcluster.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
DOCKERFILE = Path(__file__).parent / "image" / "Dockerfile"
KIND_IMAGE = "symphony-test:kind"
# There are two workers, so that Pods can be spread across nodes.
KIND_CONFIG = """\
kind: Cluster
apiVersion: kind.x-k8s.io/v1alpha4
nodes: [{role: control-plane}, {role: worker}, {role: worker}]
"""


class NoCluster(Exception):
    """Raised if there is no Kubernetes cluster for the tests. The message states the cause."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """A docker daemon, and a registry that the daemon and the nodes reach under the same name."""

    client: str
    host: str
    registry: str

    def docker(self, *arguments: str, stdin: bytes | None = None) -> str:
        """Run the docker client and return its output. Raises CalledProcessError if it fails."""
        command = [self.client, "--host", self.host, *arguments]
        done = subprocess.run(command, input=stdin, capture_output=True, check=True)
        return done.stdout.decode()


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """A Kubernetes cluster for the tests.

    `kubeconfig` is the path of an administrator's kubeconfig. `image` is the name of an image that
    contains Python, pyzmq and symphony.

    If `disposable` is true, the cluster exists only for tests: its nodes can be changed, and any
    object that remains was created by a test. `kwok` is the path of the program that simulates
    nodes, if there is one.
    """

    kind: str
    kubeconfig: Path
    image: str
    disposable: bool
    users: Mapping[str, Path]
    engine: Engine | None = None
    kubectl: str | None = None
    kwok: Path | None = None


@contextmanager
def find(environ: Mapping[str, str], scratch: Path) -> Iterator[Cluster]:
    """Yield the user's own cluster, a new kind cluster or the devcluster.

    The first one that is available is chosen. `scratch` is a directory for temporary files. Raises
    NoCluster if there is no cluster.
    """
    if own := environ.get("SYMPHONY_TEST_KUBECONFIG"):
        yield from_kubeconfig(Path(own), environ)
    elif (engine := kind_engine()) is not None:
        with kind_cluster(environ, scratch, engine=engine) as cluster:
            yield cluster
    else:
        yield from_devcluster(_devcluster_status())


def from_kubeconfig(path: Path, environ: Mapping[str, str]) -> Cluster:
    """Return the user's own cluster. Raises NoCluster if the kubeconfig does not exist or no image
    is set.
    """
    if not path.is_file():
        raise NoCluster(f"SYMPHONY_TEST_KUBECONFIG names {path}, which is not a file")
    image = environ.get("SYMPHONY_TEST_IMAGE")
    if not image:
        raise NoCluster(
            "SYMPHONY_TEST_KUBECONFIG is set and SYMPHONY_TEST_IMAGE is not: name an image with "
            f"Python, pyzmq and symphony that this cluster can pull; build one with {DOCKERFILE}"
        )
    return Cluster(
        kind="own", kubeconfig=path, image=image, disposable=False, users={}, kubectl=_kubectl()
    )


def kind_engine() -> str | None:
    """Return the container engine that kind can use, or None if kind is not installed or there is
    no working container engine.
    """
    if shutil.which("kind") is None:
        return None
    for engine in ("docker", "podman"):
        if shutil.which(engine) and _succeeds(engine, "info"):
            return engine
    return None


@contextmanager
def kind_cluster(environ: Mapping[str, str], scratch: Path, *, engine: str) -> Iterator[Cluster]:
    """Create a kind cluster, load the test image into the cluster, yield the cluster, and then
    delete it.

    SYMPHONY_TEST_KIND_NODE sets the node image, which determines the Kubernetes version.
    """
    name = f"symphony-test-{secrets.token_hex(3)}"
    kubeconfig, config = scratch / "kind.kubeconfig", scratch / "kind.yaml"
    config.write_text(KIND_CONFIG)
    node = environ.get("SYMPHONY_TEST_KIND_NODE")
    node_image = [f"--image={node}"] if node else []
    settings = _kind_settings(environ, engine)
    try:
        create = ["create", "cluster", "--name", name, "--wait=180s", f"--config={config}"]
        _run("kind", *create, f"--kubeconfig={kubeconfig}", *node_image, env=settings)
        yield Cluster(
            kind="kind",
            kubeconfig=kubeconfig,
            image=load_kind_image(name, engine),
            disposable=True,
            users={},
            kubectl=_kubectl(),
        )
    finally:
        _run(
            "kind", "delete", "cluster", "--name", name, f"--kubeconfig={kubeconfig}", env=settings
        )


def load_kind_image(name: str, engine: str) -> str:
    """Build the test image with a container engine, load it into the nodes of the kind cluster
    ``name``, and return the name that the image has there.

    Raises NoCluster if a command fails.
    """
    settings = _kind_settings(os.environ, engine)
    with tempfile.TemporaryDirectory() as scratch:
        archive = f"{scratch}/image.tar"
        _run(engine, "build", "--tag", KIND_IMAGE, "--file", str(DOCKERFILE), str(PROJECT))
        _run(engine, "save", "--output", archive, KIND_IMAGE)
        _run("kind", "load", "image-archive", archive, "--name", name, env=settings)
    # podman adds the prefix localhost/ to an image name without a registry.
    return KIND_IMAGE if engine == "docker" else f"localhost/{KIND_IMAGE}"


def _kind_settings(environ: Mapping[str, str], engine: str) -> dict[str, str]:
    return {**environ, "KIND_EXPERIMENTAL_PROVIDER": engine}


def from_devcluster(status: Mapping[str, object]) -> Cluster:
    """Return the devcluster.

    `status` is the parsed output of `devcluster status --json`. Raises NoCluster if the devcluster
    is not up or the status has an unexpected format.
    """
    if not status.get("up"):
        raise NoCluster(
            "SYMPHONY_TEST_KUBECONFIG is not set, there is no kind with a container engine, "
            "and the devcluster is not up: run 'scripts/devcluster up' (docs/testing.md)"
        )
    configs = status["kubeconfigs"]
    if not isinstance(configs, dict):
        raise NoCluster(
            f"the status of the devcluster has an unexpected format: kubeconfigs is {configs!r}"
        )
    return Cluster(
        kind="devcluster",
        kubeconfig=Path(configs["admin"]),
        image=str(status["image"]),
        disposable=True,
        users={user: Path(path) for user, path in configs.items()},
        engine=Engine(
            client=str(status["docker"]),
            host=str(status["docker_host"]),
            registry=str(status["registry"]),
        ),
        kubectl=str(status["kubectl"]),
        kwok=Path(str(status["kwok"])),
    )


def _kubectl() -> str | None:
    return shutil.which("kubectl")


def _devcluster_status() -> Mapping[str, object]:
    command = [sys.executable, str(PROJECT / "scripts/devcluster"), "status", "--json"]
    done = subprocess.run(command, capture_output=True, text=True)
    try:
        status: Mapping[str, object] = json.loads(done.stdout)
    except ValueError:
        # The command has failed without printing JSON, for example because the user is not root.
        raise NoCluster(
            "SYMPHONY_TEST_KUBECONFIG is not set, there is no kind with a container engine, and "
            f"the status of the devcluster is unavailable: {done.stderr.strip()[-300:]}"
        ) from None
    return status


def _succeeds(*command: str) -> bool:
    return subprocess.run(command, capture_output=True).returncode == 0


def _run(*command: str, env: Mapping[str, str] | None = None) -> None:
    done = subprocess.run(command, capture_output=True, text=True, env=env or os.environ)
    if done.returncode:
        output = (done.stderr or done.stdout).strip()[-1000:]
        raise NoCluster(f"'{' '.join(command)}' failed: {output}")
