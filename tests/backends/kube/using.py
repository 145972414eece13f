"""One experiment that the tests of using share, each module its own: processes of every kind, launched once."""

import contextlib
import secrets

from symphony import Cluster

from .conftest import FOREVER, python


@contextlib.contextmanager
def launched(session, folder, build):
    """An experiment in a namespace of its own, made by ``build(exp)``; the cluster and its name."""
    cluster = Cluster.new(
        "kube", kubeconfig=str(session.cluster.kubeconfig), image=session.cluster.image, expose="NodePort"
    )
    name = f"symphony-test-{secrets.token_hex(4)}"
    exp = cluster.new_experiment(name)
    build(exp)
    try:
        cluster.launch(exp)
        yield cluster, name
    finally:
        path = f"/api/v1/namespaces/{name}"
        with contextlib.suppress(Exception):
            session.api.call("DELETE", f"{path}/pods", {"gracePeriodSeconds": 0})
            session.api.call("DELETE", path)
        cluster.api.close()


def through(kubeconfig, session):
    """The same clusters through another kubeconfig."""
    return Cluster.new("kube", kubeconfig=str(kubeconfig), image=session.cluster.image, expose="NodePort")


__all__ = ["FOREVER", "launched", "python", "through"]
