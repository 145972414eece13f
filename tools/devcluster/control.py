"""The control plane: etcd, API server, controllers and scheduler, on a separate machine.

Inside this machine, the programs use their usual ports. None of the programs listens on the host.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from devcluster.network import Addresses, with_port

API_PORT = 6443
_ETCD = "http://127.0.0.1:2379"
_ISSUER = "https://kubernetes.default.svc"


def server_url(addresses: Addresses) -> str:
    """Return the URL of the API server."""
    return f"https://{with_port(addresses.control, API_PORT)}"


def etcd(programs: Mapping[str, Path], data: Path) -> list[str]:
    """Return etcd's command line.

    The data does not need to survive a crash, so etcd does not wait for the disk.
    """
    return [
        *_at_most("150MiB"),
        str(programs["etcd"]),
        f"--data-dir={data}",
        f"--listen-client-urls={_ETCD}",
        f"--advertise-client-urls={_ETCD}",
        "--listen-peer-urls=http://127.0.0.1:2380",
        "--unsafe-no-fsync",
        "--snapshot-count=5000",  # With a low count, etcd keeps fewer log entries in memory.
    ]


def api_server(
    programs: Mapping[str, Path],
    *,
    certificates: Path,
    tokens: Path,
    service_account_key: Path,
    addresses: Addresses,
    gates: Sequence[str],
    apis: Sequence[str],
) -> list[str]:
    """Return the API server's command line.

    The API server creates its own certificate in `certificates`. `gates` are the feature gates and
    `apis` the API versions that are switched on.
    """
    return [
        *_at_most("1500MiB"),
        str(programs["kube-apiserver"]),
        f"--etcd-servers={_ETCD}",
        f"--cert-dir={certificates}",
        f"--advertise-address={addresses.control}",
        f"--bind-address={addresses.control}",
        f"--secure-port={API_PORT}",
        f"--service-cluster-ip-range={addresses.services_net}",
        f"--token-auth-file={tokens}",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        f"--service-account-issuer={_ISSUER}",
        f"--service-account-signing-key-file={service_account_key}",
        f"--service-account-key-file={service_account_key}",
        "--allow-privileged=true",
        # The nodes have no DNS names. Without this option, the API server cannot reach the nodes
        # for logs and exec.
        "--kubelet-preferred-address-types=InternalIP",
        *feature_gates(gates),
        *([f"--runtime-config={_enabled(apis)}"] if apis else []),
        "--delete-collection-workers=8",
        "--profiling=false",
    ]


def controller_manager(
    programs: Mapping[str, Path],
    *,
    kubeconfig: Path,
    authority: Path,
    service_account_key: Path,
    gates: Sequence[str],
) -> list[str]:
    """Return the controller manager's command line.

    The options allow the controller manager 200 API calls per second instead of the default 20.
    """
    return [
        str(programs["kube-controller-manager"]),
        f"--kubeconfig={kubeconfig}",
        f"--root-ca-file={authority}",
        f"--service-account-private-key-file={service_account_key}",
        "--use-service-account-credentials=true",
        "--leader-elect=false",
        "--bind-address=127.0.0.1",
        "--kube-api-qps=200",
        "--kube-api-burst=400",
        *feature_gates(gates),
        "--profiling=false",
    ]


def scheduler(programs: Mapping[str, Path], *, kubeconfig: Path, gates: Sequence[str]) -> list[str]:
    """Return the scheduler's command line."""
    return [
        str(programs["kube-scheduler"]),
        f"--kubeconfig={kubeconfig}",
        "--leader-elect=false",
        "--bind-address=127.0.0.1",
        *feature_gates(gates),
        "--kube-api-qps=200",
        "--kube-api-burst=400",
        "--profiling=false",
    ]


def feature_gates(gates: Sequence[str]) -> list[str]:
    """Return the arguments that switch feature gates on in a component of Kubernetes."""
    return [f"--feature-gates={_enabled(gates)}"] if gates else []


def _enabled(names: Sequence[str]) -> str:
    return ",".join(f"{name}=true" for name in names)


def _at_most(memory: str) -> list[str]:
    """Return a command prefix that sets a Go program's soft memory limit.

    Without the limit, after a thousand Pods have been created and deleted, the program would use
    several times the memory that it needs. With 10,000 Pods, the API server needs 600 MiB. If its
    limit were near, it would spend half of its processor time on collecting garbage.
    """
    return ["env", f"GOMEMLIMIT={memory}"]
