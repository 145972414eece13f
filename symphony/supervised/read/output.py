"""The output and the events of an experiment, in the order in which they happened."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

from symphony.cluster.backend import Selection
from symphony.errors import NotFound
from symphony.events import EXIT_KINDS, EventKind, ExperimentEvent, select_events
from symphony.log_blocks import LogBlock
from symphony.supervised.read import log_files
from symphony.supervised.record.directory import RunDirectory
from symphony.supervised.record.event_stream import EventStream
from symphony.supervised.record.status import StatusReader


def iter_output(
    run: RunDirectory,
    selection: Selection,
    *,
    status: StatusReader,
    clean: Callable[[str], str],
    ignored: log_files.IgnoredLine | None,
) -> Iterator[LogBlock | ExperimentEvent]:
    """Yield the output and the events of a run.

    ``status`` reads the status of the run. ``clean`` extracts the output from a part of a log, and
    ``ignored`` is a last line that is not output; see
    `symphony.supervised.read.log_files.start_offset`.
    """
    # A name that selects no process is an error before the iteration.
    names = selection.names
    logged = _iter_logged(run, selection, names, status, ignored)
    return _cleaned(logged, clean)


def _cleaned(
    items: Iterable[LogBlock | ExperimentEvent], clean: Callable[[str], str]
) -> Iterator[LogBlock | ExperimentEvent]:
    for item in items:
        if isinstance(item, ExperimentEvent):
            yield item
            continue
        text = clean(item.text)
        if text:
            yield item if text == item.text else item._replace(text=text)


def _iter_logged(
    run: RunDirectory,
    selection: Selection,
    names: Sequence[str],
    status: StatusReader,
    ignored: log_files.IgnoredLine | None,
) -> Iterator[LogBlock | ExperimentEvent]:
    joining = _JoiningProcesses(run, selection)
    read_events = _event_reader(run, selection, joining.names, status)
    with run.report_damage(run.logs):
        # If output is followed, the lines that are written from now on come after the events that
        # are recorded from now on. Otherwise, no event is older than a line that is missing.
        lengths = log_files.lengths(run, names) if selection.follow else {}
        events = read_events()
        exited = _exited_processes(events)
        # These processes can have exited after the lengths of their logs were read. All of their
        # lines come before their exits.
        lengths.update(log_files.lengths(run, exited.intersection(lengths)))
        lines, tails = log_files.read_merged(
            run,
            names,
            since=selection.since,
            tail=selection.tail,
            ignored=ignored,
            events=events if selection.tail is None else (),
            ends=lengths,
        )
        yield from lines
        if selection.follow:
            yield from log_files.follow(
                run,
                tails,
                status.end_check(joining.names),
                read_events=read_events,
                exited=exited,
                find_new=joining.find_new,
            )
        else:
            yield from log_files.incomplete_lines(tails)


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


class _JoiningProcesses:
    """The processes whose output is followed, which changes of the experiment can add to.

    ``names`` maps their names to True, and is extended by `find_new`.
    """

    def __init__(self, run: RunDirectory, selection: Selection) -> None:
        self._run = run
        self._selection = selection
        # The names were selected earlier, so the first call selects them again.
        self._stamp: tuple[int, int] | None = None
        self.names = dict.fromkeys(selection.names, True)

    def find_new(self) -> dict[str, log_files.LogTail]:
        """Return readers for the logs of the selected processes that were added since the previous
        call.
        """
        stamp = self._run.stamp()
        if stamp in (self._stamp, None):
            return {}
        self._stamp = stamp
        try:
            selected = self._selection.find_names()
        except NotFound:
            # The experiment was deleted, or a change has removed the processes.
            return {}
        new = [name for name in selected if name not in self.names]
        self.names.update(dict.fromkeys(new, True))
        return {name: log_files.LogTail(self._run.log(name)) for name in new}


def _event_reader(
    run: RunDirectory, selection: Selection, names: Collection[str], status: StatusReader
) -> Callable[[], list[ExperimentEvent]]:
    """Return a function that returns the events of the processes ``names`` since the previous call.

    The caller can add names to ``names`` later.
    """
    if not selection.events:
        return list
    stream = EventStream(run, status)
    processes = {process["name"] for process in run.load_manifest()["processes"]}
    are_all = processes <= set(names)
    return lambda: list(
        select_events(stream.read_new(), None if are_all else names, selection.since)
    )
