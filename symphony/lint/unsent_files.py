"""Rules about files next to the experiment file, which the machines of a cluster do not have."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from symphony.lint.texts import START_DIR, texts
from symphony.model.settings.code import code_source
from symphony.plan.findings import NOTE, finding_of

if TYPE_CHECKING:
    from symphony.lint.literals import Machine
    from symphony.model import Experiment, Process
    from symphony.plan.findings import Finding

# A relative path with an extension, at the beginning of a word or a value.
_FILE = re.compile(r"(?:^|(?<=[\s=;'\"(<>]))((?:\./|\.\./)*\w[\w./+-]*\.\w+)(?=$|[\s;'\")<>|&])")
_KEYS_WITH_FILES = ("command", "args", "cmds", "preamble_cmds")


def rules(experiment: Experiment, machine: Machine) -> Iterator[Finding]:
    """Yield a finding for each file of this machine that a command names without being sent."""
    for process in experiment.list_all_processes():
        if code_source(process) is None and not _is_built(experiment, process):
            yield from _local_files(experiment, process, machine)


def _is_built(experiment: Experiment, process: Process) -> bool:
    """Return whether the image of a process is built here, and can contain the files."""
    built = [image.repository for image in experiment.list_images()]
    return process.container_image in [*built, *(f"{name}:{experiment.name}" for name in built)]


def _local_files(experiment: Experiment, process: Process, machine: Machine) -> Iterator[Finding]:
    directory = machine.base
    strings = list(texts(experiment, process))
    for text in strings:
        if text.key == START_DIR:
            directory = posixpath.join(directory, text.content)
    for text in strings:
        if text.key not in _KEYS_WITH_FILES:
            continue
        where = "a shell line" if text.key in ("cmds", "preamble_cmds") else text.key
        for name in dict.fromkeys(_FILE.findall(text.content)):
            if machine.exists(posixpath.join(directory, name)):
                yield finding_of(
                    process,
                    "local-file",
                    f"{where} contains {name}, a file of this machine",
                    "if the image does not contain it, send it with the setting code",
                    path=text.path,
                    level=NOTE,
                )
