"""Build an image with the container engine, push it to the registry, and run it."""

from __future__ import annotations

import io
import tarfile

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


def test_image_is_built_pushed_and_pulled(kube_cluster):
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
