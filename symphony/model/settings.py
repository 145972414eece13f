"""What can be set on a process or a group: one table that dumping, loading, the schema and the list of
ignored settings all read.

Values are held in the form in which they are dumped, so that a dump is a copy and never a translation.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field, fields
from typing import Any

POD, CONTAINER, OWN = "pod", "container", "own"


def _setting(level: str, default: Any = dict) -> Any:
    """A field with its level.

    ``pod``: belongs to the whole group where there is one. ``container``: of a group, reaches every member.
    ``own``: stays with whom it was set on.
    """
    return field(default_factory=default, metadata={"level": level})


def _nothing() -> None:
    return None


@dataclass(kw_only=True)
class Settings:
    """All settings of one process or group, empty where nothing was set."""

    env: dict[str, str] = _setting(CONTAINER)
    env_secrets: dict[str, str] = _setting(CONTAINER)
    binds: dict[str, int | None] = _setting(OWN)
    connects: list[str] = _setting(CONTAINER, list)
    exposes: dict[str, int | None] = _setting(OWN)
    encrypted: list[str] = _setting(OWN, list)
    resource_request: dict[str, str] = _setting(CONTAINER)
    resource_limit: dict[str, Any] = _setting(CONTAINER)
    image_pull_policy: str | None = _setting(CONTAINER, _nothing)
    restart_policy: str | None = _setting(POD, _nothing)
    termination_grace_period: int | None = _setting(POD, _nothing)
    ready: dict[str, Any] | None = _setting(CONTAINER, _nothing)
    starts_after: dict[str, str] = _setting(POD)
    job: dict[str, Any] | None = _setting(POD, _nothing)
    volumes: list[dict[str, Any]] = _setting(CONTAINER, list)
    node_selector: dict[str, str] = _setting(POD)
    tolerations: list[dict[str, Any]] = _setting(POD, list)
    labels: dict[str, str] = _setting(POD)
    pod_yml: dict[str, Any] = _setting(POD)
    container_yml: dict[str, Any] = _setting(CONTAINER)

    def dump(self) -> dict[str, Any]:
        """The settings that were set, in the order of this table."""
        values = ((item.name, getattr(self, item.name)) for item in fields(self))
        return {key: copy.deepcopy(value) for key, value in values if value != _UNSET[key]}

    def at_level(self, level: str) -> Settings:
        """A copy with the settings of one level alone."""
        return Settings(
            **{key: value for key, value in self.dump().items() if LEVELS[key] == level}
        )

    def under(self, inner: Settings) -> Settings:
        """These as defaults below ``inner``: mappings merge, lists join, single values give way."""
        return Settings(**_merged(self.dump(), inner.dump()))


LEVELS: dict[str, str] = {item.name: item.metadata["level"] for item in fields(Settings)}
_UNSET: dict[str, Any] = vars(Settings())


def _merged(outer: dict[str, Any], inner: dict[str, Any]) -> dict[str, Any]:
    result = dict(outer)
    for key, value in inner.items():
        if isinstance(value, list):
            result[key] = [
                *outer.get(key, []),
                *(item for item in value if item not in outer.get(key, [])),
            ]
        elif isinstance(value, dict) and key != "ready":
            result[key] = deep_merged(outer.get(key, {}), value)
        else:
            result[key] = value
    return result


def deep_merged(outer: dict[str, Any], inner: dict[str, Any]) -> dict[str, Any]:
    """``inner`` over ``outer``, mapping by mapping."""
    result = dict(outer)
    for key, value in inner.items():
        below = result.get(key)
        both = isinstance(below, dict) and isinstance(value, dict)
        result[key] = deep_merged(below, value) if both else value  # type: ignore[arg-type]
    return result
