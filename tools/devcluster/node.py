"""A node: containerd, kubelet and kube-proxy in a separate machine.

The files that these programs need are written to the machine's own /var/lib, which is the
directory `lib` on the host.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from devcluster import access
from devcluster.control import feature_gates
from devcluster.network import Addresses, with_port

CONTAINERD_SOCKET = "/run/containerd/containerd.sock"
PAUSE_IMAGE = "docker.io/library/pause:devcluster"
REGISTRY_PORT = 5000
REGISTRY = f"127.0.0.1:{REGISTRY_PORT}"
CGROUP = "/symphony-devcluster"


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One node: its name, number, labels and taints, and its number of advertised GPUs.

    The first node has number 1.
    """

    name: str
    number: int
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Mapping[str, str], ...] = ()
    gpus: int = 0

    @property
    def cgroup(self) -> str:
        """The control group for the node's Pods."""
        return f"{CGROUP}/{self.name}"


# These are a plain node, a node with GPUs, and a node with a taint that a Pod must tolerate.
NODES = (
    Node(
        name="node1",
        number=1,
        labels={"topology.kubernetes.io/zone": "zone-1", "symphony.test/pool": "plain"},
    ),
    Node(
        name="node2",
        number=2,
        labels={"topology.kubernetes.io/zone": "zone-2", "symphony.test/pool": "gpu"},
        gpus=4,
    ),
    Node(
        name="node3",
        number=3,
        labels={"topology.kubernetes.io/zone": "zone-3", "symphony.test/pool": "reserved"},
        taints=({"key": "symphony.test/reserved", "value": "team-a", "effect": "NoSchedule"},),
    ),
)


def prepare(node: Node, lib: Path, programs: Mapping[str, Path], addresses: Addresses) -> None:
    """Write the configuration files for containerd, the Pod network and the kubelet below `lib`."""
    for name in ("containerd", "kubelet", "cni/net.d", "kube-proxy"):
        (lib / name).mkdir(parents=True)
    (lib / "containerd/config.toml").write_text(containerd_config(programs))
    for name in (REGISTRY, "localhost:5000"):
        hosts = lib / "containerd/hosts" / name
        hosts.mkdir(parents=True)
        (hosts / "hosts.toml").write_text(registry_hosts(addresses))
    pod_network = cni_config(node, addresses)
    (lib / "cni/net.d/10-devcluster.conflist").write_text(json.dumps(pod_network, indent=1))
    config = kubelet_config(node, addresses)
    (lib / "kubelet/config.json").write_text(json.dumps(config, indent=1))
    (lib / "kubelet/resolv.conf").write_text(f"nameserver {addresses.control}\n")


def admit(lib: Path, *, kubelet: str, proxy: str) -> None:
    """Write the kubeconfigs for the node's kubelet and kube-proxy."""
    access.write_private(lib / "kubelet/kubeconfig", kubelet)
    access.write_private(lib / "kube-proxy/kubeconfig", proxy)


def containerd_config(programs: Mapping[str, Path]) -> str:
    """Return containerd's configuration."""
    # Without CAP_SYS_RESOURCE, runc cannot lower oom_score_adj and exits with an error. The setting
    # restrict_oom_score_adj prevents this.
    return f"""\
version = 3
root = "/var/lib/containerd"
state = "/run/containerd"
disabled_plugins = ["io.containerd.internal.v1.opt"]
[grpc]
  address = "{CONTAINERD_SOCKET}"
[plugins."io.containerd.grpc.v1.cri"]
  stream_server_address = "127.0.0.1"
[plugins."io.containerd.cri.v1.runtime"]
  restrict_oom_score_adj = true
  [plugins."io.containerd.cri.v1.runtime".cni]
    bin_dirs = ["{programs["bridge"].parent}"]
    conf_dir = "/var/lib/cni/net.d"
  # containerd would find the older shim of Debian's containerd, which docker needs, on PATH first.
  [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    runtime_path = "{programs["containerd-shim-runc-v2"]}"
[plugins."io.containerd.cri.v1.images"]
  [plugins."io.containerd.cri.v1.images".pinned_images]
    sandbox = "{PAUSE_IMAGE}"
  [plugins."io.containerd.cri.v1.images".registry]
    config_path = "/var/lib/containerd/hosts"
"""


