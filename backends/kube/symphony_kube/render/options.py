"""The cluster options that apply to every rendered experiment. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Expose = Literal["LoadBalancer", "NodePort", "none"]
EXPOSE: tuple[Expose, ...] = ("LoadBalancer", "NodePort", "none")
GPU = "nvidia.com/gpu"
RESTRICTED = "restricted"


@dataclass(frozen=True, slots=True, kw_only=True)
class RenderOptions:
    """Options for rendering plans.

    * ``image``: the image for processes that specify none.
    * ``expose``: the Service type of exposed services. With ``none``, the services are reached
      through port forwarding.
    * ``jobs_only``: render every Pod as a Job.
    * ``service_account`` and ``image_pull_secrets``: the values that are set on every Pod.
    * ``gpu_resource``: the name of the extended resource for GPUs.
    * ``limits_pods``: whether the deadline of an experiment is the active deadline of its Pods.
      Kubernetes then stops them even if no supervisor is running, but the deadline cannot be
      extended while they are running.
    * ``code_image``: the image of the containers that unpack code, or None for the images of the
      processes.
    * ``pod_yml``, ``job_yml``, ``service_yml`` and ``namespace_yml``: fields that are merged into
      all objects of these kinds.
    * ``security``: the Pod security level that all Pods pass, or None.
    * ``stop_signals``: whether the API server knows the field ``lifecycle.stopSignal``. It ignores
      the field if it is disabled.
    """

    image: str | None = None
    expose: Expose = "LoadBalancer"
    jobs_only: bool = False
    service_account: str | None = None
    image_pull_secrets: tuple[str, ...] = ()
    gpu_resource: str = GPU
    limits_pods: bool = True
    pod_yml: Mapping[str, Any] = field(default_factory=dict)
    job_yml: Mapping[str, Any] = field(default_factory=dict)
    service_yml: Mapping[str, Any] = field(default_factory=dict)
    namespace_yml: Mapping[str, Any] = field(default_factory=dict)
    security: str | None = None
    code_image: str | None = None
    stop_signals: bool = False
