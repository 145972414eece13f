"""One experiment that the tests of using share, each module its own: processes of every kind, launched once."""

import contextlib
import secrets
import threading

from kubetest.accounts import wait_for_account
from kubetest.plugin import PREFIX, remove_namespace
from symphony import Cluster
from symphony.status import State
from symphony.testing.contract import until as until_status

from .conftest import FOREVER, python, until


@contextlib.contextmanager
def launched(session, build, *, wait=True):
    """An experiment made by ``build(exp)``, alone in a shared namespace of the same name; the cluster and the name.

    Without ``wait`` the launch goes on, and only the first process is there.
    """
    name = f"{PREFIX}{secrets.token_hex(2)}"
    session.api.call("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
    wait_for_account(session.api, name)
    cluster = through(session.cluster.kubeconfig, session, name)
    exp = cluster.new_experiment(name)
    build(exp)
    launch = threading.Thread(target=cluster.launch, args=(exp,))
    try:
        launch.start()
        if wait:
            launch.join()
        until(lambda: session.api.call("GET", f"/api/v1/namespaces/{name}/pods")["items"])
        yield cluster, name
        launch.join()
    finally:
        remove_namespace(session.api, name)
        cluster.api.close()


def until_succeeded(cluster, name, *processes):
    """Wait until these have ended: one that is seen to run may have nothing left to do."""
    until_status(
        cluster,
        name,
        lambda now: {p.name for p in now if p.state is State.SUCCEEDED}.issuperset(processes),
        timeout=60,
    )


def through(kubeconfig, session, namespace):
    """The clusters of a shared namespace, by another kubeconfig."""
    options = {"image": session.cluster.image, "expose": "NodePort", "namespace": namespace}
    return Cluster.new("kube", kubeconfig=str(kubeconfig), **options)


__all__ = ["FOREVER", "launched", "python", "through", "until_succeeded"]
