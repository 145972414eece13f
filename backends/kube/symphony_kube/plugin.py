"""The pluggy plug-in through which symphony finds the kube backend."""

from symphony.hookspecs import CAPABILITIES, BackendInfo, Option

OPTIONS = (
    Option(
        name="namespace",
        flags=("-n", "--namespace"),
        metavar="NAMESPACE",
        help="an existing namespace for all experiments (default: a separate namespace for each)",
        where=True,
    ),
    Option(
        name="context",
        flags=("--context",),
        metavar="NAME",
        help="the kubeconfig context (default: the current context)",
        where=True,
    ),
    Option(
        name="kubeconfig",
        flags=("--kubeconfig",),
        metavar="FILE",
        help="the kubeconfig file (default: the one that kubectl uses)",
        where=True,
    ),
    Option(
        name="image",
        flags=("--image",),
        metavar="IMAGE",
        help="the image for processes that do not set one",
    ),
    Option(
        name="expose",
        flags=("--expose",),
        choices=("LoadBalancer", "NodePort", "none"),
        help="the Kubernetes Service type for exposed services (default: LoadBalancer)",
    ),
    Option(
        name="jobs_only",
        flags=("--jobs-only",),
        switch=True,
        help="create a Job for every Pod, for users who may create only Jobs",
    ),
)

BACKEND = BackendInfo(
    name="kube",
    aliases=("kubernetes", "k8s"),
    summary="Pods, Services and Jobs of a Kubernetes cluster",
    load="symphony_kube.cluster:KubeCluster",
    capabilities=frozenset(CAPABILITIES),
    options=OPTIONS,
    extra="kube",
    place="symphony_kube.api.cluster_identity:place",
)
