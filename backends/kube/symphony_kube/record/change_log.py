"""The changes of a running experiment: an annotation of the object with the roster. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass

from symphony.events import EventKind, ExperimentEvent, change_text
from symphony_kube.api.errors import one_line
from symphony_kube.render import codec

# The annotation contains the latest changes, because annotations together have at most 256 KiB.
MAX_CHANGES = 20
MAX_LINES = 10
MAX_LINE_CHARS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedChange:
    """One change of a running experiment.

    ``revision`` is its number, and ``lines`` are those of `symphony.plan.changes.Changes`. ``at``
    is a time in seconds since the epoch.
    """

    revision: int
    at: float
    lines: tuple[str, ...]

    def to_event(self) -> ExperimentEvent:
        """Return the event for the change."""
        return ExperimentEvent(at=self.at, kind=EventKind.CHANGED, text=change_text(self.lines))


def new_change(revision: int, at: float, lines: Iterable[str]) -> LoggedChange:
    """Return a change with lines that fit into the annotation."""
    given = [one_line(line, limit=MAX_LINE_CHARS) for line in lines]
    if len(given) > MAX_LINES:
        omitted = len(given) - MAX_LINES + 1
        given = [*given[: MAX_LINES - 1], f"and {omitted} more"]
    return LoggedChange(revision=revision, at=at, lines=tuple(given))


def encode_changes(changes: Iterable[LoggedChange]) -> str:
    """Encode the latest changes as an annotation value."""
    latest = list(changes)[-MAX_CHANGES:]
    content = [asdict(change) for change in latest]
    return codec.to_text(content)


def decode_changes(text: str) -> tuple[LoggedChange, ...]:
    """Decode an annotation that `encode_changes` encoded.

    Changes that are not valid are ignored, because other users of the namespace may be able to
    change the annotation.
    """
    if not text:
        return ()
    try:
        content = codec.from_text(codec.without_revision(text))
        if not isinstance(content, list):
            return ()
        found = [codec.build(LoggedChange, fields) for fields in content[-MAX_CHANGES:]]
    except ValueError:
        return ()
    return tuple(new_change(change.revision, change.at, change.lines) for change in found)
