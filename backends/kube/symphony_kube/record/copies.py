"""The copies of an experiment's record, of which some can be out of date or damaged. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from symphony.plan.policies import Policies
from symphony_kube.record.change_log import LoggedChange, decode_changes
from symphony_kube.record.creation_problems import Problem, decode_problems
from symphony_kube.record.encoded_record import NO_RECORD, EncodedRecord
from symphony_kube.record.ending import StoppedProcesses, decode_ending, decode_policies
from symphony_kube.render.codec import revision_of
from symphony_kube.render.roster import Roster, decode_roster


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRecord:
    """The record in the Secret with the description of the experiment.

    ``created`` is the time of the launch in seconds since the epoch. ``is_changing`` is true while
    a command launches or changes the experiment, and after such a command was killed.
    """

    record: EncodedRecord
    created: float | None = None
    is_changing: bool = False


class RecordCopies:
    """The copies of a record, in any order."""

    def __init__(self, copies: Iterable[EncodedRecord]) -> None:
        self._copies = {copy for copy in copies if copy is not NO_RECORD}

    def find_roster(self) -> tuple[Roster, int] | None:
        """Return the newest roster that is valid, with the number of the change that wrote it.

        Another user can have edited a roster.
        """
        texts = {copy.roster for copy in self._copies if copy.roster}
        for text in sorted(texts, key=lambda text: (-revision_of(text), text)):
            try:
                return decode_roster(text), revision_of(text)
            except ValueError:
                continue
        return None

    def policies(self) -> tuple[Policies, dict[str, str]]:
        """Return the rules for the end of the experiment, and the parameters that the user has
        given, as the latest change has written them.
        """
        return decode_policies(_newest(copy.policies for copy in self._copies))

    def changes(self) -> tuple[LoggedChange, ...]:
        """Return the latest changes of the experiment, oldest first."""
        return decode_changes(_newest(copy.changes for copy in self._copies))

    def ending(self) -> StoppedProcesses | None:
        """Return the processes that are stopped for good, or None."""
        for text in sorted({copy.ending for copy in self._copies}):
            ending = decode_ending(text)
            if ending is not None:
                return ending
        return None

    def problems(self) -> dict[str, Problem]:
        """Return the units that could not be created."""
        problems: dict[str, Problem] = {}
        for text in sorted({copy.problems for copy in self._copies if copy.problems}):
            problems.update(decode_problems(text))
        return problems


def _newest(texts: Iterable[str]) -> str:
    return max(texts, key=lambda text: (revision_of(text), text), default="")
