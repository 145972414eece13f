"""Load the token of a user who has an ``auth-provider``, such as OIDC, with the kubernetes package.

Kubernetes has replaced these providers with credential plug-ins, so few kubeconfigs contain them.
Importing the package takes longer than most commands, so only this module imports it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from symphony.errors import BackendError, PluginError
from symphony.support.install_hints import install_command
from symphony_kube.api.errors import one_line


def authorization_from_provider(path: str, context: str, owner: str) -> str | None:
    """Return the header with the token for a context of the kubeconfigs in ``path``, or None.

    The library may request a new token, which it does not write to the kubeconfig. In messages,
    ``owner`` describes what the credentials belong to. Raises `BackendError` if the token cannot be
    loaded.
    """
    try:
        from kubernetes import client, config
    except ModuleNotFoundError as exc:
        raise PluginError(
            f"an auth-provider needs the package {exc.name!r}; "
            f"install it with: {install_command('kube')}"
        ) from exc
    configuration: Any = client.Configuration()
    load: Callable[..., None] = config.load_kube_config
    try:
        load(
            config_file=path,
            context=context,
            client_configuration=configuration,
            persist_config=False,
        )
        settings = configuration.auth_settings()
    # The library raises many types of exception, for example for dates and failed requests.
    except Exception as exc:
        raise BackendError(f"no credentials for {owner}: {one_line(str(exc))}") from exc
    if not settings:
        return None
    header: str | None = settings["BearerToken"]["value"]
    return header
