"""The files of the record of an experiment whose contents are in its objects.

The names and the forms of the files are those of a record on a machine.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING

from symphony.archive.archived_usage import USAGE_FILE
from symphony.archive.run_record import SECRET_FILES

if TYPE_CHECKING:
    from symphony_kube.api.kube_experiment import KubeExperiment


def read_files(experiment: KubeExperiment, pattern: str) -> dict[str, bytes]:
    """Return files of the record of an experiment, by their names.

    ``pattern`` is ``USAGE_FILE`` or ``SECRET_FILES``.
    """
    if pattern == USAGE_FILE:
        from symphony_kube.archive.recording import recorded_usage

        return {USAGE_FILE: recorded_usage(experiment)}
    if pattern == SECRET_FILES:
        return _read_secrets(experiment)
    return {}


def _read_secrets(experiment: KubeExperiment) -> dict[str, bytes]:
    """Return the contents of the Secret with the secrets, if the user may read it."""
    from symphony_kube.api.errors import ApiError
    from symphony_kube.api.labels import SECRETS
    from symphony_kube.api.resources import collection_path

    name = experiment.scope.object_name(SECRETS, "Secret")
    try:
        secret = experiment.api.find(f"{collection_path('Secret', experiment.namespace)}/{name}")
    except ApiError:
        # Many users may read Pods and their logs, but no Secrets.
        secret = None
    data = {} if secret is None else secret.get("data") or {}
    directory = SECRET_FILES.removesuffix("*")
    return {f"{directory}{key}": base64.b64decode(value) for key, value in data.items()}
