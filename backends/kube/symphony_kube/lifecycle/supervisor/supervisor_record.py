"""The supervisor's record: what a supervisor must know about the decisions of its predecessors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from symphony_kube.lifecycle.supervisor.run import SupervisedRun
from symphony_kube.record.creation_problems import Problem, decode_problems, encode_problems
from symphony_kube.record.ending import StoppedProcesses, decode_ending, encode_ending
from symphony_kube.render import codec

if TYPE_CHECKING:
    from symphony.usage import ExperimentUsage


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """The latest restart of the whole experiment.

    ``number`` is the number of restarts until now, and 0 before the first one. ``start`` is the
    time at which the processes are started again, in seconds since the epoch. ``in_row`` is the
    number of restarts that count for the delay of the next one. ``reason`` is the reason.
    """

    number: int = 0
    start: float = 0.0
    in_row: int = 0
    reason: str = ""


FIRST_ROUND = Round()


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """Facts that cannot be observed in the cluster.

    ``created`` contains the units that have been created. If one of them does not exist, its Pod
    was deleted. It is created again only after a disruption, unless it is in ``ended``, which
    contains the units that had ended by themselves; see `facts.find_ended`. ``problems``
    contains the units that could not be created. ``ending`` contains the processes that are
    stopped, once the end of the experiment has been decided. ``round`` is the latest restart of the
    experiment. ``revision`` is that of the description from which the supervisor works; see
    `SupervisedRun`.
    """

    created: frozenset[str] = frozenset()
    ended: frozenset[str] = frozenset()
    problems: Mapping[str, Problem] = field(default_factory=dict)
    ending: StoppedProcesses | None = None
    round: Round = FIRST_ROUND
    revision: int = 0


EMPTY_RECORD = Record()


class RecordChanged(Exception):
    """Raised if another supervisor has changed the record since it was read."""


class RunGone(Exception):
    """Raised if the run no longer exists, because it was deleted or replaced, or if another
    supervisor has taken it over.
    """


class UsageStore(Protocol):
    """The place where the recorded resource use of a run is stored."""

    @property
    def latest(self) -> float:
        """The time of the latest sample in seconds since the epoch, or 0 if there is none."""
        ...

    def append(self, sample: ExperimentUsage) -> None:
        """Add a sample. Raises `BackendError` or OSError if it cannot be stored."""
        ...

    def flush(self) -> None:
        """Store the samples that are not stored yet. Raises `BackendError` or OSError."""
        ...


class RecordStore(Protocol):
    """The place where a record and the description of its run are stored."""

    def current_run(self, run: SupervisedRun) -> SupervisedRun:
        """Return the latest description of a run.

        Raises `RunGone` if the run does not exist, or if another supervisor has taken it over.
        """
        ...

    def still_exists(self, run: SupervisedRun) -> bool:
        """Return whether a run without Pods is known not to be deleted, or about to be."""
        ...

    def is_abandoned(self, run: SupervisedRun, failing_seconds: float) -> bool:
        """Return whether a supervisor ends that has not reached the run for ``failing_seconds``."""
        ...

    def read(self) -> Record:
        """Return the record. Raises `RunGone`."""
        ...

    def write(self, record: Record) -> None:
        """Replace the record that was read or written last.

        Raises `RecordChanged` if another supervisor has replaced it, and `RunGone`.
        """
        ...

    def open_usage(self, run: SupervisedRun) -> UsageStore:
        """Return the place for the resource use. Raises `BackendError` if there is none."""
        ...


class RecordBook:
    """The present record of a run, which is stored whenever it changes."""

    def __init__(self, store: RecordStore) -> None:
        self._store = store
        self.record = store.read()

    def write(self, record: Record) -> None:
        """Store a record if it differs from the present one; see `RecordStore.write`."""
        if record != self.record:
            self._store.write(record)
            self.record = record


@dataclass(frozen=True, slots=True, kw_only=True)
class _StoredRecord:
    """A record as it is stored. Earlier versions do not store all of these fields."""

    created: tuple[str, ...] = ()
    ended: tuple[str, ...] = ()
    problems: str = ""
    ending: str = ""
    round: dict[str, Any] = field(default_factory=dict)
    revision: int = 0


def encode_record(record: Record) -> str:
    """Encode a record as text."""
    stored = _StoredRecord(
        created=tuple(sorted(record.created)),
        ended=tuple(sorted(record.ended)),
        problems=encode_problems(record.problems),
        ending="" if record.ending is None else encode_ending(record.ending),
        round=asdict(record.round),
        revision=record.revision,
    )
    return codec.to_text(asdict(stored))


def decode_record(text: str) -> Record:
    """Decode a record that `encode_record` encoded. An empty text is an empty record.

    Raises ValueError if the text is damaged.
    """
    if not text:
        return Record()
    stored = codec.build(_StoredRecord, codec.from_text(text))
    return Record(
        created=frozenset(stored.created),
        ended=frozenset(stored.ended),
        problems=decode_problems(stored.problems),
        ending=decode_ending(stored.ending),
        round=codec.build(Round, stored.round),
        revision=stored.revision,
    )
