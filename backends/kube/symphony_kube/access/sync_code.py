"""Send changed files to running containers, which restart their programs in place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from symphony.errors import BackendError
from symphony_kube.access.send_code import STALL_SECONDS, run_with_data
from symphony_kube.render.container_scripts import SHELL
from symphony_kube.render.file_objects.code_volumes import TARGET_PATH
from symphony_kube.render.sync import RESTART_SCRIPT
from symphony_kube.state.pod_status import ContainerRef

if TYPE_CHECKING:
    from symphony_kube.api.kube_experiment import KubeExperiment


def restart_with_update(
    experiment: KubeExperiment,
    ref: ContainerRef,
    update: bytes,
    grace_seconds: float,
    stop: Sequence[str],
) -> str:
    """Install an update in a container, and restart the program, which the command ``stop`` stops.

    Return why this was not possible, or ``""``. An interrupted transfer changes nothing. An update
    that was received is installed even if the connection is lost.
    """
    arguments = [TARGET_PATH, str(len(update)), str(round(grace_seconds)), *stop]
    argv = [SHELL, "-c", RESTART_SCRIPT, SHELL, *arguments]
    try:
        run_with_data(experiment, ref, argv, update, stall=STALL_SECONDS + grace_seconds)
    except BackendError as exc:
        return str(exc)
    return ""
