"""The options with which the user has loaded an experiment from its file."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from symphony.support.hidden_values import shown_value


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenOptions:
    """The values of parameters that the user has given, and the policies that replace those of the
    file.

    ``parameters`` contains those from the environment, too, but not the values that the file
    declares. A policy that is None, or ``()`` for ``ends_with``, is that of the file. ``copy_of``
    is the name of the experiment of which this one is a copy, or None; see
    `symphony.archive.copies`.
    """

    parameters: Mapping[str, str] = field(default_factory=dict)
    ends_with: tuple[str, ...] = ()
    on_failure: str | None = None
    deadline: float | str | None = None
    copy_of: str | None = None

    @classmethod
    def from_dict(cls, data: object) -> GivenOptions:
        """Create options from the output of `to_dict`. Damaged data count as no options."""
        try:
            values = dict(data)  # type: ignore[call-overload]
            values["ends_with"] = tuple(values["ends_with"])
            values["parameters"] = dict(values["parameters"])
            return cls(**values)
        except (TypeError, ValueError, KeyError):
            return cls()

    def to_dict(self) -> dict[str, Any]:
        """Return the options as a dictionary of JSON-serializable values."""
        return {
            "parameters": dict(self.parameters),
            "ends_with": list(self.ends_with),
            "on_failure": self.on_failure,
            "deadline": self.deadline,
            "copy_of": self.copy_of,
        }

    def __bool__(self) -> bool:
        """Return whether any option is given."""
        return self != GivenOptions()

    def without(self, others: GivenOptions) -> GivenOptions:
        """Return the options that ``others`` does not set, without that of a copy, which is part
        of the name.
        """
        return GivenOptions(
            parameters={
                name: value
                for name, value in self.parameters.items()
                if name not in others.parameters
            },
            ends_with=() if others.ends_with else self.ends_with,
            on_failure=self.on_failure if others.on_failure is None else None,
            deadline=self.deadline if others.deadline is None else None,
        )

    @property
    def shown_parameters(self) -> dict[str, str]:
        """The parameters with the secrets in their values hidden."""
        return {name: shown_value(name, value) for name, value in self.parameters.items()}

    def words(self) -> str:
        """Return the options as they are written on the command line, with secrets hidden."""
        words: list[str] = []
        for name, value in self.shown_parameters.items():
            words += ["--set", f"{name}={value}"]
        if self.ends_with:
            words += ["--ends-with", ",".join(self.ends_with)]
        if self.on_failure is not None:
            words += ["--on-failure", self.on_failure]
        if self.deadline is not None:
            words += ["--deadline", str(self.deadline)]
        return shlex.join(words)
