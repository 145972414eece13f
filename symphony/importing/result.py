"""The result of an import: an experiment, and what it leaves out."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Omission:
    """A part of the imported file that the experiment does not contain, or changes.

    ``where`` contains the keys that lead to it, ``problem`` is the reason, and ``fix`` is what the
    user can do. Neither text ends with a full stop.
    """

    where: str
    problem: str
    fix: str

    def to_dict(self) -> dict[str, str]:
        """Return the omission as a dictionary of JSON-serializable values."""
        return {"where": self.where, "problem": self.problem, "fix": self.fix}

    def __str__(self) -> str:
        return f"{self.where}: {self.problem}; {self.fix}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """The experiment as a dictionary with the keys of an experiment file, and the omissions."""

    document: dict[str, Any]
    omissions: list[Omission] = field(default_factory=list)

    def omit(self, where: str, problem: str, fix: str = "nothing to do") -> None:
        """Add an omission."""
        self.omissions.append(Omission(where=where, problem=problem, fix=fix))
