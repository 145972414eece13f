"""A file that records the machines and the processes of a tool.

The file is written whenever a process is started, so that `down` always finds all processes.
"""

from __future__ import annotations

import fcntl
import json
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

from machines.console import RequirementError
from machines.processes import Process
from machines.sandbox import Machine


@dataclass(slots=True)
class Record:
    """The machines, daemons and timings of a cluster, and its test image if it has one.

    A daemon is recorded as the process on the host that waits for it.
    """

    path: Path
    machines: list[Machine] = field(default_factory=list)
    daemons: dict[str, Process] = field(default_factory=dict)
    image: str = ""
    complete: bool = False
    timings: dict[str, float] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def begin(self) -> None:
        """Write an empty record. From then on, `down` removes whatever has been created."""
        with self._lock:
            self._save()

    def add_machine(self, machine: Machine) -> Machine:
        """Add a newly started machine to the record."""
        with self._lock:
            self.machines.append(machine)
            self._save()
        return machine

    def add_daemon(self, process: Process) -> Process:
        """Add a newly started daemon to the record."""
        with self._lock:
            self.daemons[process.name] = process
            self._save()
        return process

    def finish(self, *, timings: dict[str, float], image: str = "") -> None:
        """Record that everything is running, which image is in use, and how long each step took."""
        with self._lock:
            self.image, self.complete = image, True
            self.timings = {**self.timings, **timings}
            self._save()

    def machine(self, name: str) -> Machine:
        """Return the machine with the given name. Raises KeyError if there is none."""
        return {machine.name: machine for machine in self.machines}[name]

    def _save(self) -> None:
        content = {
            "machines": [asdict(machine) for machine in self.machines],
            "daemons": [asdict(process) for process in self.daemons.values()],
            "image": self.image,
            "complete": self.complete,
            "timings": self.timings,
        }
        fresh = self.path.with_suffix(".new")
        fresh.write_text(json.dumps(content, indent=1))
        fresh.rename(self.path)


def load(path: Path) -> Record | None:
    """Return the record of the started processes, or None if there is no record.

    Raises RequirementError if the record is damaged.
    """
    try:
        content = json.loads(path.read_text())
        daemons = [Process(**entry) for entry in content["daemons"]]
        machines = [
            Machine(name=m["name"], address=m["address"], init=Process(**m["init"]))
            for m in content["machines"]
        ]
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as exc:
        raise RequirementError(
            f"{path} is damaged ({exc!r}): stop the processes of the cluster by hand "
            f"(those of 'lsns -t pid'), then delete it"
        ) from exc
    return Record(
        path=path,
        machines=machines,
        daemons={process.name: process for process in daemons},
        image=content["image"],
        complete=content["complete"],
        timings=content["timings"],
    )


@contextmanager
def exclusive(state: Path, tool: str) -> Iterator[None]:
    """Hold the lock of a tool, which is in its state directory, for the `with` block.

    Raises RequirementError if another process holds the lock.
    """
    state.mkdir(parents=True, exist_ok=True, mode=0o700)
    with (state / "lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RequirementError(
                f"another '{tool}' is bringing the cluster up or down: wait until it exits"
            ) from None
        os.set_inheritable(file.fileno(), False)
        yield
