"""The control plane: etcd, API server, controllers and scheduler, in a machine of their own.

Inside that machine the ports are the usual ones; nothing of it listens on the host.
"""

from __future__ import annotations

from pathlib import Path

from devcluster import network

API_PORT = 6443
SERVER = f"https://{network.CONTROL}:{API_PORT}"
_ETCD = "http://127.0.0.1:2379"
_ISSUER = "https://kubernetes.default.svc"


def etcd(data: Path) -> list[str]:
    """Return etcd's command line; nothing has to survive a crash, so nothing waits for the disk."""
    return [
        *_at_most("150MiB"),
        "etcd",
        f"--data-dir={data}",
        f"--listen-client-urls={_ETCD}",
        f"--advertise-client-urls={_ETCD}",
        "--listen-peer-urls=http://127.0.0.1:2380",
        "--unsafe-no-fsync",
        "--snapshot-count=5000",  # so that fewer entries of the log are kept in memory
    ]


def api_server(
    binaries: Path, *, certificates: Path, tokens: Path, service_account_key: Path
) -> list[str]:
    """Return the API server's command line; it makes its own certificate in `certificates`."""
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
        # nodes have no names in any DNS: without this, logs and exec cannot find them
        "--kubelet-preferred-address-types=InternalIP",
        "--delete-collection-workers=8",
        "--profiling=false",
    ]


def controller_manager(
    binaries: Path, *, kubeconfig: Path, authority: Path, service_account_key: Path
) -> list[str]:
    """Return the controller manager's command line; it may make more than 20 calls a second."""
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
    """Return the words before a Go program's command line that make it tidy up rather than grow.

    A thousand Pods that come and go would otherwise leave it at several times what it needs.
    """
    return ["env", f"GOMEMLIMIT={memory}"]
