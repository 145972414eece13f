"""The record of an experiment, as its objects and the stored copy have it. Pure."""

from __future__ import annotations

from symphony.plan.policies import Policies
from symphony_kube.record.change_log import LoggedChange
from symphony_kube.record.copies import RecordCopies, StoredRecord
from symphony_kube.record.creation_problems import Problem
from symphony_kube.record.encoded_record import NO_RECORD, EncodedRecord
from symphony_kube.record.ending import StoppedProcesses
from symphony_kube.render.codec import revision_of
from symphony_kube.render.roster import Roster
from symphony_kube.state.job_status import JobStatus
from symphony_kube.state.observed_objects import ObservedObjects
from symphony_kube.state.pod_status import PodStatus


class ObservedRecord:
    """The record of an experiment with these ``objects``.

    A supervisor passes its ``roster``, which then never changes. ``stored`` is the stored record,
    or None. ``revision`` is the number of the latest change of the experiment, and
    ``roster_revision`` that of the change that has written the known roster. ``version`` changes
    when the stored record is set, and when a roster is out of date.
    """

    def __init__(self, objects: ObservedObjects, roster: Roster | None) -> None:
        self._objects = objects
        self._is_given = roster is not None
        self._roster = roster
        self.roster_revision = 0
        self.revision = 0
        self.stored: StoredRecord | None = None
        self.version = 0

    def use_stored(self, stored: StoredRecord | None) -> None:
        """Use the stored record if no Pod and no Job has a newer one."""
        self.stored = stored
        self.version += 1
        if stored is not None:
            self.note(stored.record)

    def note(self, record: EncodedRecord) -> None:
        """Discard a roster that is older than that of ``record``, which a change has written."""
        if not record.roster:
            return
        revision = revision_of(record.roster)
        self.revision = max(self.revision, revision)
        is_newer = revision > self.roster_revision
        if is_newer and self._roster is not None and not self._is_given:
            self._roster = None
            self.version += 1

    def find_roster(self) -> Roster | None:
        """Return the newest roster, or None if neither an object nor the stored record has one."""
        if self._roster is None:
            found = self._copies().find_roster()
            if found is not None:
                self._roster, self.roster_revision = found
        return self._roster

    def policies(self) -> tuple[Policies, dict[str, str]]:
        """See `RecordCopies.policies`."""
        return self._copies().policies()

    def problems(self) -> dict[str, Problem]:
        """Return the units that the supervisor could not create."""
        objects: list[PodStatus | JobStatus] = [*self._objects.pods(), *self._objects.jobs()]
        units = {item.unit for item in objects if item.record is not NO_RECORD}
        copies = []
        for unit in units:
            # The supervisor does not change the record in the objects of earlier attempts.
            pods, job = self._objects.latest_attempt(unit)
            copies += [pod.record for pod in pods]
            copies += [job.record] if job is not None else []
        if self.stored is not None:
            copies.append(self.stored.record)
        return RecordCopies(copies).problems()

    @property
    def changes(self) -> tuple[LoggedChange, ...]:
        """The latest changes of the experiment, oldest first."""
        return self._copies().changes()

    @property
    def ending(self) -> StoppedProcesses | None:
        """The processes that the supervisor stops at the end of the experiment."""
        return self._copies().ending()

    @property
    def is_launched(self) -> bool:
        """True if the stored record is that of a complete launch."""
        return self.stored is not None and not self.stored.is_changing

    def _copies(self) -> RecordCopies:
        """Return the record as all objects have it, also those that are gone."""
        copies = [pod.record for pod in (*self._objects.pods(), *self._objects.deleted.values())]
        copies += [job.record for job in self._objects.jobs()]
        if self.stored is not None:
            copies.append(self.stored.record)
        return RecordCopies(copies)
