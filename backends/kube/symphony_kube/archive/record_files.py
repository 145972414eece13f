"""The files of the record of an experiment whose contents are in its objects.

The names and the forms of the files are those of a record on a machine.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING

from symphony.archive.archived_usage import USAGE_FILE
from symphony.archive.run_record import SECRET_FILES

if TYPE_CHECKING:
    from symphony_kube.api.client import Api
    from symphony_kube.api.labels import Scope


def read_files(api: Api, scope: Scope, pattern: str) -> dict[str, bytes]:
    """Return files of the record of an experiment, by their names.

    ``pattern`` is ``USAGE_FILE`` or ``SECRET_FILES``.
    """
    if pattern == USAGE_FILE:
        from symphony_kube.archive.recording import recorded_usage

        return {USAGE_FILE: recorded_usage(api, scope)}
    if pattern == SECRET_FILES:
        return _read_secrets(api, scope)
    return {}


def _read_secrets(api: Api, scope: Scope) -> dict[str, bytes]:
    """Return the contents of the Secret with the secrets, if the user may read it."""
    from symphony_kube.api.errors import ApiError
    from symphony_kube.api.labels import SECRETS
    from symphony_kube.api.resources import collection_path

    name = scope.object_name(SECRETS, "Secret")
    try:
        secret = api.find(f"{collection_path('Secret', scope.namespace)}/{name}")
    except ApiError:
        # Many users may read Pods and their logs, but no Secrets.
        secret = None
    data = {} if secret is None else secret.get("data") or {}
    directory = SECRET_FILES.removesuffix("*")
    return {f"{directory}{key}": base64.b64decode(value) for key, value in data.items()}
