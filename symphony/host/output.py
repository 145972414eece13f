"""The output and the events of an experiment, in the order in which they happened."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from symphony.events import EXIT_KINDS, EventKind, ExperimentEvent, select_events
from symphony.host import logs
from symphony.host.run.directory import RunDirectory
from symphony.host.run.event_stream import EventStream
from symphony.host.run.status import StatusReader
from symphony.log_blocks import LogBlock


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The output to read: that of the processes ``names`` since a time, or the last lines of it.

    ``since`` is in seconds since the epoch, and ``tail`` is a number of lines. With ``events``, the
    events of these processes are included, and those of the experiment if all of its processes are
    selected. With ``tail``, only new events are included.
    """

    names: Sequence[str]
    since: float | None
    tail: int | None
    follow: bool
    events: bool


def iter_output(
    run: RunDirectory,
    selection: Selection,
    *,
    status: StatusReader,
    clean: Callable[[str], str],
    ignored: logs.IgnoredLine | None,
) -> Iterator[LogBlock | ExperimentEvent]:
    """Yield the output and the events of a run.

    ``status`` reads the status of the run. ``clean`` extracts the output from a part of a log, and
    ``ignored`` is a last line that is not output; see `symphony.host.logs.start_offset`.
    """
    for item in _iter_logged(run, selection, status, ignored):
        if isinstance(item, ExperimentEvent):
            yield item
            continue
        text = clean(item.text)
        if text:
            yield item if text == item.text else replace(item, text=text)


def _iter_logged(
    run: RunDirectory,
    selection: Selection,
    status: StatusReader,
    ignored: logs.IgnoredLine | None,
) -> Iterator[LogBlock | ExperimentEvent]:
    read_events = _event_reader(run, selection, status)
    with run.report_damage(run.logs):
        # If output is followed, the lines that are written from now on come after the events that
        # are recorded from now on. Otherwise, no event is older than a line that is missing.
        lengths = logs.lengths(run, selection.names) if selection.follow else {}
        events = read_events()
        lines, tails = logs.read_merged(
            run,
            selection.names,
            since=selection.since,
            tail=selection.tail,
            ignored=ignored,
            events=events if selection.tail is None else (),
            ends=lengths,
        )
        yield from lines
        if selection.follow:
            yield from logs.follow(
                run,
                tails,
                status.end_check(selection.names),
                read_events=read_events,
                exited=_exited_processes(events),
            )
        else:
            yield from logs.incomplete_lines(tails)


def _exited_processes(events: Iterable[ExperimentEvent]) -> set[str]:
    """Return the processes that have exited and were not started again."""
    exited = set()
    for event in events:
        if event.process is None:
            continue
        if event.kind in EXIT_KINDS:
            exited.add(event.process)
        elif event.kind is EventKind.STARTED:
            exited.discard(event.process)
    return exited


def _event_reader(
    run: RunDirectory, selection: Selection, status: StatusReader
) -> Callable[[], list[ExperimentEvent]]:
    """Return a function that returns the events since the previous call."""
    if not selection.events:
        return list
    stream = EventStream(run, status)
    processes = {process["name"] for process in run.load_manifest()["processes"]}
    names = None if processes <= set(selection.names) else selection.names
    return lambda: list(select_events(stream.read_new(), names, selection.since))
