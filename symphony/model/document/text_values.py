"""The values of an experiment file that are read as text."""

from __future__ import annotations

from symphony.model.document_path import USER_DEFINED_KEYS, DocumentPath, path_in_component
from symphony.model.settings.table import SETTINGS

# The YAML values below these keys are read as text, so that `yes` and `010` are not converted. The
# keys that are not settings are options of processes and images, and keys in mappings.
TEXT_KEYS = frozenset(name for name, setting in SETTINGS.items() if setting.is_text) | {
    "args",
    "build_options",
    "cmd",
    "cmds",
    "command",
    "container_image",
    "dockerfile",
    "log",
    "name",
    "parameters",
    "path",
    "preamble_cmds",
    "start_dir",
    "temp_directory",
    "value",
}


def is_text(path: DocumentPath, key: str, inherited: bool) -> bool:
    """Return whether the value of ``key`` in the mapping at ``path`` is read as text.

    ``inherited`` is true if the mapping itself is below a key whose values are read as text.
    """
    local_path = path_in_component(path)
    if local_path is None or local_path == ("images",):
        # The keys of this mapping are the names of processes or images.
        return False
    if inherited:
        return True
    has_user_defined_keys = bool(local_path) and local_path[0] in USER_DEFINED_KEYS
    return key in TEXT_KEYS and not has_user_defined_keys
