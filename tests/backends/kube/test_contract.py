"""The behaviour contract on a real cluster, with shared and with own namespaces."""

import contextlib

import pytest

from symphony.testing import BackendContract


class KubeContract(BackendContract):
    backend = "kube"
    python = "python3"
    timeout = 90.0

    @pytest.fixture(autouse=True)
    def where(self, kube_cluster):
        self.image = kube_cluster.image
        self.kube = kube_cluster

    @contextlib.contextmanager
    def foreign(self, cluster):
        """An object of another user with a similar name in the same namespace."""
        path = self.kube.path("configmaps")
        self.kube.raw.call(
            "POST", path, {"metadata": {"name": "contract-mine"}, "data": {"key": "value"}}
        )
        yield lambda: self.kube.raw.find(f"{path}/contract-mine")["data"] == {"key": "value"}


class TestSharedNamespace(KubeContract):
    @pytest.fixture
    def options(self, kube_cluster):
        return {
            "kubeconfig": str(kube_cluster.kubeconfig),
            "namespace": kube_cluster.namespace,
            "expose": "NodePort",  # a test cluster may have no load balancers
        }


class TestOwnNamespaces(KubeContract):
    @pytest.fixture
    def options(self, kube_cluster):
        return {"kubeconfig": str(kube_cluster.kubeconfig), "expose": "NodePort"}
