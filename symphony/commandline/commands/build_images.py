"""``launch --build``: the images of an experiment, built and pushed before it is launched."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from symphony.commandline.output.terminal import print_note
from symphony.errors import NotFound

if TYPE_CHECKING:
    from symphony.cluster import Cluster
    from symphony.model import Experiment


def with_built_images(
    cluster: Cluster, experiment: Experiment, *, dry_run: bool, force: bool
) -> Experiment:
    """The experiment, running from images that were built and pushed now; what is done is told on standard error.

    Where containers are nothing to the backend, nothing is built. A dry run tells what would be built, and shows the
    images by the tag that they would get. What is wrong with the experiment shows before anything is built.
    """
    from symphony.addons.docker.images import build_images, plan_images, with_images

    if cluster.commands_run_here:
        return _without(cluster, experiment)
    planned = plan_images(experiment)
    tagged = with_images(
        experiment, planned, {image.repository: image.reference for image in planned}
    )
    if any(item.setting == "container_image" for item in cluster.manifest(tagged).ignored):
        return _without(cluster, experiment)
    if dry_run:
        for image in planned:
            print_note(f"symphony: would build {image}")
        return tagged
    if not force:
        _refuse_live(cluster, experiment.name)
    return build_images(
        experiment, output=_show, on_step=lambda text: print_note(f"symphony: {text}")
    )


def _without(cluster: Cluster, experiment: Experiment) -> Experiment:
    print_note(
        f"symphony: --build has no effect on {cluster.backend}, which runs no containers: nothing is built"
    )
    return experiment


def _refuse_live(cluster: Cluster, name: str) -> None:
    """Say that a name is live before a build that may take long, not after it; the launch looks again."""
    from symphony.cluster.matching import experiment_exists

    try:
        status = cluster.describe_experiment(name)
    except NotFound:
        return
    if not status.ended:
        raise experiment_exists(name)


def _show(text: str) -> None:
    print(text, end="", file=sys.stderr, flush=True)
