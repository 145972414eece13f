"""A lost response of a real API server: `test_faults.py` tests all faults with a server in memory.

What a real server adds is its refusals of names that are taken, and the end of a namespace.
"""

from . import test_faults
from .test_faults import api, direct_api, faulty_proxy, timeouts

__all__ = ["api", "direct_api", "faulty_proxy", "timeouts"]


def test_launch_survives_lost_responses(
    kube_cluster, faulty_proxy, api, direct_api, shared, name, tmp_path
):
    test_faults.test_launch_survives_one_failed_call(
        kube_cluster, faulty_proxy, api, direct_api, shared, name, tmp_path, "reset after"
    )


def test_delete_survives_lost_responses(
    kube_cluster, faulty_proxy, api, direct_api, shared, name, tmp_path
):
    test_faults.test_delete_survives_one_failed_call(
        kube_cluster, faulty_proxy, api, direct_api, shared, name, tmp_path
    )


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
