"""The messages of the server to the page: parts of the model as dictionaries for JSON.

All functions are pure. Texts of processes, such as names, reasons and lines of output, are sent
unchanged. The page shows them as text.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from symphony.drawing.layout import Rect
from symphony.drawing.picture import Box, arrange
from symphony.plan.topology import Topology, folded, tally
from symphony.process_details import ProcessDetails
from symphony.status import ExperimentStatus, ProcessStatus
from symphony.usage import ProcessUsage
from symphony.views.controls import Control
from symphony.views.experiment_model import ExperimentModel, NumberedEvent, attention
from symphony.views.output_tail import OutputLine
from symphony.views.usage_history import UsageHistory

# The longest text that the page writes into the box of one process below its name.
_WIDEST_STATE = "running, not ready"


def control(name: str, declared: Control) -> dict[str, Any]:
    """Return a control that the page offers."""
    entry = declared.entry
    return {
        "action": name,
        "help": declared.help,
        "whole_experiment": declared.whole_experiment,
        "effective_for": declared.effective_for,
        "entry": entry
        and {
            "label": entry.label,
            "hint": entry.hint,
            "default": entry.default,
            "choices": entry.choices,
            "is_count": entry.is_count,
        },
    }


def experiment_row(status: ExperimentStatus) -> dict[str, Any]:
    """Return an experiment for the list of experiments."""
    expected = [process for process in status if not _has_ended(process)]
    return {
        "name": status.name,
        # All times are those of the clock of the backend.
        "now": status.now(),
        "backend": status.backend,
        "state": status.displayed_state,
        "counts": tally(
            [process.name for process in status],
            {process.name: process.displayed_state for process in status},
        ),
        "processes": len(status.processes),
        "ready": sum(process.ready for process in expected),
        "expected": len(expected),
        "created": status.created,
        "deadline": None if status.ended else status.deadline,
        "note": status.note,
        "ended": status.ended,
        "exit_code": status.exit_code if status.ended else None,
    }


def _has_ended(process: ProcessStatus) -> bool:
    return process.state.value not in ("pending", "running")


def experiment_header(model: ExperimentModel) -> dict[str, Any]:
    """Return what the page shows above an experiment."""
    row = {} if model.status is None else experiment_row(model.status)
    return {**row, "outage": model.outage, "gone": model.gone, "run": model.run}


def process_row(process: ProcessStatus) -> dict[str, Any]:
    """Return the status of a process."""
    return {
        "name": process.name,
        "path": process.path,
        "group": process.group,
        "state": process.displayed_state,
        "failed": process.failed,
        "ended": _has_ended(process),
        "ready": process.ready,
        "late": process.not_ready_in_time,
        "exit_code": process.exit_code,
        "reason": process.reason,
        "restarts": process.restarts,
        "restart_number": process.restart_number,
        "max_restarts": process.max_restarts,
        "started": process.started,
        "ended_at": process.ended,
        "next_start": process.next_start,
        "kill_at": process.kill_at,
        "pid": process.pid,
        "attention": attention(process),
    }


def event_row(numbered: NumberedEvent) -> dict[str, Any]:
    """Return an event with its number."""
    return {"number": numbered.number, **numbered.event.to_dict()}


def usage_row(usage: ProcessUsage) -> list[Any]:
    """Return the resource use of a process. The page knows the order of the values."""
    return [
        usage.process,
        usage.cpu,
        usage.memory,
        usage.pss,
        usage.open_files,
        usage.gpu_memory,
        usage.gpu_utilization,
        list(usage.devices),
    ]


def usage_curve(history: UsageHistory | None) -> list[list[Any]]:
    """Return the samples of a process, each with its time in front."""
    if history is None:
        return []
    return [[sample.at, *usage_row(sample.usage)[1:]] for sample in history.samples]


def output_row(line: OutputLine) -> list[Any]:
    """Return a line of output. The page knows the order of the values."""
    return [line.process, line.at, int(line.is_event), line.text]


# --- topology ---


def topology_picture(topology: Topology) -> dict[str, Any]:
    """Return the boxes and lines of a topology with their positions.

    Similar processes are one box. The boxes have space for the states, which the page writes.
    """
    drawn = folded(topology)
    names = [name for node in drawn.nodes for name in node.processes]
    picture = arrange(drawn, dict.fromkeys(names, _WIDEST_STATE))
    processes = {f"process {node.key}": node.processes for node in drawn.nodes}
    for group in drawn.groups:
        members = [name for node in drawn.inside(group) for name in node.processes]
        processes[f"process {group}"] = tuple(members)
    keys = {box.key: _box_key(box) for box, _ in picture.boxes}
    boxes = [
        _box(box, rect, keys[box.key], processes.get(box.key, ())) for box, rect in picture.boxes
    ]
    return {
        "width": picture.width,
        "height": picture.height,
        "boxes": boxes,
        "lines": [
            {
                "kind": line.kind,
                "from": keys[line.source],
                "to": keys[line.target],
                "title": line.title,
                "path": path,
            }
            for line, path in picture.paths
        ],
        "services": [
            {
                "name": service.name,
                "owners": list(service.owners),
                "clients": list(drawn.clients(service.name)),
                "port": service.port,
                "exposed": service.exposed,
                "encrypted": service.encrypted,
            }
            for service in drawn.services
        ],
    }


def _box_key(box: Box) -> str:
    """Return the key of a box. The page uses ``process NAME`` for each single process."""
    name = box.key.partition(" ")[2]
    if box.kind == "group":
        return f"group {name}"
    return f"replicas {name}" if box.is_stack else box.key


def _box(box: Box, rect: Rect, key: str, processes: Sequence[str]) -> dict[str, Any]:
    return {
        "key": key,
        "kind": box.kind,
        "title": box.lines[0],
        # The page writes the state of a process.
        "note": "" if box.kind == "process" else " ".join(box.lines[1:]),
        "bound": box.is_bound,
        "stack": box.is_stack,
        "processes": list(processes),
        "x": round(rect.x, 1),
        "y": round(rect.y, 1),
        "width": round(rect.width, 1),
        "height": round(rect.height, 1),
    }


# --- details ---


def process_details(details: ProcessDetails, environment: Mapping[str, str]) -> dict[str, Any]:
    """Return the settings of a process. ``environment`` contains no values of secrets."""
    return {
        "facts": dict(details.facts),
        "resources": dict(details.resources),
        "addresses": dict(details.addresses),
        "environment": dict(environment),
    }


def compared_value(value: object) -> str | None:
    """Return a value of the comparison of two runs for the page."""
    if value is None or isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False)
