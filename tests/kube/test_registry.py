"""Build with the docker daemon, push to the registry, run from there."""

from __future__ import annotations

import io
import subprocess
import tarfile

import pytest
from kubernetes import client

from . import pods


def context(**files: str) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, text in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(text.encode())
            tar.addfile(info, io.BytesIO(text.encode()))
    return buffer.getvalue()


def test_an_image_is_built_pushed_and_pulled(kube_cluster):
    engine = kube_cluster.engine
    name = f"{engine.registry}/{kube_cluster.namespace}:1"
    dockerfile = f"FROM {kube_cluster.image}\nCOPY note /note\nRUN python3 -c 'import zmq'\n"
    engine.docker("build", "--tag", name, "-", stdin=context(Dockerfile=dockerfile, note="pulled"))
    engine.docker("push", name)
    engine.docker("image", "rm", name)
    core, namespace = client.CoreV1Api(kube_cluster.client), kube_cluster.namespace
    reader = pods.container(name, "print(open('/note').read())", imagePullPolicy="Always")
    core.create_namespaced_pod(namespace, pods.pod("reader", reader))
    kube_cluster.wait_for_pod("reader", "Succeeded")
    assert core.read_namespaced_pod_log("reader", namespace) == "pulled\n"


def test_a_build_that_fails_says_so(kube_cluster):
    dockerfile = f"FROM {kube_cluster.image}\nRUN exit 4\n"
    with pytest.raises(subprocess.CalledProcessError, match="exit status"):
        kube_cluster.engine.docker("build", "-", stdin=context(Dockerfile=dockerfile))


def test_an_image_that_is_not_there_is_reported(kube_cluster):
    core, namespace = client.CoreV1Api(kube_cluster.client), kube_cluster.namespace
    missing = f"{kube_cluster.engine.registry}/nobody-made-this:1"
    core.create_namespaced_pod(
        namespace, pods.pod("hopeful", pods.container(missing, pods.FOREVER))
    )
    path = kube_cluster.path("pods?fieldSelector=metadata.name=hopeful")
    for event in kube_cluster.raw.watch(path, seconds=60):
        for status in event["object"]["status"].get("containerStatuses", []):
            if "waiting" in status["state"] and "Pull" in status["state"]["waiting"]["reason"]:
                return
    pytest.fail("a missing image was never reported")
