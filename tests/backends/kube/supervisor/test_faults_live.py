"""A lost response of a real API server: `test_faults.py` tests all faults with a server in memory.

What a real server adds is its refusals of names that are taken, and the end of a namespace.
"""

import contextlib
from dataclasses import replace

from symphony_kube.api.client import Api
from tests.backends.kube.conftest import managed_objects
from tests.backends.kube.supervisor import test_faults
from tests.backends.kube.supervisor.test_faults import (
    api,
    direct_api,
    expected_objects,
    faulty_proxy,
    timeouts,
)

__all__ = ["api", "direct_api", "faulty_proxy", "timeouts"]

CALLS = [
    (method, path)
    for method, form in (("POST", "/{}[?]"), ("DELETE", "/{}/"))
    for path in map(form.format, ("services", "secrets", "configmaps", "pods"))
]


def test_launch_and_delete_survive_lost_responses(
    kube_cluster, kube_faults, timeouts, shared, name, tmp_path
):
    manifest = test_faults.manifest_with_secret(shared, name, tmp_path)
    patient = replace(timeouts, outage=60.0)
    with contextlib.closing(Api(kubeconfig=kube_faults.kubeconfig, timeouts=patient)) as api:
        api.call("GET", "/version")
        for method, path in CALLS:
            kube_faults.reset(method=method, path=path, times=1, after=True)
        test_faults.launch_manifest(api, manifest)
        assert managed_objects(kube_cluster) == expected_objects(manifest)
        test_faults.delete_experiment(api, manifest)
    assert managed_objects(kube_cluster) == {}
    assert [call.fault for call in kube_faults.calls()].count("reset") == len(CALLS)


def test_delete_of_a_namespace_survives_lost_responses(
    kube_cluster, faulty_proxy, api, direct_api, own_namespaces, name, tmp_path
):
    test_faults.test_delete_of_a_namespace_survives_one_failed_call(
        kube_cluster, faulty_proxy, api, direct_api, own_namespaces, name, tmp_path
    )


def test_a_launch_without_response_deletes_its_new_namespace(
    kube_cluster, kube_faults, timeouts, own_namespaces, name, tmp_path
):
    test_faults.test_permanent_failure_deletes_a_new_namespace(
        kube_cluster, kube_faults, timeouts, own_namespaces, name, tmp_path
    )
