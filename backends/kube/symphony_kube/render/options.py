"""What a cluster gives to everything that is rendered for it. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Expose = Literal["LoadBalancer", "NodePort", "none"]
EXPOSE: tuple[Expose, ...] = ("LoadBalancer", "NodePort", "none")
GPU = "nvidia.com/gpu"
GIT_IMAGE = "alpine/git"


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How plans are rendered.

    ``image`` is for processes without one. ``expose`` is the type of the Services of exposed services (none: they
    are reached by port-forwarding). ``jobs_only`` makes every Pod a Job. ``gpu_resource`` is what a GPU is called,
    ``git_image`` has a git to check repositories out with.
    """

    image: str | None = None
    expose: Expose = "LoadBalancer"
    jobs_only: bool = False
    service_account: str | None = None
    image_pull_secrets: tuple[str, ...] = ()
    gpu_resource: str = GPU
    git_image: str = GIT_IMAGE
