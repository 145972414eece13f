"""How symphony finds the kube backend."""

from symphony.hookspecs import BackendInfo, hookimpl


@hookimpl
def symphony_backend() -> BackendInfo:
    """Describe the kube backend."""
    return BackendInfo(
        name="kube",
        aliases=("kubernetes", "k8s"),
        summary="Pods, Services and Jobs of a Kubernetes cluster",
        load="symphony_kube.cluster:KubeCluster",
        capabilities=frozenset({"launch", "logs", "exec", "login", "copy", "external-url", "restart", "gpu"}),
        extra="kube",
    )
