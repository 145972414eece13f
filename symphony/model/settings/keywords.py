"""The types of the settings as keyword arguments, for type checkers.

Each key is a setting of `symphony.model.settings.table.SETTINGS`, with the forms that a value can
have in an experiment file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypedDict

from symphony.model.settings import validators

if TYPE_CHECKING:
    from symphony.model.experiment.component import Component

Keywords = Mapping[str, Any]


class SettingOptions(TypedDict, total=False):
    """The settings of a process or group as keyword arguments."""

    env: Mapping[str, object] | None
    env_file: validators.Paths | None
    configs: validators.Files | None
    code: validators.Code | None
    env_secrets: Mapping[str, str] | None
    binds: validators.ServiceSpec | None
    connects: validators.ServiceSpec | None
    exposes: validators.ServiceSpec | None
    encrypted: validators.ServiceSpec | None
    replicated: validators.ServiceSpec | None
    rank_of: str | None
    per_pod: int | None
    resource_request: Keywords | None
    resource_limit: Keywords | None
    image_pull_policy: str | None
    restart_policy: str | Keywords | None
    termination_grace_period: int | str | None
    stop_signal: str | None
    stop_command: validators.Strings | None
    signal_group: bool | None
    ready: Keywords | None
    starts_after: str | Component | Sequence[str | Component] | Mapping[str, str] | None
    log_limit: int | str | None
    tty: bool | None
    job: bool | Keywords | None
    volumes: Sequence[Keywords] | None
    node_selector: Mapping[str, object] | None
    tolerations: Sequence[Keywords] | None
    spread: str | bool | None
    together: str | bool | None
    topology_spread: Sequence[Keywords] | None
    priority_class: str | None
    queue: str | None
    together_or_not: float | str | bool | None
    jobset: bool | None
    labels: Mapping[str, object] | None
    pod_yml: Keywords | None
    container_yml: Keywords | None
