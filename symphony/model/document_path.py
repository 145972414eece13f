"""What the places of a file hold: text that is taken as it is written, shell lines, or names of the user's own.

A place is the path to it, from the root: ``("processes", "db", "env", "A")``.
"""

from __future__ import annotations

Place = tuple["str | int", ...]

TEXT_KEYS = frozenset(
    {
        "name",
        "env",
        "env_secrets",
        "container_image",
        "command",
        "args",
        "cmd",
        "cmds",
        "preamble_cmds",
        "start_dir",
    }
    | {"labels", "node_selector", "value", "log", "parameters"}
    | {"path", "dockerfile", "temp_directory", "build_options"}
)
SHELL_KEYS = frozenset({"cmd", "cmds", "preamble_cmds"})
# What stands below these are keys of the user's own: names of services and processes, and Kubernetes' fields.
NAMING_KEYS = frozenset(
    {"binds", "connects", "exposes", "starts_after", "pod_yml", "container_yml"}
)


def is_text(place: Place, key: str, inherited: bool) -> bool:
    """Whether what stands under ``key`` of the mapping at ``place`` is taken as it is written."""
    inside = _inside(place)
    if inside is None or inside == ("images",):
        return False  # the key is a name
    by_name = inside[:1] and inside[0] in NAMING_KEYS
    return inherited or (key in TEXT_KEYS and not by_name)


def is_shell(place: Place) -> bool:
    """Whether a shell reads what stands at ``place``."""
    inside = _inside(place)
    return bool(inside) and inside is not None and inside[0] in SHELL_KEYS


def is_member(place: Place) -> bool:
    """Whether a process or a group is described at ``place``."""
    return bool(place) and _inside(place) == ()


def _inside(place: Place) -> Place | None:
    """The place within the experiment, group or process that it belongs to; None among the names of members."""
    while place[:1] == ("processes",):
        if len(place) == 1:
            return None
        place = place[2:]
    return place
