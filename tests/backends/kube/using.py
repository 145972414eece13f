"""One experiment that the tests of using share, each module its own: processes of every kind, launched once."""

import contextlib
import secrets
import threading

from kubetest.plugin import PREFIX
from symphony import Cluster

from .conftest import FOREVER, python, until


@contextlib.contextmanager
def launched(session, build, *, wait=True):
    """An experiment in a namespace of its own, made by ``build(exp)``; the cluster and its name.

    Without ``wait`` the launch goes on, and only the first process is there.
    """
    cluster = Cluster.new(
        "kube", kubeconfig=str(session.cluster.kubeconfig), image=session.cluster.image, expose="NodePort"
    )
    name = f"{PREFIX}{secrets.token_hex(2)}"
    exp = cluster.new_experiment(name)
    build(exp)
    launch = threading.Thread(target=cluster.launch, args=(exp,))
    try:
        launch.start()
        if wait:
            launch.join()
        until(lambda: cluster.list_experiments() and _has_pods(session, name))
        yield cluster, name
        launch.join()
    finally:
        with contextlib.suppress(Exception):
            session.api.call("DELETE", f"/api/v1/namespaces/{name}/pods", {"gracePeriodSeconds": 0})
        cluster.delete(name)
        cluster.api.close()


def _has_pods(session, name):
    return session.api.call("GET", f"/api/v1/namespaces/{name}/pods")["items"]


def through(kubeconfig, session):
    """The same clusters through another kubeconfig."""
    return Cluster.new("kube", kubeconfig=str(kubeconfig), image=session.cluster.image, expose="NodePort")


__all__ = ["FOREVER", "launched", "python", "through"]
