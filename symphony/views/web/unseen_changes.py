"""The changes that a viewer has not seen yet.

A viewer has a position for each channel that it observes. It receives everything that is newer than
the position, or the present state if the position is unknown or too old. The position is the
identifier of the server-sent event, which browsers send when they connect again. A viewer that was
suspended thus continues where it was, and reads no more than the present state.

The functions hold the lock of a channel while they read it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from symphony.views.web.channels import ExperimentChannel, ListChannel, OutputChannel
from symphony.views.web.messages import (
    event_row,
    experiment_header,
    experiment_row,
    output_row,
    process_row,
    usage_row,
)

# The limits of one message. A viewer that is further behind misses the oldest events and lines.
MAX_EVENTS = 500
MAX_LINES = 1_000
MAX_CHARACTERS = 512 * 1024

Message = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Position:
    """The part of a channel that a viewer has seen.

    ``version`` is the version of the model, of the list or of the output, and ``run`` is the run of
    the model. ``number`` is the number of the next event or line.
    """

    channel: str = ""
    run: int = 0
    version: int = 0
    number: int = 0

    def __str__(self) -> str:
        return f"{self.channel}.{self.run}.{self.version}.{self.number}"


@dataclass(frozen=True, slots=True)
class Positions:
    """The positions of one viewer: in an experiment or the list, and in the output."""

    state: Position = Position()
    output: Position = Position()

    def __str__(self) -> str:
        return f"{self.state}~{self.output}"


def parse_positions(text: str) -> Positions:
    """Return the positions that a browser has sent, or those of a new viewer if damaged."""
    try:
        state, output = text.split("~")
        return Positions(_parse_position(state), _parse_position(output))
    except ValueError:
        return Positions()


def _parse_position(text: str) -> Position:
    channel, run, version, number = text.split(".")
    return Position(channel, int(run), int(version), int(number))


def list_changes(channel: ListChannel, position: Position) -> tuple[Message | None, Position]:
    """Return the experiments if they have changed, and the new position."""
    with channel.lock:
        watched, version = channel.watched, channel.version
    new = Position(channel.identity, 0, version)
    if watched is None or new == position:
        return None, position
    rows = [experiment_row(status) for status in watched.statuses]
    return {"experiments": rows, "outage": watched.outage}, new


def experiment_changes(
    channel: ExperimentChannel, position: Position
) -> tuple[Message | None, Position]:
    """Return what has changed in an experiment, and the new position."""
    with channel.lock:
        model = channel.model
        is_new = (position.channel, position.run) != (channel.identity, model.run)
        if is_new:
            position = Position(channel.identity, model.run, 0, 0)
        seen = position.version
        if not is_new and model.version == seen:
            return None, position
        versions = model.versions
        message: Message = {"reset": is_new}
        if is_new or max(versions.status, versions.outage) > seen:
            message["experiment"] = experiment_header(model)
            message["names"] = [process.name for process in model.status or ()]
        changed = model.changed_processes(seen)
        if changed:
            message["processes"] = [process_row(process) for process in changed]
        if is_new or versions.topology > seen:
            message["topology"] = channel.picture
        number = position.number
        if versions.events > seen:
            events = model.events_since(number)
            message["events"] = [event_row(numbered) for numbered in events[-MAX_EVENTS:]]
            message["first_event"] = model.first_event
            number = events[-1].number + 1 if events else number
        if versions.usage > seen:
            latest = [history.latest for history in model.usage.values()]
            message["usage"] = [usage_row(usage) for usage in latest if usage is not None]
            message["usage_at"] = max(
                (history.samples[-1].at for history in model.usage.values()), default=None
            )
            message["usage_unavailable"] = dict(model.usage_unavailable)
        return message, replace(position, version=model.version, number=number)


def output_changes(
    channel: OutputChannel, position: Position, first_lines: int
) -> tuple[Message | None, Position]:
    """Return the new lines of output, and the new position.

    A new viewer receives at most ``first_lines`` lines, and other viewers at most `MAX_LINES`.
    """
    with channel.lock:
        tail = channel.tail
        is_new = position.channel != channel.identity
        limit = first_lines if is_new else MAX_LINES
        has_ended = channel.has_ended
        new = Position(channel.identity, 0, channel.version, tail.end)
        if new == position:
            return None, position
        begun = tail.incomplete
        start = max(tail.first, tail.end - limit, 0 if is_new else position.number)
        lines = tail.lines(start, tail.end)
    size = 0
    for index in range(len(lines) - 1, -1, -1):
        size += len(lines[index].text)
        if size > MAX_CHARACTERS:
            start += index + 1
            lines = lines[index + 1 :]
            break
    message: Message = {
        "reset": is_new,
        "first": start,
        # The number of lines that the viewer has missed.
        "skipped": start if is_new else max(0, start - position.number),
        "lines": [output_row(line) for line in lines],
        # The lines that are still being written, such as progress bars.
        "begun": [output_row(line) for line in begun],
        "ended": has_ended,
    }
    return message, new