def registry_hosts(addresses: Addresses) -> str:
    """Return containerd's configuration for the registry: the registry's address on the bridge, so
    that images are pulled over plain HTTP.
    """
    registry = f"http://{with_port(addresses.host, REGISTRY_PORT)}"
    return f"""\
server = "{registry}"
[host."{registry}"]
  capabilities = ["pull", "resolve"]
"""


def cni_config(node: Node, addresses: Addresses) -> dict[str, Any]:
    """Return the Pod network's configuration: a bridge in the node, and addresses from the node's
    range. There are no host ports, because each plug-in starts two processes for each Pod.
    """
    bridge = {
        "type": "bridge",
        "bridge": "cni0",
        "isGateway": True,
        "hairpinMode": True,  # With this setting, a Pod can reach itself through its Service.
        "ipam": {
            "type": "host-local",
            "dataDir": "/run/cni",
            "subnet": addresses.pods(node.number),
            "routes": [{"dst": addresses.all_addresses}],
        },
    }
    return {"cniVersion": "0.4.0", "name": "devcluster", "plugins": [bridge]}


def kubelet_config(node: Node, addresses: Addresses) -> dict[str, Any]:
    """Return the kubelet's configuration.

    The kubelet accepts requests without authentication, because it listens only on the bridge. Test
    Pods are not evicted when the disk is full.
    """
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": addresses.machine(node.number),
        "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
        "authorization": {"mode": "AlwaysAllow"},
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": node.cgroup,
        "clusterDNS": [addresses.dns_service],
        "clusterDomain": "cluster.local",
        "containerRuntimeEndpoint": f"unix://{CONTAINERD_SOCKET}",
        "volumePluginDir": "/var/lib/kubelet/volume-plugins",
        "registerWithTaints": [dict(taint) for taint in node.taints],
        "resolvConf": "/var/lib/kubelet/resolv.conf",
        # Since version 1.35, the kubelet otherwise does not start on a machine with cgroup v1.
        "failCgroupV1": False,
        "failSwapOn": False,
        "enforceNodeAllocatable": [],
        "evictionHard": {
            "imagefs.available": "0%",
            "nodefs.available": "0%",
            "nodefs.inodesFree": "0%",
        },
        "imageGCHighThresholdPercent": 100,
        "maxPods": 250,
        # With this interval, a node is reported as ready soon after it becomes ready.
        "nodeStatusUpdateFrequency": "2s",
        # Unless this is set, the node also reports a status that has not changed every two seconds.
        "nodeStatusReportFrequency": "5m",
        # A Pod is evicted at the latest this long after a volume has exceeded its size limit. The
        # kubelet starts two processes for each volume.
        "volumeStatsAggPeriod": "30s",
        "registryPullQPS": 0,
        "serializeImagePulls": False,
        "eventRecordQPS": 0,
        "kubeAPIQPS": 100,
        "kubeAPIBurst": 200,
    }


def containerd(programs: Mapping[str, Path]) -> list[str]:
    """Return containerd's command line."""
    return [str(programs["containerd"]), "--config=/var/lib/containerd/config.toml"]


def kubelet(
    programs: Mapping[str, Path], node: Node, addresses: Addresses, *, gates: Sequence[str]
) -> list[str]:
    """Return the kubelet's command line. `gates` are the feature gates that are switched on."""
    labels = ",".join(f"{key}={value}" for key, value in node.labels.items())
    return [
        str(programs["kubelet"]),
        "--config=/var/lib/kubelet/config.json",
        "--kubeconfig=/var/lib/kubelet/kubeconfig",
        "--cert-dir=/var/lib/kubelet/pki",
        "--root-dir=/var/lib/kubelet",
        f"--hostname-override={node.name}",
        f"--node-ip={addresses.machine(node.number)}",
        f"--node-labels={labels}",
        *feature_gates(gates),
    ]


def proxy(programs: Mapping[str, Path], node: Node, addresses: Addresses) -> list[str]:
    """Return kube-proxy's command line.

    Its options leave the host's connection tracking limits unchanged. As on other clusters, it
    applies changes at most once a second.
    """
    return [
        str(programs["kube-proxy"]),
        "--kubeconfig=/var/lib/kube-proxy/kubeconfig",
        "--proxy-mode=iptables",
        f"--cluster-cidr={addresses.pods_net}",
        f"--hostname-override={node.name}",
        "--iptables-sync-period=10m",
        "--conntrack-max-per-core=0",
        "--conntrack-tcp-timeout-established=0",
        "--conntrack-tcp-timeout-close-wait=0",
    ]
