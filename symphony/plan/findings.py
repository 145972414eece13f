"""Problems in an experiment's description that the planning and lint rules report."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from symphony.errors import SpecError
from symphony.model import Process
from symphony.support.names import did_you_mean

if TYPE_CHECKING:
    from symphony.model import ProcessGroup
    from symphony.model.document_path import DocumentPath

ERROR, WARNING, NOTE = "error", "warning", "note"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One problem that a rule reports.

    An ``error`` prevents the launch or makes the experiment fail, a ``warning`` reports a problem
    that can have these effects, and a ``note`` reports a check that was skipped or is not possible.
    ``problem`` describes the problem, and ``hint`` describes how to fix it or is empty. Neither
    text ends with a full stop. ``path`` contains the keys that lead to the value in an experiment
    file. ``processes`` contains the paths of the processes or groups that have the problem, and is
    empty if the whole experiment has the problem. ``kind`` is ``process`` or ``group`` if a process
    or a group has the problem. ``targets`` contains the backends on which the problem exists.
    """

    rule: str
    level: str
    problem: str
    hint: str = ""
    path: DocumentPath = ()
    processes: tuple[str, ...] = ()
    kind: str = field(default="", compare=False)
    targets: tuple[str, ...] = ()

    @property
    def message(self) -> str:
        """The problem and the hint on one line."""
        return f"{self.problem}; {self.hint}" if self.hint else self.problem

    def for_target(self, target: str) -> Finding:
        """Return a copy of the finding for one backend."""
        return replace(self, targets=(target,))

    def to_error(self) -> SpecError:
        """Return the error that reports the finding."""
        if not self.processes:
            return SpecError(self.message, path=self.path)
        subject = f"{self.kind} {self.processes[0]!r}".lstrip()
        return SpecError(f"{subject}: {self.message}", path=self.path)

    def to_dict(self) -> dict[str, Any]:
        """Return the finding as a dictionary of JSON-serializable values."""
        return {
            "rule": self.rule,
            "level": self.level,
            "targets": list(self.targets),
            "processes": list(self.processes),
            "place": list(self.path),
            "what": self.problem,
            "mend": self.hint,
        }


def finding_of(
    component: Process | ProcessGroup,
    rule: str,
    problem: str,
    hint: str = "",
    *,
    below: DocumentPath = (),
    path: DocumentPath | None = None,
    level: str = ERROR,
) -> Finding:
    """Return a finding about one process or group.

    If ``path`` is not given, the finding's path is the component's path followed by ``below``.
    """
    return Finding(
        rule=rule,
        level=level,
        problem=problem,
        hint=hint,
        path=(*component.document_path, *below) if path is None else path,
        processes=(component.path,),
        kind="process" if isinstance(component, Process) else "group",
    )


def suggestion(name: str, known: Iterable[str]) -> str:
    """Return ``did you mean 'x'?`` as a hint, or ``""`` if no known name is similar."""
    return did_you_mean(name, known).removeprefix("; ")
