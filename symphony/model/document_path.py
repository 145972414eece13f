"""Paths to the values in an experiment document.

A document is a dictionary with the keys of an experiment file. A path leads from the root of the
document to a value. For example,
``("processes", "db", "env", "A")`` leads to the value of a variable.
"""

from __future__ import annotations

DocumentPath = tuple["str | int", ...]

SHELL_KEYS = frozenset({"cmd", "cmds", "preamble_cmds"})
_TEST_COMMANDS = (("ready", "command"), ("healthy", "command"))
# At these paths, a string is a shell line, and a list is a program with its arguments.
_LINES_OR_PROGRAMS = (*_TEST_COMMANDS, ("stop_command",))
# The values below these keys can contain addresses; see
# `symphony.model.experiment.address_references`.
ADDRESS_KEYS = SHELL_KEYS | {"args", "command", "env", "stop_command"}
# The key for the number of replicas of a process or group, and a synonym for it.
REPLICAS, COUNT = "replicas", "count"
# The key for the number of ranks of a process, and the setting of each rank.
RANKS, RANK_OF = "ranks", "rank_of"
REPLICA_KEYS = (REPLICAS, COUNT, RANKS)
# The keys in the mappings below these keys are the user's choice: names of services or processes,
# or fields of Kubernetes objects. A key such as `name` has no special meaning there.
USER_DEFINED_KEYS = frozenset(
    {"binds", "connects", "exposes", "starts_after", "pod_yml", "container_yml"}
)
# The values below these keys are fields of Kubernetes objects.
KUBERNETES_KEYS = frozenset({"pod_yml", "container_yml"})


def can_be_composed_number(path: DocumentPath) -> bool:
    """Return whether the value at ``path`` can be an integer that consists of digits and
    references, such as the port ``800${index}``.

    An integer in a setting that requires text is converted to the same text. However, a field
    of a Kubernetes object can require text, such as an annotation.
    """
    local_path = path_in_component(path)
    if not local_path:
        return False
    return local_path[0] not in KUBERNETES_KEYS


def is_shell_line(path: DocumentPath) -> bool:
    """Return whether the value at ``path`` is run by a shell."""
    local_path = path_in_component(path)
    if not local_path:
        return False
    return local_path[0] in SHELL_KEYS or local_path in _LINES_OR_PROGRAMS


def takes_addresses(path: DocumentPath) -> bool:
    """Return whether the value at ``path`` can contain the addresses of services."""
    local_path = path_in_component(path)
    if not local_path:
        return False
    return local_path[0] in ADDRESS_KEYS or local_path[:2] in _TEST_COMMANDS


def is_component(path: DocumentPath) -> bool:
    """Return whether ``path`` leads to the description of a process or a group."""
    return path != () and path_in_component(path) == ()


def path_in_component(path: DocumentPath) -> DocumentPath | None:
    """Return ``path`` relative to the innermost process, group or experiment that it leads into.

    Return None if ``path`` leads to a ``processes`` mapping.
    """
    while path[:1] == ("processes",):
        if len(path) == 1:
            return None
        path = path[2:]
    return path
