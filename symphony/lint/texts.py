"""The words of an experiment that a program will read: arguments, shell lines, variables and folders. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from symphony.lint.services import place_of
from symphony.model import Experiment, Process
from symphony.model.document_path import Place

START_DIR = "start_dir"


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """Some words that hold for a process, and where they were written.

    ``key`` says what they are: ``command``, ``args``, ``cmds``, ``preamble_cmds``, ``start_dir`` or ``env``.
    ``option`` is what stands before: the option whose value it is, or the name of the variable.
    """

    words: str
    key: str
    place: Place
    option: str = ""


def texts(experiment: Experiment, process: Process) -> Iterator[Text]:
    """All words that hold for a process: the experiment's, its group's and its own."""
    here = place_of(process)
    levels: list[tuple[Place, Experiment | Process | object]] = [((), experiment)]
    if process.group is not None:
        levels.append((("processes", process.group.name), process.group))
    levels.append((here, process))
    for place, level in levels:
        folder: str | None = getattr(level, "start_dir", None)
        if folder:
            yield Text(words=folder, key=START_DIR, place=(*place, START_DIR))
        lines: list[str] = getattr(level, "preamble_cmds", [])
        for index, line in enumerate(lines):
            yield Text(words=line, key="preamble_cmds", place=(*place, "preamble_cmds", index))
    yield from _program(process, here)
    yield from _variables(experiment, process)


def _program(process: Process, here: Place) -> Iterator[Text]:
    before = ""
    for key, words in (("command", process.command), ("args", process.args)):
        for index, word in enumerate(words or ()):
            yield Text(words=word, key=key, place=(*here, key, index), option=before)
            before = word if word.startswith("-") and "=" not in word else ""
    for index, line in enumerate(process.cmds or ()):
        yield Text(words=line, key="cmds", place=(*here, "cmds", index))


def _variables(experiment: Experiment, process: Process) -> Iterator[Text]:
    """The variables of a process, each as it is set last."""
    found: dict[str, Text] = {}
    levels: list[tuple[Place, dict[str, str]]] = [((), experiment.env)]
    if process.group is not None:
        levels.append((("processes", process.group.name), process.group.settings.env))
    levels.append((place_of(process), process.settings.env))
    for place, env in levels:
        for name, value in env.items():
            found[name] = Text(words=value, key="env", place=(*place, "env", name), option=name)
    yield from found.values()
