"""One experiment for all tests of a module, launched once."""

import contextlib
import secrets
import threading

from kubetest.accounts import wait_for_account
from kubetest.namespaces import remove_namespace
from kubetest.plugin import PREFIX
from symphony import Cluster
from symphony.status import State
from symphony.testing.contract import until as until_status

from .conftest import FOREVER, python, wait_until


@contextlib.contextmanager
def launched(session, build, *, wait=True):
    """Launch an experiment in its own shared namespace, and yield the cluster and its name.

    ``build(exp)`` adds the processes. Without ``wait`` only the first Pod exists yet.
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
        wait_until(lambda: session.api.call("GET", f"/api/v1/namespaces/{name}/pods")["items"])
        yield cluster, name
        launch.join()
    finally:
        remove_namespace(session.api, name)
        cluster.api.close()


def until_succeeded(cluster, name, *processes):
    """Wait until processes have succeeded."""
    until_status(
        cluster,
        name,
        lambda now: {p.name for p in now if p.state is State.SUCCEEDED}.issuperset(processes),
        timeout=60,
    )


def through(kubeconfig, session, namespace):
    """Return the cluster of a shared namespace with another kubeconfig."""
    options = {"image": session.cluster.image, "expose": "NodePort", "namespace": namespace}
    return Cluster.new("kube", kubeconfig=str(kubeconfig), **options)


__all__ = ["FOREVER", "launched", "python", "through", "until_succeeded"]
