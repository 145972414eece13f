"""The variables in the env files of an experiment."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from symphony.errors import SymphonyError
from symphony.model.experiment.address_references import escape
from symphony.model.settings.table import Settings
from symphony.plan.findings import ERROR, Finding, finding_of

if TYPE_CHECKING:
    from symphony.model import Experiment
    from symphony.model.document_path import DocumentPath

KEY = "env_file"


@dataclass(frozen=True, slots=True)
class EnvFiles:
    """The contents of the env files of an experiment. Each of the keys is a path as in the file.

    ``variables`` contains the files that were read, with values in which references to addresses
    are escaped, and ``errors`` the messages for the others.
    """

    variables: dict[str, dict[str, str]]
    errors: dict[str, str]

    def env(self, files: Sequence[str]) -> dict[str, str]:
        """Return the variables in several files. A later file takes precedence."""
        result: dict[str, str] = {}
        for file in files:
            result.update(self.variables.get(file, {}))
        return result

    def applied_to(self, settings: Settings) -> Settings:
        """Return settings in which ``env`` also contains the variables from the env files."""
        if not settings.env_file:
            return settings
        env = {**self.env(settings.env_file), **settings.env}
        return Settings(**{**vars(settings), "env": env, "env_file": []})


def read_env_files(experiment: Experiment) -> EnvFiles:
    """Read the env files of an experiment and of its groups and processes.

    Relative paths are resolved against the experiment's base directory.
    """
    files = [*experiment.env_file]
    for component in experiment.list_components():
        files += component.settings.env_file
    variables: dict[str, dict[str, str]] = {}
    errors: dict[str, str] = {}
    base = experiment.base_dir or Path()
    for file in dict.fromkeys(files):
        from symphony.model.document import env_files

        try:
            read = env_files.read(base / file, os.environ)
        except SymphonyError as exc:
            errors[file] = str(exc)
        else:
            # The values cannot contain references to addresses, so they are used without changes.
            variables[file] = {name: escape(value) for name, value in read.items()}
    return EnvFiles(variables, errors)


def check_env_files(experiment: Experiment, env_files: EnvFiles) -> Iterator[Finding]:
    """Yield an error for each use of an env file that cannot be read."""
    for index, file in enumerate(experiment.env_file):
        if file in env_files.errors:
            path: DocumentPath = (KEY, index)
            problem, _, hint = env_files.errors[file].partition("; ")
            yield Finding(rule="env-file", level=ERROR, problem=problem, hint=hint, path=path)
    for component in experiment.list_components():
        for index, file in enumerate(component.settings.env_file):
            if file in env_files.errors:
                problem, _, hint = env_files.errors[file].partition("; ")
                yield finding_of(component, "env-file", problem, hint, below=(KEY, index))
