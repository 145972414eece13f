"""The findings of ``symphony check`` and their positions in the experiment file."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from symphony.commandline.commands.experiment_file.file_positions import (
    POSITION_PATTERN,
    UNKNOWN_POSITION,
    Position,
    position_finder,
    position_from,
)
from symphony.commandline.exit_codes import FAILED, OK, one_line
from symphony.commandline.output.terminal import RESET, STATE_COLOURS, has_colour
from symphony.commandline.parsing.backend_options import ALL_BACKENDS
from symphony.errors import PluginError, SpecError, dotted
from symphony.lint import ERROR, NOTE, WARNING, Finding, Target, lint
from symphony.lint.literals import Machine
from symphony.support.directories.home import home_directory
from symphony.support.escapes import escape
from symphony.support.names import join_names

if TYPE_CHECKING:
    from symphony.cluster import Cluster
    from symphony.model import Experiment
    from symphony.model.document.load import LoadResult

_LEVEL_COLOURS = {
    ERROR: STATE_COLOURS["failed"],
    WARNING: STATE_COLOURS["pending"],
    NOTE: STATE_COLOURS["running"],
}


class CheckReport:
    """The findings for one experiment file and one or more backends."""

    def __init__(
        self,
        path: Path,
        backends: Sequence[str],
        open_cluster: Callable[[str], Cluster],
        *,
        is_thorough: bool,
    ) -> None:
        """Open a cluster for each backend.

        If ``backends`` contains ``"all"``, the report covers every installed backend that can be
        used. If ``is_thorough`` is true, checks may run programs on the nodes of a cluster. Raises
        `PluginError` if a requested backend cannot be used.
        """
        self._path = path
        self._open_cluster = open_cluster
        self._is_thorough = is_thorough
        self.findings: list[tuple[Position, Finding]] = []
        self.experiment: str | None = None
        if ALL_BACKENDS in backends:
            self.targets = self._installed_targets()
        else:
            self.targets = self._requested_targets(backends)

    def collect(self, load: Callable[[], LoadResult], *, offline: bool) -> None:
        """Load the experiment, and collect all findings.

        The findings are sorted by position if the positions of all findings are known.

        If ``load`` raises `SpecError`, only this error is collected. Otherwise, the rules check the
        valid parts of the experiment.
        """
        try:
            result = load()
        except SpecError as exc:
            self.findings.append(self._load_error(exc))
            return
        found = [self._load_error(error) for error in result.errors]
        if result.experiment is not None:
            self.experiment = result.experiment.name
            found += self._apply_rules(result.experiment, result.errors, offline=offline)
        if all(position.line for position, _ in found):
            found.sort(key=lambda item: (item[0].line or 0, item[0].column or 0))
        self.findings += found

    def _apply_rules(
        self, experiment: Experiment, load_errors: Sequence[SpecError], *, offline: bool
    ) -> list[tuple[Position, Finding]]:
        base_directory = experiment.base_dir or Path.cwd()
        machine = Machine(
            home=str(home_directory()),
            base=str(base_directory),
            exists=lambda path: Path(path).exists(),
        )
        findings = lint(
            experiment,
            self.targets,
            machine=machine,
            offline=offline,
            thorough=self._is_thorough,
            load_errors=load_errors,
        )
        if not findings:
            return []
        # This reads the file again.
        position_of = position_finder(self._path)
        return [(position_of(finding.path), finding) for finding in findings]

    def _requested_targets(self, backends: Sequence[str]) -> list[Target]:
        from symphony.cluster.plugins import find_backend

        names = dict.fromkeys(find_backend(backend).name for backend in backends)
        return [Target(name, self._open_cluster(name)) for name in names]

    def _installed_targets(self) -> list[Target]:
        """Return the installed backends that can be used, and add a note for each of the others."""
        from symphony.cluster.plugins import installed_backends

        targets = []
        for info in installed_backends():
            try:
                targets.append(Target(info.name, self._open_cluster(info.name)))
            except PluginError as exc:
                finding = Finding(
                    rule="target",
                    level=NOTE,
                    problem=one_line(f"the {info.name} backend was not checked: {exc}"),
                    targets=(info.name,),
                )
                self.findings.append((UNKNOWN_POSITION, finding))
        return targets

    def _load_error(self, error: SpecError) -> tuple[Position, Finding]:
        """Return the position of a load error, and a finding whose message omits the position."""
        text = one_line(str(error))
        position = UNKNOWN_POSITION
        rest = text.removeprefix(str(self._path))
        match = POSITION_PATTERN.match(rest)
        if match is not None and rest != text:
            position = position_from(match)
            location = dotted(error.path)
            text = rest[match.end() :].removeprefix(f"{location}: ")
        problem, _, hint = text.partition("; ")
        finding = Finding(
            rule="file",
            level=ERROR,
            problem=problem,
            hint=hint,
            path=error.path,
            targets=tuple(target.name for target in self.targets),
        )
        return position, finding

    # --- output ---

    def exit_code(self, *, strict: bool) -> int:
        """Return 1 if there are errors or, with ``strict``, warnings. Otherwise, return 0."""
        failing = {ERROR, WARNING} if strict else {ERROR}
        has_failed = any(finding.level in failing for _, finding in self.findings)
        return FAILED if has_failed else OK

    def lines(self) -> list[str]:
        """Return one line of text for each finding."""
        colours = _LEVEL_COLOURS if has_colour(sys.stdout) else {}
        return [
            _finding_line(self._path, position, finding, colours.get(finding.level, ""))
            for position, finding in self.findings
        ]

    def summary(self) -> str:
        """Return one line with the number of findings at each level."""
        counts = _count_levels(finding for _, finding in self.findings)
        targets = join_names(target.name for target in self.targets)
        return f"{self._path}: {counts} for {targets}"

    def to_dict(self) -> dict[str, Any]:
        """Return the report as data that can be serialized as JSON."""
        levels = [finding.level for _, finding in self.findings]
        return {
            "file": str(self._path),
            "experiment": self.experiment,
            "targets": [target.name for target in self.targets],
            "errors": levels.count(ERROR),
            "warnings": levels.count(WARNING),
            "findings": [
                {**finding.to_dict(), "line": position.line, "column": position.column}
                for position, finding in self.findings
            ],
        }


def _finding_line(path: Path, position: Position, finding: Finding, colour: str) -> str:
    numbers = [str(number) for number in position if number is not None]
    location = ":".join([str(path), *numbers])
    level = f"{colour}{finding.level}{RESET}" if colour else finding.level
    processes = f"{join_names(finding.processes, limit=3)}: " if finding.processes else ""
    source = f"[{finding.rule}: {', '.join(finding.targets)}]"
    before, after = escape(f"{location}: "), escape(f": {processes}{finding.message} {source}")
    return one_line(f"{before}{level}{after}")


def _count_levels(findings: Iterable[Finding]) -> str:
    """Return the number of findings at each level as text, such as ``2 errors, 1 warning``, or ``no
    problems found`` if there are none.
    """
    levels = [finding.level for finding in findings]
    counts = []
    for level in (ERROR, WARNING, NOTE):
        number = levels.count(level)
        if number:
            plural = "" if number == 1 else "s"
            counts.append(f"{number} {level}{plural}")
    return ", ".join(counts) or "no problems found"
