"""From a manifest and events to what is known of one process. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from symphony.host.run.events import Event
from symphony.process_details import ProcessDetails, ProcessEvent
from symphony.status import ProcessStatus


def process_details(
    manifest: Mapping[str, Any], status: ProcessStatus, events: Iterable[Event], log: Path
) -> ProcessDetails:
    """The details of one process of a manifest, with those of its ``events`` that are its own."""
    command = next(item for item in manifest["processes"] if item["name"] == status.name)
    return ProcessDetails(
        status=status,
        facts={"command": shlex.join(command["argv"]), "folder": command["cwd"], "log": str(log)},
        resources={"gpu": str(command["gpus"])} if command["gpus"] else {},
        addresses=manifest["services"],
        events=tuple(
            ProcessEvent(at=event["at"], text=_WORDS[event["event"]](event))
            for event in events
            if event.get("process") == status.name and event["event"] in _WORDS
        ),
    )


def _exited(event: Event) -> str:
    code = event["code"]
    return _because("ended" if code is None else f"ended with exit code {code}", event)


def _because(what: str, event: Event) -> str:
    reason = event.get("reason")
    return f"{what}: {reason}" if reason else what


_WORDS: dict[str, Callable[[Event], str]] = {
    "waiting": lambda event: str(event["reason"]),
    "started": lambda event: f"started as process {event['pid']}",
    "ready": lambda _: "ready",
    "not-ready": lambda event: str(event["reason"]),
    "exited": _exited,
    "never": lambda event: _because("will not start", event),
}
