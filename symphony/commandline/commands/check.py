"""Checking an experiment's file: the backends to ask, and how findings are told."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from symphony.commandline.exit_codes import FAILED, OK, one_line
from symphony.commandline.output.terminal import RESET, STATE_COLOURS, has_colour
from symphony.errors import PluginError, SpecError
from symphony.lint import ERROR, NOTE, WARNING, Finding, Target, lint
from symphony.lint.literals import Machine
from symphony.model.document_path import Place
from symphony.names import join_names

if TYPE_CHECKING:
    from symphony.cluster import Cluster
    from symphony.model import Experiment

ALL = "all"
_COLOURS = {
    ERROR: STATE_COLOURS["failed"],
    WARNING: STATE_COLOURS["pending"],
    NOTE: STATE_COLOURS["running"],
}
_POSITION = re.compile(r"(?::(\d+)(?::(\d+))?)?: ")

# A line and a column, both from 1, as far as they are known.
Position = tuple["int | None", "int | None"]


class Checking:
    """One ``check``: a file, the backends that were asked for, and what was found."""

    def __init__(
        self, path: Path, asked: Sequence[str], open_cluster: Callable[[str], Cluster]
    ) -> None:
        self._path = path
        self._open = open_cluster
        self.found: list[tuple[Position, Finding]] = []
        self.experiment: str | None = None
        self.targets = self._targets(asked)

    def run(self, read: Callable[[], Experiment], *, offline: bool) -> None:
        """Find all. A file that describes no experiment is one finding, since nothing else can be seen then."""
        try:
            experiment = read()
        except SpecError as exc:
            self.found.append(self._unreadable(one_line(str(exc)), exc.path))
            return
        self.experiment = experiment.name
        position = _positions(self._path)
        base = experiment.base_dir or Path.cwd()
        machine = Machine(
            home=str(Path.home()), base=str(base), exists=lambda path: Path(path).exists()
        )
        found = [
            (position(finding.place), finding)
            for finding in self._lint(experiment, machine, offline)
        ]
        if all(line for (line, _), _ in found):
            found.sort(key=lambda pair: (pair[0][0] or 0, pair[0][1] or 0))
        self.found += found

    def _lint(self, experiment: Experiment, machine: Machine, offline: bool) -> list[Finding]:
        return lint(experiment, self.targets, machine=machine, offline=offline)

    def _targets(self, asked: Sequence[str]) -> list[Target]:
        """The backends that were asked for, or all that are installed and can be used."""
        from symphony.cluster.plugins import find_backend, installed_backends

        if asked and ALL not in asked:
            names = dict.fromkeys(find_backend(name).name for name in asked)
            return [Target(name, self._open(name)) for name in names]
        found = []
        for info in installed_backends():
            try:
                found.append(Target(info.name, self._open(info.name)))
            except PluginError as exc:
                what = f"whether it runs on {info.name} was not looked at: {exc}"
                finding = Finding(
                    rule="target", level=NOTE, what=one_line(what), targets=(info.name,)
                )
                self.found.append(((None, None), finding))
        return found

    def _unreadable(self, message: str, place: Place) -> tuple[Position, Finding]:
        rest = message.removeprefix(str(self._path))
        found = _POSITION.match(rest)
        position: Position = (None, None)
        if found is not None and rest != message:
            line, column = found.groups()
            position = (int(line) if line else None, int(column) if column else None)
            message = rest[found.end() :].removeprefix(f"{'.'.join(map(str, place))}: ")
        what, _, mend = message.partition("; ")
        names = tuple(target.name for target in self.targets)
        return position, Finding(
            rule="file", level=ERROR, what=what, mend=mend, place=place, targets=names
        )

    # --- telling ---

    def exit_code(self, *, strict: bool) -> int:
        """1 where there are errors, or with ``strict`` warnings; else 0."""
        bad = {ERROR, WARNING} if strict else {ERROR}
        return FAILED if any(finding.level in bad for _, finding in self.found) else OK

    def lines(self) -> list[str]:
        """A line for each finding."""
        paint = _COLOURS if has_colour(sys.stdout) else {}
        return [
            _line(self._path, position, finding, paint.get(finding.level, ""))
            for position, finding in self.found
        ]

    def summary(self) -> str:
        """What was found, in one line."""
        where = join_names(target.name for target in self.targets)
        return f"{self._path}: {_counted(finding for _, finding in self.found)} for {where}"

    def to_dict(self) -> dict[str, Any]:
        """All of it as JSON knows it."""
        levels = [finding.level for _, finding in self.found]
        return {
            "file": str(self._path),
            "experiment": self.experiment,
            "targets": [target.name for target in self.targets],
            "errors": levels.count(ERROR),
            "warnings": levels.count(WARNING),
            "findings": [
                {**finding.to_dict(), "line": line, "column": column}
                for (line, column), finding in self.found
            ],
        }


def _line(path: Path, position: Position, finding: Finding, colour: str) -> str:
    where = ":".join([str(path), *(str(number) for number in position if number is not None)])
    level = f"{colour}{finding.level}{RESET}" if colour else finding.level
    who = f"{join_names(finding.processes, limit=3)}: " if finding.processes else ""
    said = f"{finding.what}; {finding.mend}" if finding.mend else finding.what
    return one_line(f"{where}: {level}: {who}{said} [{finding.rule}: {', '.join(finding.targets)}]")


def _counted(findings: Iterable[Finding]) -> str:
    levels = [finding.level for finding in findings]
    parts = [f"{levels.count(level)} {level}{'' if levels.count(level) == 1 else 's'}"
             for level in (ERROR, WARNING, NOTE) if level in levels]  # fmt: skip
    return ", ".join(parts) or "nothing found"


# --- where things stand in the file ---


def _positions(path: Path) -> Callable[[Place], Position]:
    """Where a place stands in a YAML file; of other files no lines are known."""
    if path.suffix not in {".yml", ".yaml"}:
        return lambda _: (None, None)
    from symphony.model.document_path import is_text
    from symphony.model.files import from_yaml, read_text

    data, where = from_yaml(path, read_text(path), is_text)

    def position(place: Place) -> Position:
        found = _POSITION.match(where(_as_written(data, place)).removeprefix(str(path)) + ": ")
        line, column = found.groups() if found is not None else (None, None)
        return (int(line) if line else None, int(column) if column else None)

    return position


def _as_written(data: Any, place: Place) -> Place:
    """A place of the dump as the file has it: ``agent-3`` stands under ``agent``, which has a count; cmds may be cmd.

    The way ends where the file goes another one.
    """
    written: list[str | int] = []
    for step in place:
        if isinstance(data, list) and isinstance(step, int) and step < len(data):
            data = data[step]
        else:
            keys = data if isinstance(data, dict) else {}
            other = {"cmds": "cmd"}.get(str(step), re.sub(r"-\d+$", "", str(step)))
            step = next((key for key in (step, other) if key in keys), "")
            if step == "":
                break
            data = keys[step]
        written.append(step)
    return tuple(written)
