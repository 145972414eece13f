"""A cluster's objects: permissions, the team's namespace and limits, DNS, GPUs and probe Pods.

This module describes the objects but does not create them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from devcluster import images
from devcluster.access import DNS_USER, TEAM_NAMESPACE
from devcluster.network import Addresses

Object = dict[str, Any]
_RBAC = "rbac.authorization.k8s.io"
_KUEUE = "kueue.x-k8s.io/v1beta2"


def initial(addresses: Addresses) -> list[tuple[str, Object]]:
    """Return (collection, object) pairs for all initial objects of a new cluster, in the order in
    which they must be created.
    """
    core = "/api/v1/namespaces"
    rights = f"/apis/{_RBAC}/v1"
    team = f"{rights}/namespaces/{TEAM_NAMESPACE}"
    return [
        (core, {"metadata": {"name": TEAM_NAMESPACE}}),
        (f"{core}/{TEAM_NAMESPACE}/resourcequotas", _quota()),
        (f"{core}/{TEAM_NAMESPACE}/limitranges", _limits()),
        (f"{team}/roles", {"metadata": {"name": "researcher"}, "rules": researcher_rules()}),
        (f"{team}/rolebindings", _binding("researcher", kind="Role", user="researcher")),
        (f"{rights}/clusterroles", {"metadata": {"name": DNS_USER}, "rules": _dns_rules()}),
        (f"{rights}/clusterrolebindings", _binding(DNS_USER, kind="ClusterRole", user=DNS_USER)),
        (f"{core}/kube-system/services", _dns_service(addresses)),
        (f"{core}/kube-system/endpoints", _dns_endpoints(addresses)),
    ]


def queues() -> list[tuple[str, Object]]:
    """Return (collection, object) pairs for a queue of Kueue in the namespace of the team."""
    resources = [
        {"name": "cpu", "nominalQuota": "2"},
        {"name": "memory", "nominalQuota": "2Gi"},
        {"name": "nvidia.com/gpu", "nominalQuota": "2"},
        {"name": "pods", "nominalQuota": "10"},
    ]
    group = {
        "coveredResources": [resource["name"] for resource in resources],
        "flavors": [{"name": "default", "resources": resources}],
    }
    cluster_queue = {"namespaceSelector": {}, "resourceGroups": [group]}
    api = f"/apis/{_KUEUE}"
    team = f"{api}/namespaces/{TEAM_NAMESPACE}"
    return [
        (f"{api}/resourceflavors", _queueing("ResourceFlavor", "default", {})),
        (f"{api}/clusterqueues", _queueing("ClusterQueue", TEAM_NAMESPACE, cluster_queue)),
        (
            f"{team}/localqueues",
            _queueing("LocalQueue", TEAM_NAMESPACE, {"clusterQueue": TEAM_NAMESPACE}),
        ),
    ]


def _queueing(kind: str, name: str, spec: Object) -> Object:
    return {"apiVersion": _KUEUE, "kind": kind, "metadata": {"name": name}, "spec": spec}


def researcher_rules() -> list[Object]:
    """Return the RBAC rules for the permissions that shared research clusters usually grant:
    managing Jobs, and reading Pods and logs.
    """
    return [
        {
            "apiGroups": ["batch"],
            "resources": ["jobs"],
            "verbs": ["create", "delete", "get", "list", "watch"],
        },
        {
            "apiGroups": [""],
            "resources": ["pods", "pods/log"],
            "verbs": ["get", "list", "watch"],
        },
    ]


def gpu_patch(count: int) -> list[Object]:
    """Return a JSON patch for a node's status that advertises `count` GPUs, although the node
    has no such devices.
    """
    return [
        {"op": "add", "path": f"/status/{kind}/nvidia.com~1gpu", "value": str(count)}
        for kind in ("capacity", "allocatable")
    ]


# The probe retries by itself, because the kubelet would restart it only after 10 s.
_PROBE = """
import socket, time
for attempt in range(200):
    try:
        socket.create_connection(("kubernetes.default", 443), 5)
        break
    except OSError as exc:
        print(exc, flush=True)
        time.sleep(0.1)
else:
    raise SystemExit("cannot reach the Service")
"""


def probe_pod(node: str) -> Object:
    """Return a Pod that succeeds if Pods can run on `node`, resolve names and reach Services."""
    return {
        "metadata": {"name": f"devcluster-probe-{node}"},
        "spec": {
            "nodeSelector": {"kubernetes.io/hostname": node},
            "tolerations": [{"operator": "Exists"}],
            "restartPolicy": "OnFailure",
            "terminationGracePeriodSeconds": 0,
            "containers": [
                {"name": "probe", "image": images.NAME, "command": ["python3", "-c", _PROBE]}
            ],
        },
    }


def is_ready(node: Object) -> bool:
    """Return whether the Ready condition of a Node object is true."""
    conditions: Sequence[Object] = node.get("status", {}).get("conditions", [])
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


def _quota() -> Object:
    hard = {
        "count/jobs.batch": "10",
        "pods": "10",
        "requests.cpu": "2",
        "requests.memory": "2Gi",
        "requests.nvidia.com/gpu": "2",
    }
    return {"metadata": {"name": "team"}, "spec": {"hard": hard}}


def _limits() -> Object:
    limit = {
        "type": "Container",
        "default": {"cpu": "500m", "memory": "256Mi"},
        "defaultRequest": {"cpu": "50m", "memory": "64Mi"},
        "max": {"cpu": "2", "memory": "1Gi"},
    }
    return {"metadata": {"name": "team"}, "spec": {"limits": [limit]}}


def _dns_rules() -> list[Object]:
    return [{"apiGroups": [""], "resources": ["services", "endpoints"], "verbs": ["get"]}]


def _binding(name: str, *, kind: str, user: str) -> Object:
    return {
        "metadata": {"name": name},
        "roleRef": {"apiGroup": _RBAC, "kind": kind, "name": name},
        "subjects": [{"apiGroup": _RBAC, "kind": "User", "name": user}],
    }


def _dns_service(addresses: Addresses) -> Object:
    ports = [{"name": p.lower(), "port": 53, "protocol": p.upper()} for p in ("udp", "tcp")]
    return {
        "metadata": {"name": "kube-dns"},
        "spec": {"clusterIP": addresses.dns_service, "ports": ports},
    }


def _dns_endpoints(addresses: Addresses) -> Object:
    ports = [{"name": p.lower(), "port": 53, "protocol": p.upper()} for p in ("udp", "tcp")]
    subset = {"addresses": [{"ip": addresses.control}], "ports": ports}
    return {"metadata": {"name": "kube-dns"}, "subsets": [subset]}
