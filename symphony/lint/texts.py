"""The strings that an experiment passes to programs, such as arguments and shell lines."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from symphony.model import Experiment, Process
    from symphony.model.document_path import DocumentPath

START_DIR = "start_dir"
# An option with its value in one word, such as --bind=localhost:80.
_OPTION_WITH_VALUE = re.compile(r"(--?\w[\w.-]*)[=\s]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """A string that applies to a process.

    ``path`` leads to the string in the experiment document; see `symphony.model.document_path`.
    ``key`` is ``command``, ``args``, ``cmds``, ``preamble_cmds``, ``start_dir`` or ``env``.
    ``option`` is the command-line option before an argument or in it, the name of an environment
    variable, or empty.
    """

    content: str
    key: str
    path: DocumentPath
    option: str = ""


def texts(experiment: Experiment, process: Process) -> Iterator[Text]:
    """Yield all strings that apply to a process: those of the experiment, the group and the
    process.
    """
    levels: list[tuple[DocumentPath, str | None, list[str]]] = [
        ((), experiment.start_dir, experiment.preamble_cmds)
    ]
    group = process.group
    if group is not None:
        levels.append((group.document_path, group.start_dir, group.preamble_cmds))
    levels.append((process.document_path, process.start_dir, process.preamble_cmds))
    for path, start_dir, preamble_cmds in levels:
        if start_dir:
            yield Text(content=start_dir, key=START_DIR, path=(*path, START_DIR))
        for index, line in enumerate(preamble_cmds):
            yield Text(content=line, key="preamble_cmds", path=(*path, "preamble_cmds", index))
    yield from _program(process)
    yield from _variables(experiment, process)


def _program(process: Process) -> Iterator[Text]:
    option = ""
    for key, words in (("command", process.command), ("args", process.args)):
        for index, word in enumerate(words or ()):
            path = (*process.document_path, key, index)
            own = _OPTION_WITH_VALUE.match(word)
            yield Text(content=word, key=key, path=path, option=own[1] if own else option)
            # The next word can be the value of this option.
            option = word if word.startswith("-") and own is None else ""
    for index, line in enumerate(process.cmds or ()):
        yield Text(content=line, key="cmds", path=(*process.document_path, "cmds", index))


def _variables(experiment: Experiment, process: Process) -> Iterator[Text]:
    """Yield a process's environment variables, each with the value that takes precedence."""
    levels: list[tuple[DocumentPath, dict[str, str]]] = [((), experiment.env)]
    if process.group is not None:
        levels.append((process.group.document_path, process.group.settings.env))
    levels.append((process.document_path, process.settings.env))
    variables: dict[str, Text] = {}
    for path, env in levels:
        for name, value in env.items():
            variables[name] = Text(content=value, key="env", path=(*path, "env", name), option=name)
    yield from variables.values()
