"""The control plane: etcd, API server, controllers and scheduler, in a machine of their own.

The usual ports are used inside the machine of the control plane. No program listens on the host.
"""

from __future__ import annotations

from pathlib import Path

from devcluster import network

API_PORT = 6443
SERVER = f"https://{network.CONTROL}:{API_PORT}"
_ETCD = "http://127.0.0.1:2379"
_ISSUER = "https://kubernetes.default.svc"


def etcd(data: Path) -> list[str]:
    """Return the command line of etcd. The data does not need to survive a crash, so etcd does not
    wait for the disk.
    """
    return [
        *_at_most("150MiB"),
        "etcd",
        f"--data-dir={data}",
        f"--listen-client-urls={_ETCD}",
        f"--advertise-client-urls={_ETCD}",
        "--listen-peer-urls=http://127.0.0.1:2380",
        "--unsafe-no-fsync",
        "--snapshot-count=5000",  # A low count keeps fewer log entries in memory.
    ]


def api_server(
    binaries: Path, *, certificates: Path, tokens: Path, service_account_key: Path
) -> list[str]:
    """Return the command line of the API server, which creates its own certificate in
    `certificates`.
    """
    return [
        *_at_most("500MiB"),
        str(binaries / "kube-apiserver"),
        f"--etcd-servers={_ETCD}",
        f"--cert-dir={certificates}",
        f"--advertise-address={network.CONTROL}",
        f"--bind-address={network.CONTROL}",
        f"--secure-port={API_PORT}",
        f"--service-cluster-ip-range={network.SERVICES_NET}",
        f"--token-auth-file={tokens}",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        f"--service-account-issuer={_ISSUER}",
        f"--service-account-signing-key-file={service_account_key}",
        f"--service-account-key-file={service_account_key}",
        "--allow-privileged=true",
        # The nodes have no DNS names. Without this option, logs and exec cannot reach the nodes.
        "--kubelet-preferred-address-types=InternalIP",
        "--delete-collection-workers=8",
        "--profiling=false",
    ]


def controller_manager(
    binaries: Path, *, kubeconfig: Path, authority: Path, service_account_key: Path
) -> list[str]:
    """Return the command line of the controller manager, with a higher limit than the default of 20
    calls per second.
    """
    return [
        str(binaries / "kube-controller-manager"),
        f"--kubeconfig={kubeconfig}",
        f"--root-ca-file={authority}",
        f"--service-account-private-key-file={service_account_key}",
        "--use-service-account-credentials=true",
        "--leader-elect=false",
        "--bind-address=127.0.0.1",
        "--port=0",
        "--kube-api-qps=200",
        "--kube-api-burst=400",
        "--profiling=false",
    ]


def scheduler(binaries: Path, *, kubeconfig: Path) -> list[str]:
    """Return the scheduler's command line."""
    return [
        str(binaries / "kube-scheduler"),
        f"--kubeconfig={kubeconfig}",
        "--leader-elect=false",
        "--bind-address=127.0.0.1",
        "--port=0",
        "--kube-api-qps=200",
        "--kube-api-burst=400",
        "--profiling=false",
    ]


def _at_most(memory: str) -> list[str]:
    """Return the words before the command line of a Go program that make the program collect
    garbage instead of growing.

    After the creation and deletion of a thousand Pods, the program would otherwise use several
    times the memory that it needs.
    """
    return ["env", f"GOMEMLIMIT={memory}"]
