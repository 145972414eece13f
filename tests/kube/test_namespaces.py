"""The namespaces that tests use one after another."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kubetest.namespaces import Namespaces
from kubetest.plugin import PREFIX, Session
from kubetest.rawapi import Object

POD = {
    "metadata": {"name": "p"},
    "spec": {"containers": [{"name": "c", "image": "i"}], "nodeSelector": {"no": "such-node"}},
}
LEFTOVERS: dict[str, Object] = {
    "pods": POD,
    "services": {"metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}]}},
    "secrets": {"metadata": {"name": "s"}},
    "configmaps": {"metadata": {"name": "c"}},
}
QUOTA = {"metadata": {"name": "q"}, "spec": {"hard": {"pods": "1"}}}


@pytest.fixture
def namespaces(kube_session: Session) -> Iterator[Namespaces]:
    used = Namespaces(kube_session.api, PREFIX)
    yield used
    used.close()


def test_an_emptied_namespace_is_used_again(kube_session: Session, namespaces: Namespaces) -> None:
    api, name = kube_session.api, namespaces.take()
    path = f"/api/v1/namespaces/{name}"
    for kind, body in LEFTOVERS.items():
        api.call("POST", f"{path}/{kind}", body)
    namespaces.give_back(name, may_be_used_again=True)
    assert namespaces.take() == name
    for kind, body in LEFTOVERS.items():
        assert api.find(f"{path}/{kind}/{body['metadata']['name']}") is None
    api.call("POST", f"{path}/resourcequotas", QUOTA)
    namespaces.give_back(name, may_be_used_again=True)
    found = api.find(path)
    assert found is None or found["status"]["phase"] == "Terminating"
