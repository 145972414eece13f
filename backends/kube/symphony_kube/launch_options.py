"""The options of a `KubeCluster` that determine how experiments are launched.

They are recorded, and a change of a running experiment keeps those that it does not set.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from symphony.errors import SpecError, shown
from symphony.model.settings import validators
from symphony_kube.render.options import EXPOSE, GPU, RESTRICTED, Expose, RenderOptions
from symphony_kube.state.ip_families import ALL_OF_IPV4

# The addresses on which processes can listen: all of IPv4, or all of IPv6 and usually also IPv4.
BIND_HOST = ALL_OF_IPV4
BIND_HOSTS = (BIND_HOST, "::")
LAUNCH_OPTION_NAMES = (
    "jobs_only",
    "image",
    "expose",
    "service_account",
    "image_pull_secrets",
    "gpu_resource",
    "code_image",
    "supervisor_image",
    "pod_yml",
    "job_yml",
    "service_yml",
    "namespace_yml",
    "security",
    "bind_host",
)


class LaunchOptions(NamedTuple):
    """The options of a launch.

    If ``supervisor_image`` is set, the supervisors of experiments run in the cluster. Processes
    listen on ``bind_host``.
    """

    rendering: RenderOptions
    supervisor_image: str | None
    bind_host: str


def read_launch_options(
    *,
    namespace: str | None,
    jobs_only: bool = False,
    image: str | None = None,
    expose: Expose = "LoadBalancer",
    service_account: str | None = None,
    image_pull_secrets: Sequence[str] = (),
    gpu_resource: str = GPU,
    code_image: str | None = None,
    supervisor_image: str | None = None,
    pod_yml: Mapping[str, Any] | None = None,
    job_yml: Mapping[str, Any] | None = None,
    service_yml: Mapping[str, Any] | None = None,
    namespace_yml: Mapping[str, Any] | None = None,
    security: str | None = None,
    bind_host: str = BIND_HOST,
) -> LaunchOptions:
    """Return the options after they have been checked. Raises `SpecError`.

    ``namespace`` is the namespace for all experiments. The other arguments are those of
    `KubeCluster`.
    """
    for name, value in (
        ("image", image),
        ("service_account", service_account),
        ("gpu_resource", gpu_resource),
        ("code_image", code_image),
        ("supervisor_image", supervisor_image),
    ):
        if value is not None:
            validators.nonempty_text(value, name)
    if isinstance(image_pull_secrets, str):
        raise SpecError(
            f"image_pull_secrets must be a list of names, not {shown(image_pull_secrets)}"
        )
    pull_secrets = validators.strings(image_pull_secrets, "image_pull_secrets")
    validators.flag(jobs_only, "jobs_only")
    overrides: dict[str, Mapping[str, Any]] = {}
    for name, fields in (
        ("pod_yml", pod_yml),
        ("job_yml", job_yml),
        ("service_yml", service_yml),
        ("namespace_yml", namespace_yml),
    ):
        overrides[name] = {} if fields is None else validators.plain_mapping(fields, name)
    validators.one_of(bind_host, BIND_HOSTS, "bind_host")
    if security not in (None, RESTRICTED):
        raise SpecError(f"security must be {RESTRICTED!r} or None, not {shown(security)}")
    if expose not in EXPOSE:
        raise SpecError(f"expose must be LoadBalancer, NodePort or none, not {shown(expose)}")
    if jobs_only and namespace is None:
        raise SpecError(
            "jobs_only requires a namespace in which you may create Jobs: set namespace"
        )
    rendering = RenderOptions(
        image=image,
        expose=expose,
        jobs_only=jobs_only,
        service_account=service_account,
        image_pull_secrets=tuple(pull_secrets),
        gpu_resource=gpu_resource,
        code_image=code_image,
        limits_pods=supervisor_image is None,
        security=security,
        stop_signals=False,
        **overrides,
    )
    return LaunchOptions(rendering, supervisor_image, bind_host)
