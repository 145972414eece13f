"""The ``--build`` option of ``launch`` and ``up``, which builds and pushes an experiment's images
first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from symphony.commandline.output.terminal import print_note, print_progress_output
from symphony.errors import NotFound

if TYPE_CHECKING:
    from symphony.cluster import Cluster
    from symphony.model import Experiment


def with_built_images(
    cluster: Cluster, experiment: Experiment, *, dry_run: bool, may_be_running: bool
) -> Experiment:
    """Build and push the images that ``experiment`` declares, and return a copy of it that uses the
    pushed images.

    Progress messages and the build output are written to standard error. If the backend does not
    run containers, nothing is built and the experiment is returned unchanged. In a dry run, the
    function lists the images that would be built, and returns a copy of the experiment that uses
    the tags that these images would get.

    The experiment is validated before the first build. Unless ``may_be_running`` is set, the
    function raises `AlreadyExists` before the first build if an experiment with the same name is
    running.
    """
    from symphony.addons.docker.images import build_images, plan_images, with_images

    if cluster.commands_run_here:
        return _without_build(cluster, experiment)
    planned = plan_images(experiment)
    references = {image.repository: image.reference for image in planned}
    tagged = with_images(experiment, planned, references)
    # Create the manifest to detect an invalid experiment before the build, which can take a long
    # time.
    ignored = {item.setting for item in cluster.manifest(tagged).ignored}
    if "container_image" in ignored:
        return _without_build(cluster, experiment)
    if dry_run:
        for image in planned:
            print_note(f"symphony: would build {image}")
        return tagged
    if not may_be_running:
        _refuse_running(cluster, experiment.name)
    return build_images(
        experiment,
        output=print_progress_output,
        on_step=lambda text: print_note(f"symphony: {text}"),
    )


def _without_build(cluster: Cluster, experiment: Experiment) -> Experiment:
    print_note(
        f"symphony: --build is ignored: the {cluster.backend} backend does not run processes "
        "in containers"
    )
    return experiment


def _refuse_running(cluster: Cluster, name: str) -> None:
    """Raise `AlreadyExists` if an experiment called ``name`` is running.

    The launch repeats this check. Checking before the build as well avoids a long build whose
    result could not be launched.
    """
    from symphony.cluster.matching import experiment_exists

    try:
        status = cluster.describe_experiment(name)
    except NotFound:
        return
    if not status.ended:
        raise experiment_exists(name)
