"""Hide the values of secrets in the output of processes and in details about processes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TypeVar

from symphony.events import EXIT_KINDS, ExperimentEvent
from symphony.hidden_values import HiddenValues, shown_document
from symphony.log_blocks import LogBlock
from symphony.process_details import ProcessDetails

Item = TypeVar("Item")


def without_secrets(items: Iterable[Item], hidden: HiddenValues) -> Iterator[Item | LogBlock]:
    """Yield blocks of output in which the values are replaced, and all other items unchanged.

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
                kept[item.process] = replace(item, text=rest)
            if shown:
                yield replace(item, text=hidden.in_text(shown))
            continue
        if isinstance(item, ExperimentEvent) and item.kind in EXIT_KINDS:
            yield from _shown(kept.pop(item.process or "", None), hidden)
        yield item
    for block in kept.values():
        yield from _shown(block, hidden)


def _shown(block: LogBlock | None, hidden: HiddenValues) -> Iterator[LogBlock]:
    if block is not None:
        yield replace(block, text=hidden.in_text(block.text))


def details_without_secrets(details: ProcessDetails, hidden: HiddenValues) -> ProcessDetails:
    """Return details about a process in which the values are replaced.

    They can be part of its command, and of a reason that contains the last line of its output.
    """
    status = details.status
    return replace(
        details,
        status=replace(status, reason=hidden.in_text(status.reason)),
        facts=hidden.in_document(shown_document(details.facts)),
        events=tuple(replace(event, text=hidden.in_text(event.text)) for event in details.events),
    )
