"""How symphony finds the kube backend."""

from symphony.hookspecs import BackendInfo, Option, hookimpl

OPTIONS = (
    Option(
        name="namespace",
        flags=("-n", "--namespace"),
        metavar="NAMESPACE",
        help="a namespace that exists, for all experiments (default: one for each)",
        where=True,
    ),
    Option(
        name="context",
        flags=("--context",),
        metavar="NAME",
        help="the context of the kubeconfig",
        where=True,
    ),
    Option(
        name="kubeconfig",
        flags=("--kubeconfig",),
        metavar="FILE",
        help="the kubeconfig (default: as kubectl)",
        where=True,
    ),
    Option(
        name="image",
        flags=("--image",),
        metavar="IMAGE",
        help="the image of processes that name none",
    ),
    Option(
        name="expose",
        flags=("--expose",),
        choices=("LoadBalancer", "NodePort", "none"),
        help="the type of Services for exposed services (default: LoadBalancer)",
    ),
    Option(
        name="jobs_only",
        flags=("--jobs-only",),
        switch=True,
        help="make every Pod a Job, for users who may create nothing else",
    ),
)


@hookimpl
def symphony_backend() -> BackendInfo:
    """Describe the kube backend."""
    return BackendInfo(
        name="kube",
        aliases=("kubernetes", "k8s"),
        summary="Pods, Services and Jobs of a Kubernetes cluster",
        load="symphony_kube.cluster:KubeCluster",
        capabilities=frozenset(
            {
                "launch",
                "logs",
                "exec",
                "login",
                "copy",
                "forward",
                "external-url",
                "topology",
                "restart",
                "gpu",
            }
        ),
        options=OPTIONS,
        extra="kube",
        place="symphony_kube.api.cluster_identity:place",
    )
