"""The settings in a plan that a backend ignores because it does not support them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from symphony.model.settings.table import SETTINGS
from symphony.support.names import join_names

if TYPE_CHECKING:
    from symphony.plan.plan import Plan, PlannedProcess


@dataclass(frozen=True, slots=True, kw_only=True)
class Ignored:
    """A setting that a backend ignores, and the paths of the processes that use the setting.

    ``processes`` is empty for an option of the experiment.
    """

    setting: str
    processes: tuple[str, ...]

    def __str__(self) -> str:
        if not self.processes:
            return self.setting
        return f"{self.setting} ({join_names(self.processes, limit=4)})"


def ignored_settings(plan: Plan, honoured: frozenset[str]) -> tuple[Ignored, ...]:
    """Return the settings in a plan that a backend ignores.

    The result contains options of the experiment, such as ``deadline``, and the settings of its
    processes. ``honoured`` contains those that the backend supports, as a whole (``"env"``) or
    in part (``"resource_limit.gpu"``).
    """
    processes: dict[str, list[str]] = {
        option: [] for option in plan.option_names if option not in honoured
    }
    for process in plan:
        for setting in _setting_names(process):
            whole_setting = setting.partition(".")[0]
            if setting not in honoured and whole_setting not in honoured:
                processes.setdefault(setting, []).append(process.path)
    return tuple(
        Ignored(setting=setting, processes=tuple(paths)) for setting, paths in processes.items()
    )


def _setting_names(process: PlannedProcess) -> Iterator[str]:
    if process.container_image:
        yield "container_image"
    values = {**process.settings.given(), **process.pod.given()}
    for key, value in values.items():
        yield from SETTINGS[key].reported_names(value)
