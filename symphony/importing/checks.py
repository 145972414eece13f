"""The check of an imported experiment, which removes the values that it cannot have."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from symphony.errors import SpecError, SymphonyError
from symphony.importing.result import Imported

Path = tuple[str | int, ...]


def finish(
    imported: Imported, keys: Mapping[str, str], section: str, names: Mapping[str, str]
) -> None:
    """Remove invalid values and unused parameters from an experiment.

    ``keys`` maps the keys of an experiment to those of the imported file, whose processes are in
    ``section``. ``names`` maps the names of processes to those in the file. Raises `SpecError` if
    the experiment is not valid without the invalid values.
    """
    _remove_errors(imported, keys, section, names)
    _remove_unused_parameters(imported.document)


def _remove_errors(
    imported: Imported, keys: Mapping[str, str], section: str, names: Mapping[str, str]
) -> None:
    while True:
        errors = _errors(imported.document)
        if not errors:
            return
        has_removed = False
        for error in errors:
            removed = _remove(imported.document, error.path)
            if removed is None:
                continue
            has_removed = True
            problem, _, fix = str(error).partition("; ")
            where = _place(removed, keys, section, names)
            imported.omit(where, problem, fix or "correct it and add it")
        if not has_removed:
            raise SpecError(f"the result is not valid: {errors[0]}")


def _errors(document: Mapping[str, Any]) -> Sequence[SpecError]:
    from symphony.model import Experiment
    from symphony.model.document.load import load_experiment

    parameters = document.get("parameters", {})
    values = {name: "1" for name, value in parameters.items() if value is None}
    try:
        return load_experiment(Experiment, document, values).errors
    except SymphonyError as exc:
        return [SpecError(str(exc))]


def _remove(document: Any, path: Path) -> Path | None:
    """Remove the value of a process to which a path leads.

    If the document does not contain the last keys of the path, the value that contains them is
    removed. Return the path of the removed value, or None if it is not a part of a process.
    """
    if len(path) < 3 or path[0] != "processes":
        return None
    parents: list[tuple[Any, str | int]] = []
    value = document
    for key in path:
        if not _contains(value, key):
            break
        parents.append((value, key))
        value = value[key]
    if len(parents) < 3:
        return None
    parent, key = parents[-1]
    del parent[key]
    removed = tuple(key for _, key in parents)
    if not parent:
        # An empty mapping or list can itself be an error.
        _remove(document, removed[:-1])
    return removed


def _contains(value: Any, key: str | int) -> bool:
    if isinstance(value, list):
        return isinstance(key, int) and key < len(value)
    return isinstance(value, dict) and key in value


def _place(path: Path, keys: Mapping[str, str], section: str, names: Mapping[str, str]) -> str:
    """Return the place in the imported file for a path in the experiment."""
    _, name, key, *rest = map(str, path)
    return ".".join([section, names.get(name, name), keys.get(key, key), *rest])


def _remove_unused_parameters(document: dict[str, Any]) -> None:
    """Remove the parameters to which no value refers, because their values were left out."""
    text = json.dumps({key: value for key, value in document.items() if key != "parameters"})
    used = set(re.findall(r"\$\{(\w+)", text))
    parameters = document.get("parameters", {})
    for name in [name for name in parameters if name not in used]:
        del parameters[name]
    # Without parameters, a dollar sign before a brace is not doubled.
    if not parameters and "$${" not in text:
        document.pop("parameters", None)
