"""The record of an experiment as it is stored. Pure.

The Secret with the description contains it. Every reader of the status finds a copy of it in the
annotations of the first Pod or Job of the experiment.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from symphony.plan.policies import Policies
from symphony_kube.api import labels
from symphony_kube.record.change_log import LoggedChange, encode_changes
from symphony_kube.record.creation_problems import Problem, encode_problems
from symphony_kube.record.ending import StoppedProcesses, encode_ending, encode_policies
from symphony_kube.render import codec
from symphony_kube.render.roster import Roster, encode_roster


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodedRecord:
    """The encoded entries of a record, or some of them. A missing entry is ``""``.

    A launch or a change of the experiment writes these entries, with its number:

    * ``roster``: all processes; see `symphony_kube.render.roster`.
    * ``policies``: the rules for the end of the experiment, and the parameters of the user.
    * ``changes``: the latest changes; see `symphony_kube.record.change_log`.

    The supervisor writes the others, and a command that stops the experiment writes ``ending``:

    * ``problems``: the units that could not be created; see
      `symphony_kube.record.creation_problems`.
    * ``ending``: the processes that are stopped for good; see `symphony_kube.record.ending`.
    """

    roster: str = ""
    policies: str = ""
    changes: str = ""
    problems: str = ""
    ending: str = ""

    def annotations(self) -> dict[str, str]:
        """Return the entries as annotations."""
        found = {}
        for annotation, name in _FIELDS.items():
            text = getattr(self, name)
            if text:
                found[annotation] = text
        return found


NO_RECORD = EncodedRecord()

# The fields by the annotations that contain them.
_FIELDS: Mapping[str, str] = MappingProxyType(
    {
        labels.ROSTER: "roster",
        labels.POLICIES: "policies",
        labels.CHANGES: "changes",
        labels.PROBLEMS: "problems",
        labels.ENDING: "ending",
    }
)


def record_in(annotations: Mapping[str, str]) -> EncodedRecord:
    """Return the record in the annotations of an object, which has no entries in most objects."""
    found = {}
    for annotation, name in _FIELDS.items():
        if annotation in annotations:
            found[name] = annotations[annotation]
    return EncodedRecord(**found) if found else NO_RECORD


def record_of_launch(
    roster: Roster, policies: Policies, parameters: Mapping[str, str]
) -> EncodedRecord:
    """Return the record of an experiment that has not been changed."""
    text = ""
    if policies.names or parameters:
        text = encode_policies(policies, parameters)
    return EncodedRecord(roster=encode_roster(roster), policies=text)


def record_of_change(
    revision: int,
    roster: Roster,
    policies: Policies,
    parameters: Mapping[str, str],
    changes: Iterable[LoggedChange],
) -> EncodedRecord:
    """Return the entries that a change of the experiment writes. ``revision`` is its number."""
    return EncodedRecord(
        roster=codec.with_revision(encode_roster(roster), revision),
        policies=codec.with_revision(encode_policies(policies, parameters), revision),
        changes=codec.with_revision(encode_changes(changes), revision),
    )


def record_of_problems(problems: Mapping[str, Problem]) -> EncodedRecord:
    """Return the entry with the units that could not be created."""
    return EncodedRecord(problems=encode_problems(problems))


def record_of_ending(ending: StoppedProcesses) -> EncodedRecord:
    """Return the entry with the processes that are stopped for good."""
    return EncodedRecord(ending=encode_ending(ending))
