"""Hide the values of secrets in the output of processes and in details about processes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from symphony.events import EXIT_KINDS, ExperimentEvent
from symphony.log_blocks import LogBlock
from symphony.process_details import ProcessDetails
from symphony.support.hidden_values import HiddenValues, shown_document

if TYPE_CHECKING:
    from symphony.cluster import Cluster
    from symphony.status import ExperimentStatus, ProcessStatus

Item = TypeVar("Item")


def without_secrets(
    items: Iterable[Item], hidden: HiddenValues
) -> Iterator[Item | LogBlock | ExperimentEvent]:
    """Yield blocks of output and events in which the values are replaced, and all other items.

    A process can write a value in several parts. If its output ends like the start of a value, this
    end is kept until the next block of the process or its exit.
    """
    if not hidden:
        yield from items
        return
    kept: dict[str, LogBlock] = {}
    for item in items:
        if isinstance(item, LogBlock):
            before = kept.pop(item.process, None)
            text = item.text if before is None else before.text + item.text
            shown, rest = hidden.split_at_start(text)
            if rest:
                kept[item.process] = item._replace(text=rest)
            if shown:
                yield item._replace(text=hidden.in_text(shown))
            continue
        if not isinstance(item, ExperimentEvent):
            yield item
            continue
        if item.kind in EXIT_KINDS:
            yield from _shown(kept.pop(item.process or "", None), hidden)
        yield from events_without_secrets([item], hidden)
    for block in kept.values():
        yield from _shown(block, hidden)


def _shown(block: LogBlock | None, hidden: HiddenValues) -> Iterator[LogBlock]:
    if block is not None:
        yield block._replace(text=hidden.in_text(block.text))


def shown_status(cluster: Cluster, status: ExperimentStatus) -> ExperimentStatus:
    """Return a status as views show it, with the secrets in its note and its reasons hidden.

    They can contain output, such as the last line of a readiness test.
    """
    return status_without_secrets(status, lambda: cluster.hidden_values(status.name))


def status_without_secrets(
    status: ExperimentStatus, find_hidden: Callable[[], HiddenValues]
) -> ExperimentStatus:
    """Return a status in which the values are replaced in the note and the reasons.

    ``find_hidden`` is only called if there is a note or a reason.
    """
    if not status.note and not any(process.reason for process in status):
        return status
    hidden = find_hidden()
    if not hidden:
        return status
    processes = [_shown_process(process, hidden) for process in status]
    return replace(status, note=hidden.in_text(status.note), processes=tuple(processes))


def _shown_process(process: ProcessStatus, hidden: HiddenValues) -> ProcessStatus:
    if not process.reason:
        return process
    reason, result = hidden.in_text(process.reason), hidden.in_text(process.test_result)
    return replace(process, reason=reason, test_result=result)


def events_without_secrets(
    events: Iterable[ExperimentEvent], hidden: HiddenValues
) -> Iterator[ExperimentEvent]:
    """Yield events in whose texts the values are replaced. An exit has a reason, for example."""
    for event in events:
        yield replace(event, text=hidden.in_text(event.text)) if hidden else event


def details_without_secrets(details: ProcessDetails, hidden: HiddenValues) -> ProcessDetails:
    """Return details about a process in which the values are replaced.

    They can be part of its command, and of a reason that contains the last line of its output.
    """
    return replace(
        details,
        status=_shown_process(details.status, hidden),
        facts=hidden.in_document(shown_document(details.facts)),
        events=tuple(replace(event, text=hidden.in_text(event.text)) for event in details.events),
    )
