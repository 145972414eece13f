"""The configuration files of processes: read their templates, and replace addresses in them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from symphony.errors import SpecError, SymphonyError, shown_name
from symphony.model.experiment.address_references import EACH, references
from symphony.plan.findings import Finding, finding_of
from symphony.plan.resolution.address_values import RULE as ADDRESS_RULE
from symphony.plan.resolution.address_values import ServiceNames
from symphony.support.names import join_names

if TYPE_CHECKING:
    from symphony.model import Experiment
    from symphony.model.settings.table import Settings
    from symphony.plan.resolution.address_values import ProcessValues

KEY = "configs"
RULE = "config"
# Kubernetes stores the files of a process in one ConfigMap, which can have this size. The limit is
# the same on all backends.
MAX_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class ConfigTemplates:
    """The templates of an experiment's configuration files. Each of the keys is a path as in the
    file.

    ``texts`` contains the files that were read, and ``errors`` the messages for the others.
    """

    texts: Mapping[str, str]
    errors: Mapping[str, str]

    def rendered(self, configs: Mapping[str, str], values: ProcessValues) -> dict[str, str]:
        """Return the texts of a process's files by their names."""
        return {name: _rendered(self.texts[path], values) for name, path in configs.items()}

    def services(self) -> set[str]:
        """Return the services whose addresses the templates contain."""
        return {reference.service for text in self.texts.values() for reference in references(text)}


def _rendered(template: str, values: ProcessValues) -> str:
    """Return the text of a template. A line with a reference to each replica is repeated."""
    if f".{EACH}." not in template:
        return values.text(template)
    lines: list[str] = []
    for line in template.split("\n"):
        service = next(iter(_services_of_each(line)), None)
        numbers = (None,) if service is None else values.services.numbers(service)
        lines += [values.text(line, replica=number) for number in numbers]
    return "\n".join(lines)


def _services_of_each(line: str) -> list[str]:
    """Return the services to each replica of which a line refers."""
    found = [reference.service for reference in references(line) if reference.is_each]
    return list(dict.fromkeys(found))


def read_config_templates(experiment: Experiment) -> ConfigTemplates:
    """Read the templates of an experiment's configuration files.

    Relative paths are resolved against the experiment's base directory.
    """
    texts: dict[str, str] = {}
    errors: dict[str, str] = {}
    base = experiment.base_dir or Path()
    for component in experiment.list_components():
        for path in component.settings.configs.values():
            if path in texts or path in errors:
                continue
            try:
                texts[path] = _read(base / path)
            except SymphonyError as exc:
                errors[path] = str(exc)
    return ConfigTemplates(texts, errors)


def _read(path: Path) -> str:
    from symphony.model.document.documents import read_bytes

    # A program that opens a named pipe waits for another program. The methods of Path raise an
    # error if a name is too long for the file system.
    if os.access(path, os.F_OK) and not path.is_file():
        raise SpecError(f"{shown_name(str(path))}: not a file; name a text file")
    data = read_bytes(path, MAX_BYTES)
    try:
        return data.decode()
    except UnicodeDecodeError as exc:
        raise SpecError(
            f"{shown_name(str(path))}: not UTF-8 text (byte {exc.start}); save it as UTF-8, or use "
            "volumes for other files"
        ) from exc


def check_configs(
    experiment: Experiment, settings: Mapping[str, Settings], templates: ConfigTemplates
) -> Iterator[Finding]:
    """Yield an error for each file that cannot be read, for each process with too large files, and
    for each reference in a file to a service or field that does not exist.

    ``settings`` maps process names to effective settings.
    """
    services: ServiceNames | None = None
    for component in experiment.list_components():
        for name, path in component.settings.configs.items():
            if path in templates.errors:
                problem, _, hint = templates.errors[path].partition("; ")
                yield finding_of(component, RULE, problem, hint, below=(KEY, name))
                continue
            for line, text in enumerate(templates.texts[path].split("\n"), 1):
                place, below = f"{shown_name(path)}:{line}", (KEY, name)
                for reference in references(text):
                    services = services or ServiceNames.of(experiment)
                    found = services.problem(reference, in_file=True)
                    if found is not None:
                        problem = f"{place}: {reference} {found[0]}"
                        yield finding_of(component, ADDRESS_RULE, problem, found[1], below=below)
                repeated = _services_of_each(text)
                if len(repeated) > 1:
                    problem = f"{place}: the line refers to each replica of {join_names(repeated)}"
                    hint = "write a line for each service"
                    yield finding_of(component, ADDRESS_RULE, problem, hint, below=below)
    for process in experiment.list_all_processes():
        paths = settings[process.name].configs.values()
        size = sum(len(templates.texts.get(path, "").encode()) for path in paths)
        if size > MAX_BYTES:
            yield finding_of(
                process,
                RULE,
                f"its configuration files have {size / MAX_BYTES:.2f} MiB, and the limit is 1 MiB",
                "use volumes for large files",
                below=(KEY,),
            )


def digests(configs: Mapping[str, str]) -> dict[str, str]:
    """Return a digest of the text of each file."""
    if not configs:
        return {}
    # Most processes have no such files.
    import hashlib

    return {name: hashlib.sha256(text.encode()).hexdigest() for name, text in configs.items()}


def digest(configs: Mapping[str, str]) -> str:
    """Return one digest of the names and the texts of files."""
    import hashlib

    content = hashlib.sha256()
    for name, text in sorted(digests(configs).items()):
        content.update(f"{name} {text}\n".encode())
    return content.hexdigest()
